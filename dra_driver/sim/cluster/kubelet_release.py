"""What the kubelet of one Kubernetes release does otherwise than that of the next.

Without a release the kubelet behaves as that of 1.36 with its defects mended.
"""

import dataclasses
from collections.abc import Sequence

from dra_driver.adapters.kubelet import dra_protocol
from dra_driver.logic.scheduling import emulation

_V1, _V1ALPHA1 = dra_protocol.HEALTH_SERVICES


@dataclasses.dataclass(frozen=True, slots=True)
class Behaviour:
    """Which defects to reproduce, and which changes are there."""

    health_is_read: bool = True
    """Device health is asked for: not up to 1.35, where the gate ResourceHealthStatus is off."""
    health_as_advertised: bool = False
    """The stream of device health is opened where the plugin advertises it, v1 before v1alpha1;
    up to 1.36 it is v1alpha1, advertised or not (kubernetes/kubernetes#139477)."""
    devices_pile_up: bool = False
    """What a driver answers is added to what it answered before: after a failure of another driver
    the names of its devices stand twice (kubernetes/kubernetes#140274)."""
    unprepares_by_name: bool = False
    """A pod that ends has the claims unprepared that are called as its own are, though it never
    had them (kubernetes/kubernetes#140212)."""

    def health_service(self, advertised: Sequence[str]) -> str | None:
        """Which service is asked for device health; None where none is."""
        if not self.health_is_read:
            return None
        if not self.health_as_advertised:
            return _V1ALPHA1
        return next((name for name in (_V1, _V1ALPHA1) if name in advertised), None)


FIXED = Behaviour()
_EARLIER = Behaviour(health_is_read=False, devices_pile_up=True, unprepares_by_name=True)
_LATER = Behaviour(health_as_advertised=True)
_RELEASES = {
    "1.34": _EARLIER,
    "1.35": _EARLIER,
    "1.36.2": Behaviour(devices_pile_up=True, unprepares_by_name=True),
    "1.37": _LATER,
    "1.38": _LATER,
}


def of_release(release: str | None) -> Behaviour:
    """The behaviour of a Kubernetes release; with None no defects.

    Raises:
        errors.Rejected: the release is not known here.
    """
    emulation.of_release(release)
    return FIXED if release is None else _RELEASES[release]
