"""Which of two instances of the driver serves a node during a rolling update.

The kubelet calls the one that registered last, and the one that joined last publishes. So a new
instance does neither until it can do what the older one does: what it lacks must not keep claims
waiting that the older one could prepare.

Source: Kubernetes 1.36, `pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go` (the last registration is
called), `pkg/controller/daemon/update.go` (a new pod that is not ready takes up surge).
"""

import threading
from collections.abc import Callable

from dra_driver import errors, settings
from dra_driver.adapters.kubelet import dra_client
from dra_driver.apps.plugin import awaiting, serving

LOOK_AGAIN = 2.0
"""Seconds between two looks at both instances, and maybe at the API server."""
DEFERS = "an older instance serves this node until this one can: "
"""Begins what the probe is told meanwhile."""
_SECONDS = 4.0
"""How long the older instance may take to say how it is."""


class Standing:
    """How this instance stands with the kubelet, for the probes of its container to hear."""

    def __init__(self, config: settings.KubeletPlugin) -> None:
        """It is the only one, and not registered yet."""
        self._config = config
        self._defers = False
        self._relieves: Callable[[], bool] = lambda: False
        self._unregistered: str | None = (
            f"the kubelet has not registered the driver yet. It does within seconds of finding "
            f"{config.registration_socket}; if not, set --kubelet-root to its --root-dir"
        )

    def defer(self) -> None:
        """An older instance serves the node for the time being."""
        self._defers = True

    def take_over(self, relieves: Callable[[], bool] = lambda: False) -> None:
        """From now on this instance serves the node.

        `relieves` tells whether an older one is still there that does no better.
        """
        self._relieves = relieves
        self._defers = False

    def registered(self, error: str | None) -> None:
        """What the kubelet made of the registration: None if it is content."""
        self._unregistered = None if error is None else f"the kubelet refused the driver: {error}"

    def told(self, problem: str | None) -> str | None:
        """What a probe hears while `problem` keeps this instance from its work.

        Nothing, as long as an older instance that does no better is there: the update has to go on
        to other nodes, and would wait for this one.
        """
        if self._defers:
            return DEFERS + (problem or "it registers now")
        if problem is not None and self._relieves():
            return None
        return problem or self._unregistered


def wait(
    config: settings.KubeletPlugin,
    own: awaiting.Hindrance,
    tell: awaiting.Tell,
    stop: threading.Event,
) -> bool:
    """Return True once this instance is to serve the node; False if `stop` was set before.

    That is when nothing hinders it, or when the older one has ended or is hindered too.
    """

    def hindrance() -> str | None:
        reason = own()
        return None if reason is None or older(config) is not None else reason

    return awaiting.nothing_in_the_way(hindrance, tell, stop, LOOK_AGAIN)


def older(config: settings.KubeletPlugin) -> str | None:
    """What hinders the other instances in this plugin directory; None if nothing hinders one."""
    told = "no other instance answers"
    for path in sorted(config.plugin.glob("dra*.sock")):
        if path == config.service_socket:
            continue
        try:
            with dra_client.Client(str(path)) as client:
                answer = client.probe(serving.PROBE, timeout=_SECONDS)
        except errors.Retryable as error:
            told = f"{path}: {error}"
            continue
        if answer is None:
            told = f"{path}: another driver answers there"
            continue
        if not answer.error:
            return None
        told = answer.error
    return told
