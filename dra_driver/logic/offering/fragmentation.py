"""What a partition destroys: how much harder it makes it to have other devices of its GPU.

A place that partitions stand in the way of comes back when the last of them ends. Each further one
in the way costs less: with one more beside k others the place is lost by 1/(k+1)². So partitions
gather where the large profiles are spoilt already, and elsewhere leave whole regions to come free.
A profile's places weigh the same together, however many it has. The whole GPU is a kind of its
own beside the profiles: where nobody asks for it, an empty GPU would be broken into too early, and
without it too late.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping

from dra_driver.logic.offering import placements
from dra_driver.model import mig

Spots = tuple[mig.Spot, ...]

Cost = tuple[int, ...]
"""What a partition destroys of each kind of device: of profiles as in `kinds`, of the whole GPU."""

_WHOLE = math.lcm(*range(1, 17)) ** 3
"""All places of a kind; shares of up to 16 places, with up to 15 in the way, divide it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    kinds: tuple[int, ...]
    places: tuple[tuple[mig.Spot, int, int], ...]
    """Each spot with the number of its kind and its share of the places of that kind."""
    excluded: Mapping[mig.Spot, frozenset[int]]
    """By spot, the numbers of the places that cannot be had beside it; its own is one."""


def kinds(table: placements.Table) -> tuple[int, ...]:
    """Ids of the profiles that have places, in the order of a `Cost`; the whole GPU comes after."""
    return _shape(table).kinds


@functools.lru_cache(maxsize=2048)
def costs(table: placements.Table, taken: Spots) -> Mapping[mig.Spot, Cost]:
    """What each partition that can be created beside those taken would destroy."""
    shape = _shape(table)
    in_the_way = collections.Counter(
        number for spot in taken for number in _excluded(table, shape, spot)
    )
    losses = [
        share // (in_the_way[number] + 1) ** 2 for number, (_, _, share) in enumerate(shape.places)
    ]
    whole = _WHOLE // (len(taken) + 1) ** 2
    found = {}
    for spot in table.remaining(table.used(taken)):
        cost = [0] * len(shape.kinds) + [whole]
        for number in shape.excluded[spot]:
            cost[shape.places[number][1]] += losses[number]
        found[spot] = tuple(cost)
    return found


@functools.lru_cache(maxsize=64)
def _shape(table: placements.Table) -> _Shape:
    counts = collections.Counter(spot.profile_id for spot in table.spots)
    numbers = {profile_id: number for number, profile_id in enumerate(counts)}
    places = tuple(
        (spot, numbers[spot.profile_id], _WHOLE // counts[spot.profile_id]) for spot in table.spots
    )
    excluded = {spot: frozenset(_conflicts(table, spot)) for spot in table.spots}
    return _Shape(tuple(counts), places, excluded)


def _excluded(table: placements.Table, shape: _Shape, spot: mig.Spot) -> Iterable[int]:
    if spot in shape.excluded:
        return shape.excluded[spot]
    return _conflicts(table, spot)


def _conflicts(table: placements.Table, spot: mig.Spot) -> Iterable[int]:
    used = table.used((spot,))
    return (number for number, other in enumerate(table.spots) if not table.admits(used, other))
