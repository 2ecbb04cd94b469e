"""Whether the kubelet plugin of this node answers: what its container's probes run."""

from dra_driver import errors, settings
from dra_driver.adapters.kubelet import dra_client
from dra_driver.apps.node import node_directories
from dra_driver.apps.plugin import serving, succession

_SECONDS = 4.0
"""How long one call may take. Of that, a call waits for a plugin that is starting for 1 s."""


def check(config: settings.KubeletPlugin, *, allow_starting: bool = False) -> None:
    """Call both sockets of the plugin with these settings, as the kubelet does.

    Raises:
        errors.Retryable: one does not answer, or does for another driver; or, unless that is
            allowed, claims cannot be prepared yet. The text says why. What only a new container
            mends is never allowed.
    """
    try:
        _check_registration(config)
        problem = _problem(config)
    except errors.Retryable:
        problem, lives = _unregistered(config)
        if not problem:
            raise
        allow_starting = allow_starting and lives
    if problem and (not allow_starting or node_directories.ONLY_ANEW in problem):
        raise errors.Retryable(f"{config.service_socket}: {problem}")


def _check_registration(config: settings.KubeletPlugin) -> None:
    with dra_client.Client(str(config.registration_socket)) as client:
        info = client.get_info(_SECONDS)
    found, wanted = (info.name, info.endpoint), (config.driver_name, str(config.service_socket))
    if found != wanted:
        raise errors.Retryable(
            f"{config.registration_socket}: driver and service socket are {found}, and "
            f"{wanted} by these settings: give the probe the settings of the plugin"
        )


def _unregistered(config: settings.KubeletPlugin) -> tuple[str, bool]:
    """What a plugin without a registration socket waits for, and whether it will open it then.

    One that has lost it, with its directory, does not open it again: in its container even the
    directory that the kubelet makes anew would be the old one.
    """
    try:
        told = _problem(config)
    except errors.Retryable:
        # It waits for the directory of this socket, too, which it opens first.
        return node_directories.hindrance_of_sockets(config) or "", True
    if told.startswith(succession.DEFERS):
        return told, True
    reason = node_directories.hindrance_of_sockets(config) or ""
    return reason, told == reason


def _problem(config: settings.KubeletPlugin) -> str:
    """Why claims cannot be prepared yet; empty if they can."""
    with dra_client.Client(str(config.service_socket)) as client:
        answer = client.probe(serving.PROBE, timeout=_SECONDS)
    if answer is None:
        raise errors.Retryable(f"{config.service_socket}: another driver answers there")
    return answer.error
