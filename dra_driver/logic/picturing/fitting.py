"""The largest thing that still fits on a GPU, and how much of its free memory that leaves unused.

Fragmentation: of a GPU with F free memory slices, take the largest profile that fits, and make as
many of it, at places that do not overlap, as the counters allow. They cover C slices.
Fragmentation is (F - C) / F, and 0 where F = 0.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from dra_driver.logic.scheduling import candidacy, counters, usage
from dra_driver.model import mig

WHOLE = "whole"
"""Stands for a profile where it is the whole GPU."""
VFIO = "vfio"
"""Likewise where it is the whole GPU for a virtual machine."""

_COUNTER = re.compile(r"memory-slice-(\d+)")
_CAPACITY = re.compile(r"memorySlice(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Fit:
    """A profile that fits at `starts` together, `size` memory slices each."""

    profile: str
    size: int
    starts: tuple[int, ...]

    @property
    def covered(self) -> int:
        """The memory slices that they take together."""
        return self.size * len(self.starts)


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A device of a GPU and where it sits; `profile` is WHOLE for the GPU itself."""

    candidate: candidacy.Candidate
    profile: str
    placement: mig.Placement

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.candidate.id.device


def attribute(candidate: candidacy.Candidate, name: str) -> str | int | None:
    """An attribute of the driver's own domain, written with or without that domain."""
    found = candidate.device.attributes
    value = found.get(name, found.get(f"{candidate.id.driver}/{name}"))
    return value if isinstance(value, str | int) else None


def counted_slices(counted: Iterable[tuple[str, str]]) -> tuple[int, ...]:
    """The memory slices among (counter set, counter), sorted."""
    return _numbers(_COUNTER, (counter for _, counter in counted))


def partition_at(candidate: candidacy.Candidate) -> mig.Placement | None:
    """Where a MIG device sits, as NVIDIA's driver and this one tell; None where they do not.

    Partitions that are made on demand consume memory slices, and instances that exist have them as
    capacity (`memorySlice<i>`).
    """
    slots = counted_slices(candidate.consumes)
    slots = slots or _numbers(_CAPACITY, candidate.device.capacity)
    if slots:
        return mig.Placement(slots[0], slots[-1] + 1 - slots[0])
    start, size = attribute(candidate, "placementStart"), attribute(candidate, "memorySlices")
    if isinstance(start, int) and isinstance(size, int):
        return mig.Placement(start, size)
    return None


def largest(spots: Sequence[Spot], held: usage.Devices, left: counters.Counters) -> Fit | None:
    """The largest profile of which a device can be allocated now; None where none can.

    The one with the most memory slices; of equals the one with the most multiprocessors, the whole
    GPU before a partition that spans it, and all before the GPU for virtual machines. Devices with
    a taint that keeps pods away do not fit, nor do further shares of a device that claims share.
    `left` is as before afterwards.
    """
    fitting = [
        spot
        for spot in spots
        if spot.name not in held
        and not any(taint.blocks for taint in spot.candidate.taints)
        and left.suffices(spot.candidate)
    ]
    if not fitting:
        return None
    first = max(fitting, key=_rank)
    chosen = _together([spot for spot in fitting if _kind(spot) == _kind(first)], left)
    starts = tuple(spot.placement.start for spot in chosen)
    return Fit(first.profile, first.placement.size, starts)


def fragmentation(free: int, covered: int) -> float:
    """The share of the free memory slices that is not covered, from 0 to 1, to four digits."""
    return round((free - covered) / free, 4) if free else 0.0


def _together(spots: Iterable[Spot], left: counters.Counters) -> list[Spot]:
    """As many as can be had at once: they differ in their place alone, so the first to end does."""
    in_order = sorted(spots, key=lambda spot: (spot.placement.start, spot.name))
    chosen = [spot for spot in in_order if left.take(spot.candidate)]
    for spot in chosen:
        left.put_back(spot.candidate)
    return chosen


def _rank(spot: Spot) -> tuple[object, ...]:
    """`+me` and the like last among equals: there is one of them, whatever room is left."""
    capacity, domain = spot.candidate.device.capacity, spot.candidate.id.driver
    cores = capacity.get("multiprocessors") or capacity.get(f"{domain}/multiprocessors")
    return (
        spot.placement.size,
        spot.profile != VFIO,
        spot.profile == WHOLE,
        cores.exact if cores is not None else 0,
        "+" not in spot.profile,
        spot.profile,
    )


def _kind(spot: Spot) -> tuple[str, int]:
    return spot.profile, spot.placement.size


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> tuple[int, ...]:
    found = (pattern.fullmatch(name.rpartition("/")[2]) for name in names)
    return tuple(sorted({int(match[1]) for match in found if match}))
