"""Known defects of Kubernetes releases in allocating devices, to behave as released if asked to.

Without any of them the allocator behaves as the same code with these defects mended.
"""

import dataclasses
from collections.abc import Mapping

from dra_driver import errors


@dataclasses.dataclass(frozen=True, slots=True)
class Emulation:
    """Which defects to reproduce."""

    counters_by_pool_name: bool = False
    """Counters of pools with one name mix, whatever their drivers: those of the pool that is
    looked at first stand for all (kubernetes/kubernetes#140434)."""
    reservations_leak: bool = False
    """In one search counters stay reserved for a device that a taint or a constraint refuses, and
    for a share that is given back (kubernetes/kubernetes#140436)."""
    distinct_forgets: bool = False
    """distinctAttribute remembers one value of each request: that of its last device."""
    admin_access_takes: bool = False
    """Admin access needs free counters and capacity (kubernetes/kubernetes#140729), and keeps its
    devices from later requests of the same pod."""


FIXED = Emulation()

RELEASES: Mapping[str, Emulation] = {
    "1.36.2": Emulation(
        counters_by_pool_name=True,
        reservations_leak=True,
        distinct_forgets=True,
        admin_access_takes=True,
    )
}


def of_release(release: str | None) -> Emulation:
    """The behaviour of a Kubernetes release; with None no defects.

    Raises:
        errors.Rejected: the release is not known here.
    """
    if release is None:
        return FIXED
    if release not in RELEASES:
        known = ", ".join(sorted(RELEASES))
        raise errors.Rejected(f"--emulate {release}: this release is not known; known: {known}")
    return RELEASES[release]
