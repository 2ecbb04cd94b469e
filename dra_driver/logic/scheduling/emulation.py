"""Known defects and changes of Kubernetes releases in allocating devices and in ending pods because
of their taints, to behave as released.

Without a release the allocator behaves as 1.36 with its defects mended.
"""

import dataclasses
import re
from collections.abc import Mapping

from dra_driver import errors


@dataclasses.dataclass(frozen=True, slots=True)
class Emulation:
    """Which defects to reproduce, and which changes are there."""

    counters_by_pool_name: bool = False
    """Counters of pools with one name mix, whatever their drivers: those of the pool that is
    looked at first stand for all (kubernetes/kubernetes#140434)."""
    reservations_leak: bool = False
    """In one search counters stay reserved for a device that a taint or a constraint refuses, and
    for a share that is given back (kubernetes/kubernetes#140436)."""
    shares_count_again: bool = False
    """Each share of a device without capacity counts the device's counters, as long as no share
    takes some capacity (kubernetes/kubernetes#140437)."""
    all_forgets_room: bool = False
    """Allocation mode All looks at what is left of a shared device last: a constraint that the
    device breaks is an error even if it is full, and a full one stays with the constraints
    (kubernetes/kubernetes#140769)."""
    distinct_forgets: bool = False
    """distinctAttribute remembers one value of each request: that of its last device."""
    admin_access_takes: bool = False
    """Admin access needs free counters and capacity (kubernetes/kubernetes#140729), and keeps its
    devices from later requests of the same pod."""
    shares_hold_nothing: bool = False
    """A device that is published as one for a single claim, while claims have shares of it, is free
    as far as its capacities have room (kubernetes/kubernetes#140798)."""
    configs_repeat: bool = False
    """A config of a claim stands in the allocation once for each request that it names
    (kubernetes/kubernetes#139730)."""
    configs_name_all: bool = True
    """A config keeps the names of its requests where these are all of the claim; from 1.37 on it
    has none then, which means the same (kubernetes/kubernetes#139731)."""
    capacity_names_as_written: bool = False
    """A request for a capacity means that of exactly this name: `memory` and the same name in the
    driver's domain are two (kubernetes/kubernetes#142202)."""
    taint_rules: bool = False
    """DeviceTaintRules count: they are there by default from 1.37 on."""
    rules_need_no_selector: bool = False
    """A DeviceTaintRule without a selector taints every device (kubernetes/kubernetes#141648)."""
    extended_stay: bool = False
    """Taints end no pods whose devices are for extended resources (kubernetes/kubernetes#142289).
    """
    whole_steps: bool = True
    """Steps of a capacity are counted in whole units; from 1.38 on in thousandths where the range
    has parts of one (gate DRAFractionalCapacityRange, kubernetes/kubernetes#140161)."""
    incomplete_is_fatal: bool = True
    """Allocation mode All and a pool of which slices are missing stop the pod, though another node
    may fit; mended only in 1.38 (kubernetes/kubernetes#141898)."""


FIXED = Emulation()

_UNTIL_1_36_2 = Emulation(
    counters_by_pool_name=True,
    reservations_leak=True,
    shares_count_again=True,
    all_forgets_room=True,
    distinct_forgets=True,
    admin_access_takes=True,
    shares_hold_nothing=True,
    configs_repeat=True,
    capacity_names_as_written=True,
    extended_stay=True,
)
RELEASES: Mapping[str, Emulation] = {
    "1.34": _UNTIL_1_36_2,
    "1.35": _UNTIL_1_36_2,
    "1.36.2": _UNTIL_1_36_2,
    "1.37": Emulation(
        shares_hold_nothing=True,
        configs_name_all=False,
        capacity_names_as_written=True,
        taint_rules=True,
        rules_need_no_selector=True,
        extended_stay=True,
    ),
    "1.38": Emulation(
        configs_name_all=False, taint_rules=True, whole_steps=False, incomplete_is_fatal=False
    ),
}


_VERSION = re.compile(r"v?(\d+)\.(\d+)\b")
_OWN = "-sim"
"""How the version of the embedded cluster ends, which allocates without defects."""


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


def release_of(server: str) -> str | None:
    """The known release that is closest to what an API server says it is, for example `v1.36.2`.

    None for the embedded cluster, unless it emulates one, and for what is no version. What is older
    than the first that is known here has its defects, what is newer than the last is as that.
    """
    found = _VERSION.match(server)
    if found is None or server.endswith(_OWN):
        return None
    minor = (int(found[1]), int(found[2]))
    names = {_minor(name): name for name in RELEASES}
    return names[max((known for known in names if known <= minor), default=min(names))]


def _minor(release: str) -> tuple[int, int]:
    major, minor, *_ = release.split(".")
    return int(major), int(minor)
