"""In which order a node's partitions and GPUs are published, which decides where claims go.

The scheduler takes the first device that fits. So small profiles come first, for claims that do
not say which they want, and whole GPUs last, from the other end of the node. Within a profile:

- `pack` fills one GPU after the other, from the places that spoil least of an empty GPU;
- `spread` takes those places from all GPUs in turn;
- `adaptive` looks at what is taken now. Its first partition is the one that destroys least, its
  second the one that does so once the first is taken, and so on: the order holds for claims that
  come faster than it is published again.
"""

import collections
import dataclasses
import functools
import heapq
import itertools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from dra_driver.logic.offering import fragmentation, placements
from dra_driver.model import mig

Policy = Literal["pack", "spread", "adaptive"]

Member = tuple[str, mig.Spot | None]
"""A device: the key of its GPU, and which partition it is; None is the whole GPU."""

Gpus = Sequence[tuple[str, placements.Profiles]]
"""Keys of GPUs with what each can be cut into, in the order in which they are to be filled."""

Taken = Mapping[str, Collection[mig.Spot | None]]
"""What is taken of GPUs by their keys; None is the whole GPU. Free GPUs need not be there."""

T = TypeVar("T")

_PRIOR, _PRIOR_WHOLE, _IN_USE = 1, 2, 2
"""What a kind of device is worth for each GPU, though nobody uses it; and each compute slice in
use. Chosen by simulations such as tests/bench/blocking.py: with a larger prior more claims for
parts are lost, and with a smaller one for the whole more claims for whole GPUs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The devices of one profile on all GPUs, in publishing order; without profile, whole GPUs."""

    profile: str | None
    members: tuple[Member, ...]


def order(policy: Policy, gpus: Gpus, taken: Taken) -> list[Group]:
    """All partitions and whole GPUs of a node, in publishing order; a GPU's key is used once.

    `pack` and `spread` do not look at what is taken.
    """
    known = _known(gpus, taken)
    groups = [Group(name, tuple(_members(policy, known, name))) for name in _names(gpus)]
    whole = tuple((key, None) for key, _ in reversed(gpus))
    return [*groups, Group(None, whole)] if whole else groups


def members(policy: Policy, gpus: Gpus, taken: Taken, profile: str) -> Iterator[Member]:
    """The partitions of one profile, in publishing order; the first come without the others."""
    return _members(policy, _known(gpus, taken), profile)


def fitting(gpus: Gpus, taken: Taken) -> frozenset[Member]:
    """The partitions and whole GPUs that could be had now, each for itself."""
    partitions = {
        (gpu.key, spot)
        for gpu in _known(gpus, taken)
        if not gpu.is_whole
        for spot in gpu.table.remaining(gpu.table.used(gpu.taken))
    }
    return frozenset(partitions | {(key, None) for key, _ in gpus if not taken.get(key)})


def settle(published: Sequence[T], desired: Sequence[T], fitting: Collection[T]) -> Sequence[T]:
    """The published order if it is as good as the desired one, and else the desired one.

    It is as good where both list the same devices, and those that could be had in the same order.
    """
    if collections.Counter(published) != collections.Counter(desired):
        return desired
    if [item for item in published if item in fitting] != [
        item for item in desired if item in fitting
    ]:
        return desired
    return published


@dataclasses.dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU at its place in the order, with the partitions taken; or it is taken as a whole."""

    place: int
    key: str
    table: placements.Table
    taken: fragmentation.Spots
    is_whole: bool
    ids: Mapping[str, int]
    """The ids of its profiles by name."""
    weights: tuple[int, ...]
    """What the kinds of its devices are worth, in the order of a `fragmentation.Cost`."""


_Step = tuple[int, int, mig.Spot]
"""What a spot destroys, the place of its GPU, and the spot."""


def _known(gpus: Gpus, taken: Taken) -> list[_Gpu]:
    worth = _worth(gpus, taken)
    found = []
    for place, (key, profiles) in enumerate(gpus):
        table = placements.table(profiles)
        held = taken.get(key, ())
        names = {profile.id: profile.name for profile in profiles}
        kinds = (*(names[kind] for kind in fragmentation.kinds(table)), None)
        found.append(
            _Gpu(
                place=place,
                key=key,
                table=table,
                taken=tuple(sorted(spot for spot in held if spot is not None)),
                is_whole=None in held,
                ids={name: profile_id for profile_id, name in names.items()},
                weights=tuple(worth[kind] for kind in kinds),
            )
        )
    return found


def _worth(gpus: Gpus, taken: Taken) -> Mapping[str | None, int]:
    """What each kind of device is worth, by profile; None is whole GPUs.

    What is in use tells what will be asked for. A kind that nobody has yet is not worth nothing.
    """
    count = sum(bool(profiles) for _, profiles in gpus)
    worth: collections.defaultdict[str | None, int]
    worth = collections.defaultdict(lambda: _PRIOR * count, {None: _PRIOR_WHOLE * count})
    for key, profiles in gpus:
        known = {profile.id: profile for profile in profiles}
        for spot in taken.get(key, ()):
            if spot is None:
                slices = max((profile.slices for profile in profiles), default=0)
                worth[None] += _IN_USE * slices
            elif (profile := known.get(spot.profile_id)) is not None:
                worth[profile.name] += _IN_USE * profile.slices
    return worth


def _names(gpus: Gpus) -> list[str]:
    """Names of profiles, the smallest first."""
    sizes: dict[str, tuple[int, ...]] = {}
    for profile in {profile for _, profiles in gpus for profile in profiles}:
        if profile.placements:
            size = _size(profile)
            sizes[profile.name] = min(size, sizes.get(profile.name, size))
    return sorted(sizes, key=lambda name: (sizes[name], name))


def _size(profile: mig.Profile) -> tuple[int, ...]:
    engines = (
        profile.multiprocessors,
        profile.copy_engines,
        profile.decoders,
        profile.encoders,
        profile.jpeg_engines,
        profile.ofa_engines,
    )
    slices = max(placement.size for placement in profile.placements)
    return (slices, profile.slices, profile.memory_mib, sum(engines))


def _members(policy: Policy, gpus: Sequence[_Gpu], name: str) -> Iterator[Member]:
    having = [gpu for gpu in gpus if name in gpu.ids]
    if policy == "adaptive":
        yield from _adaptive(having, name)
        return
    ranked = [
        (rank, gpu.place, (gpu.key, spot))
        for gpu in having
        for rank, spot in enumerate(_from_the_best(gpu.table, gpu.ids[name]))
    ]
    if policy == "spread":
        ranked.sort(key=lambda item: item[:2])
    yield from (member for *_, member in ranked)


def _adaptive(gpus: Sequence[_Gpu], name: str) -> Iterator[Member]:
    keys = {gpu.place: gpu.key for gpu in gpus}
    listed: set[Member] = set()
    for _, place, spot in _merged([_fill(gpu, gpu.ids[name]) for gpu in gpus]):
        listed.add((keys[place], spot))
        yield keys[place], spot
    rest = [step for gpu in gpus for step in _steps(gpu, gpu.taken, gpu.ids[name])]
    rest.sort(key=lambda step: step[:2])
    every: list[Member] = [(keys[place], spot) for _, place, spot in rest]
    every += _members("pack", gpus, name)
    yield from (member for member in dict.fromkeys(every) if member not in listed)


def _merged(fills: Sequence[Iterator[_Step]]) -> Iterator[_Step]:
    """Always the best of the next steps of all GPUs. A GPU's later step may be the better one."""
    heads = [
        (step, number) for number, fill in enumerate(fills) for step in itertools.islice(fill, 1)
    ]
    heapq.heapify(heads)
    while heads:
        step, number = heapq.heappop(heads)
        yield step
        for following in itertools.islice(fills[number], 1):
            heapq.heappush(heads, (following, number))


def _fill(gpu: _Gpu, profile_id: int) -> Iterator[_Step]:
    """How the GPU is best filled with one profile, from what is taken now."""
    taken = gpu.taken
    while steps := _steps(gpu, taken, profile_id):
        yield steps[0]
        taken = tuple(sorted((*taken, steps[0][2])))


def _steps(gpu: _Gpu, taken: fragmentation.Spots, profile_id: int) -> list[_Step]:
    """The spots of a profile that fit beside those taken, the one that destroys least first."""
    if gpu.is_whole:
        return []
    costs = fragmentation.costs(gpu.table, taken)
    steps = [
        (_total(costs[spot], gpu.weights), gpu.place, spot)
        for spot in _from_the_best(gpu.table, profile_id)
        if spot in costs
    ]
    steps.sort(key=lambda step: step[0])
    return steps


def _total(cost: fragmentation.Cost, weights: tuple[int, ...]) -> int:
    return sum(map(operator.mul, cost, weights))


@functools.lru_cache(maxsize=256)
def _from_the_best(table: placements.Table, profile_id: int) -> fragmentation.Spots:
    """The spots of a profile on an empty GPU, the one that destroys least first."""
    costs = fragmentation.costs(table, ())
    own = [spot for spot in table.spots if spot.profile_id == profile_id]
    return tuple(sorted(own, key=lambda spot: (sum(costs[spot]), -spot.placement.start)))
