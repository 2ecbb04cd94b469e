"""Which partitions a GPU can have side by side, and the counters that say so to the scheduler.

Two partitions exclude each other where they share a memory slice, and all together by what the GPU
has: multiprocessors, engines, memory, and `instances` of one profile. All of it is written as
counters, so that what the scheduler admits and what this module admits is the same sum.
Counter names are the peer's; those of `instances` are ours.
"""

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Iterable, Mapping

from dra_driver.model import mig

Profiles = tuple[mig.Profile, ...]
"""The profiles of one GPU."""

_AMOUNTS: Mapping[str, Callable[[mig.Profile], int]] = types.MappingProxyType(
    {
        "multiprocessors": lambda profile: profile.multiprocessors,
        "copy-engines": lambda profile: profile.copy_engines,
        "decoders": lambda profile: profile.decoders,
        "encoders": lambda profile: profile.encoders,
        "jpeg-engines": lambda profile: profile.jpeg_engines,
        "ofa-engines": lambda profile: profile.ofa_engines,
        "memory": lambda profile: profile.memory_mib,
    }
)
_SLICE = "memory-slice-"
_OVERDRAFT = 1024
"""How many times a counter may be used up before its neighbour in a `Table` would notice."""


def limits(profiles: Profiles) -> dict[str, int]:
    """The shared counters of a GPU with these profiles; `memory` is in MiB. None without profiles.

    A GPU has at least what the largest profile takes, and what all `instances` of a profile take.
    """
    return dict(_limits(profiles))


def consumption(
    profiles: Profiles, profile: mig.Profile, placement: mig.Placement
) -> dict[str, int]:
    """What a partition takes of the counters of its GPU; what it takes nothing of is left out."""
    taken = {name: amount for name, of in _AMOUNTS.items() if (amount := of(profile))}
    taken |= _memory_slices(placement)
    if profile.id in _counted_profiles(profiles):
        taken[_instances_counter(profile)] = 1
    return taken


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The partitions of a GPU, for many questions at once.

    What is used of all counters is one number, in which each counter has a field of bits: sums of
    partitions are sums of numbers. The highest bit of a field is clear in what is used, and set in
    `room`; it stays set in their difference where the counter is not overdrawn.
    """

    spots: tuple[mig.Spot, ...]
    """Every partition that the empty GPU could be asked for, in NVML's order."""
    weights: Mapping[mig.Spot, int]
    room: int
    guards: int
    slices: tuple[int, ...]
    """One memory slice each, by its number."""

    def used(self, taken: Iterable[mig.Spot]) -> int:
        """What these take together.

        A spot that the GPU does not list takes its memory slices and nothing else.
        """
        return sum(self._weight(spot) for spot in taken)

    def is_within(self, used: int) -> bool:
        """Whether the GPU has that much."""
        return (self.room - used) & self.guards == self.guards

    def admits(self, used: int, spot: mig.Spot) -> bool:
        """Whether the GPU has that much and this spot."""
        return self.is_within(used + self._weight(spot))

    def remaining(self, used: int) -> tuple[mig.Spot, ...]:
        """What can be created beside what is used, each for itself, in NVML's order."""
        return tuple(spot for spot in self.spots if self.is_within(used + self.weights[spot]))

    def _weight(self, spot: mig.Spot) -> int:
        if (weight := self.weights.get(spot)) is not None:
            return weight
        start, size = spot.placement.start, spot.placement.size
        return sum(self.slices[start : start + size])


@functools.lru_cache(maxsize=64)
def table(profiles: Profiles) -> Table:
    """The table of a GPU with these profiles."""
    fields, guards, room, at = {}, 0, 0, 0
    for name, most in _limits(profiles).items():
        fields[name] = at
        bits = (most * _OVERDRAFT).bit_length()
        guards |= 1 << at + bits
        room |= most << at
        at += bits + 1
    weights = {
        mig.Spot(profile.id, placement): sum(
            amount << fields[name]
            for name, amount in consumption(profiles, profile, placement).items()
        )
        for profile in profiles
        for placement in profile.placements
    }
    slices = tuple(1 << bit for name, bit in fields.items() if name.startswith(_SLICE))
    return Table(tuple(weights), types.MappingProxyType(weights), room | guards, guards, slices)


def fits(profiles: Profiles, taken: Iterable[mig.Spot]) -> bool:
    """Whether all of them can be on one GPU at a time.

    A spot that the GPU does not list takes its memory slices and nothing else.
    """
    known = table(profiles)
    return known.is_within(known.used(taken))


def admits(profiles: Profiles, taken: Iterable[mig.Spot], spot: mig.Spot) -> bool:
    """Whether `spot` can be created beside those that are taken."""
    return fits(profiles, (*taken, spot))


def remaining(profiles: Profiles, taken: Iterable[mig.Spot]) -> tuple[mig.Spot, ...]:
    """What can be created beside those that are taken, each for itself, in NVML's order."""
    known = table(profiles)
    return known.remaining(known.used(taken))


def maximal_layouts(profiles: Profiles) -> frozenset[tuple[mig.Spot, ...]]:
    """The sets of partitions that fit on a GPU and leave room for none more, by place.

    With 1g, 2g, 3g, 4g and 7g of an A100 40GB these are 19, as in NVIDIA's table of them.
    """
    known = table(profiles)
    candidates = sorted(known.spots, key=lambda spot: (spot.placement, spot.profile_id))
    layouts: set[tuple[mig.Spot, ...]] = set()

    def extend(layout: tuple[mig.Spot, ...], used: int, start: int) -> None:
        if layout and not known.remaining(used):
            layouts.add(layout)
        for number, spot in enumerate(candidates[start:], start + 1):
            if known.admits(used, spot):
                extend((*layout, spot), used + known.weights[spot], number)

    extend((), 0, 0)
    return frozenset(layouts)


@functools.lru_cache(maxsize=64)
def _limits(profiles: Profiles) -> Mapping[str, int]:
    counted = _counted_profiles(profiles)
    instances = {
        _instances_counter(profile): profile.instances
        for profile in profiles
        if profile.id in counted
    }
    return types.MappingProxyType(_hardware(profiles) | instances)


@functools.lru_cache(maxsize=64)
def _counted_profiles(profiles: Profiles) -> frozenset[int]:
    """Ids of profiles of which the hardware alone would admit more than `instances`."""
    hardware = _hardware(profiles)
    return frozenset(
        profile.id for profile in profiles if _most(profile, hardware) > profile.instances
    )


def _hardware(profiles: Profiles) -> dict[str, int]:
    most = {
        name: max((of(profile) * max(profile.instances, 1) for profile in profiles), default=0)
        for name, of in _AMOUNTS.items()
    }
    ends = (
        placement.start + placement.size for profile in profiles for placement in profile.placements
    )
    slices = _memory_slices(mig.Placement(0, max(ends, default=0)))
    return {name: amount for name, amount in most.items() if amount} | slices


def _most(profile: mig.Profile, hardware: Mapping[str, int]) -> int:
    """How many of one profile the hardware admits: disjoint placements, and all amounts enough."""
    disjoint, end = 0, 0
    for placement in sorted(profile.placements, key=lambda item: item.start + item.size):
        if placement.start >= end:
            disjoint, end = disjoint + 1, placement.start + placement.size
    amounts = ((name, of(profile)) for name, of in _AMOUNTS.items())
    return min([disjoint, *(hardware[name] // amount for name, amount in amounts if amount)])


def _memory_slices(placement: mig.Placement) -> dict[str, int]:
    end = placement.start + placement.size
    return {f"{_SLICE}{number}": 1 for number in range(placement.start, end)}


def _instances_counter(profile: mig.Profile) -> str:
    # The id keeps profiles apart whose names differ in punctuation alone: 1g.24gb+me, 1g.24gb-me.
    name = re.sub("[^a-z0-9]+", "-", profile.name.lower().replace(".", "")).strip("-")
    return f"instances-{name}-{profile.id}"
