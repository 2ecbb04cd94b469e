"""The port at which the kubelet's probes of the kind `grpc` ask how the plugin is.

For pods whose probes are not ours to choose, such as that of the GPU operator; the chart's probes
run `dra-driver probe`, which finds out the same.
"""

import functools
from collections.abc import Callable, Mapping

from dra_driver import errors, settings, telemetry
from dra_driver.adapters.kubelet import health_checks
from dra_driver.apps.plugin import probe

ALIVE = "liveness"
"""The service that is about life: it need not be ready. The empty service is about readiness."""


def server(config: settings.KubeletPlugin) -> health_checks.Server:
    """A server at the health address, which answers after `start`.

    Raises:
        errors.Fatal: the address cannot be had; the text names the setting.
    """
    try:
        return health_checks.Server(config.health_address, services(config))
    except errors.Fatal as error:
        raise errors.Fatal(f"--health-address {config.health_address}: {error}") from error


def services(config: settings.KubeletPlugin) -> Mapping[str, Callable[[], bool]]:
    """Whether each service serves; a reason why not goes to the log, once."""
    return {
        "": _Check("readiness", functools.partial(probe.check, config)),
        ALIVE: _Check(ALIVE, functools.partial(probe.check, config, allow_starting=True)),
    }


class _Check:
    def __init__(self, name: str, check: Callable[[], None]) -> None:
        self._name = name
        self._check = check
        self._told = ""
        self._log = telemetry.logger("health")

    def __call__(self) -> bool:
        reason = ""
        try:
            self._check()
        except errors.Retryable as error:
            reason = str(error)
        if reason and reason != self._told:
            self._log.warning("probe does not pass", probe=self._name, reason=reason)
        self._told = reason
        return not reason
