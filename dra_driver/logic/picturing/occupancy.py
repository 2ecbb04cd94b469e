"""Every GPU of a cluster as its memory slices: who has which, what is free, what still fits.

Read from what drivers publish and schedulers allocate, nothing else. A GPU has as many memory
slices as it has `memory-slice-<i>` counters; one without such is as long as its MIG instances
reach, or else a single block that is given as a whole. What fits is decided as the scheduler does
it, by counters; `fitting` defines fragmentation.
"""

import collections
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dra_driver import errors
from dra_driver.logic.picturing import ailing, fitting, occupants, snapshots
from dra_driver.logic.scheduling import candidacy, counters, pools, usage
from dra_driver.model import mig, nodes, slices

TAKEN, FREE, NOT_OFFERED = "taken", "free", "not offered"

_GPU, _MIG, _VFIO = "gpu", "mig", "vfio"
_UUID: Mapping[object, str] = {_GPU: "uuid", _MIG: "parentUUID", _VFIO: "gpuUUID"}
"""Which attribute of a device of that type names the GPU."""
_PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
_PARENT = re.compile(r"(gpu-\d+)-mig-.+")
_NUMBER = re.compile(r"\d+")


_Held = tuple[slices.DeviceId, tuple[snapshots.Holder, ...]]
_ByPool = Mapping[usage.PoolKey, Sequence[_Held]]
"""Devices in use, and who has them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Memory slices `start` to `start + size - 1` of a GPU, in one of three states.

    `device` and `profile` are empty where the place is free for whatever fits, and for gaps that
    no device covers. `profile` is `fitting.WHOLE` for the GPU itself, and `fitting.VFIO` where it
    is for a virtual machine. `mig_uuid` is empty unless the instance exists and the API tells.
    """

    start: int
    size: int
    state: str
    device: str = ""
    profile: str = ""
    mig_uuid: str = ""
    held_by: tuple[occupants.Occupant, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: its parts by place, where they overlap only if more was allocated than there is.

    `size` and `free` are memory slices, `fragmentation` goes from 0 to 1. `watchers` have admin
    access, and take nothing. `taints` are those of its devices that keep pods away, `ailments` all
    that they have, the gravest first.
    """

    name: str
    uuid: str
    product: str
    driver: str
    size: int
    free: int
    largest: fitting.Fit | None
    fragmentation: float
    parts: tuple[Part, ...]
    watchers: tuple[occupants.Occupant, ...] = ()
    taints: tuple[str, ...] = ()
    ailments: tuple[ailing.Ailment, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has anything of it."""
        return all(part.state != TAKEN for part in self.parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Totals:
    """Sums over GPUs. Memory slices and fragmentation are those of GPUs that have several."""

    gpus: int
    idle: int
    slices: int
    free: int
    largest: str
    fragmentation: float


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """The GPUs of a node by number; `notes` say what could not be used or found."""

    name: str
    gpus: tuple[Gpu, ...]
    totals: Totals
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Occupancy:
    """Nodes by name, and their sums."""

    nodes: tuple[Node, ...]
    totals: Totals
    notes: tuple[str, ...] = ()


def of(snapshot: snapshots.Snapshot, node: str | None = None) -> Occupancy:
    """What is where on all nodes that publish GPUs, or on one of them.

    Raises:
        errors.Rejected: there is no such node.
    """
    seen = {item.name: tuple(_pools(snapshot, item)) for item in snapshot.nodes}
    known = sorted(name for name, found in seen.items() if found)
    if node is not None and node not in known:
        raise errors.Rejected(
            f"node {node!r} publishes no GPUs; nodes that do: {', '.join(known) or 'none'}. If it "
            "should, look for its ResourceSlices, and at the log of its kubelet plugin"
        )
    shown = known if node is None else [node]
    held = _by_pool(snapshot.holders)
    found = tuple(_node(name, seen[name], snapshot, held) for name in shown)
    keys = {pool.key for listed in seen.values() for pool in listed}
    notes = (*snapshot.slice_notes, *(() if node is not None else _without_pool(keys, held)))
    return Occupancy(found, totals([gpu for item in found for gpu in item.gpus]), notes)


def totals(gpus: Sequence[Gpu]) -> Totals:
    """The sums over some GPUs."""
    divided = [gpu for gpu in gpus if gpu.size > 1]
    free = sum(gpu.free for gpu in divided)
    covered = sum(gpu.largest.covered for gpu in divided if gpu.largest is not None)
    fits = [gpu.largest for gpu in gpus if gpu.largest is not None]
    first = max(fits, key=lambda fit: (fit.profile == fitting.WHOLE, fit.size), default=None)
    return Totals(
        gpus=len(gpus),
        idle=sum(gpu.is_idle for gpu in gpus),
        slices=sum(gpu.size for gpu in divided),
        free=free,
        largest=first.profile if first is not None else "",
        fragmentation=fitting.fragmentation(free, covered),
    )


def _pools(snapshot: snapshots.Snapshot, node: nodes.Node) -> Iterator[pools.Pool]:
    """Pools with GPUs; this driver's without any count, as that is worth seeing."""
    for pool in snapshot.inventory.pools(node):
        if pool.driver == snapshots.DRIVER or _by_gpu(pool):
            yield pool


def _node(
    name: str, seen: Sequence[pools.Pool], snapshot: snapshots.Snapshot, held: _ByPool
) -> Node:
    left = counters.Counters(seen, snapshot.in_use)
    found = [
        _gpu(uuid, members, pool, snapshot, left)
        for pool in seen
        for uuid, members in _by_gpu(pool).items()
    ]
    gpus = tuple(sorted(found, key=lambda gpu: (gpu.driver, *_natural(gpu.name))))
    return Node(name, gpus, totals(gpus), tuple(_notes(seen, held)))


def _by_gpu(pool: pools.Pool) -> Mapping[str, list[candidacy.Candidate]]:
    """The devices of each GPU, by its UUID.

    Those for virtual machines may not tell it, as NVIDIA's do not; then their place does.
    """
    found: dict[str, list[candidacy.Candidate]] = collections.defaultdict(list)
    in_place: dict[object, str] = {}
    unknown = []
    for candidate in pool.candidates:
        kind = fitting.attribute(candidate, "type")
        named = _UUID.get(kind)
        uuid = fitting.attribute(candidate, named) if named is not None else None
        if isinstance(uuid, str):
            found[uuid].append(candidate)
            in_place[candidate.device.attributes.get(_PCI_BUS_ID)] = uuid
        elif kind == _VFIO:
            unknown.append(candidate)
    for candidate in unknown:
        place = candidate.device.attributes.get(_PCI_BUS_ID)
        uuid = in_place.get(place) if place is not None else None
        found[uuid or f"{fitting.attribute(candidate, 'uuid')}"].append(candidate)
    return found


def _gpu(
    uuid: str,
    members: Sequence[candidacy.Candidate],
    pool: pools.Pool,
    snapshot: snapshots.Snapshot,
    left: counters.Counters,
) -> Gpu:
    held = snapshot.in_use.pool(pool.key)
    sets = {name for member in members for name, _ in member.consumes}
    own = {key: amount for key, amount in pool.counters.items() if key[0] in sets}
    counted = fitting.counted_slices(own)
    # What others than claims have of a GPU, its driver leaves out of the counters.
    there = fitting.counted_slices(key for key, amount in own.items() if amount)
    spots = _spots(members, len(counted))
    size = len(counted) or max(spot.placement.start + spot.placement.size for spot in spots)
    whose = {member.id.device: occupants.of(member.id, snapshot) for member in members}
    parts = tuple(_parts(spots, held, whose, size, there))
    free = sum(part.size for part in parts if part.state == FREE)
    largest = None if pool.defect else fitting.largest(spots, held, left)
    taints = {f"{taint}" for member in members for taint in member.taints if taint.blocks}
    return Gpu(
        name=_name(uuid, members),
        uuid=uuid,
        product=f"{fitting.attribute(members[0], 'productName') or 'GPU'}",
        driver=pool.driver,
        size=size,
        free=free,
        largest=largest,
        fragmentation=fitting.fragmentation(free, largest.covered if largest is not None else 0),
        parts=parts,
        watchers=tuple(who for listed in whose.values() for who in listed if who.admin_access),
        taints=tuple(sorted(taints)),
        ailments=ailing.of(members),
    )


def _spots(members: Iterable[candidacy.Candidate], size: int) -> list[fitting.Spot]:
    """Where each device sits. `size` is 0 where no counters tell the size of the GPU."""
    places = {
        member: fitting.partition_at(member) or mig.Placement(0, 1)
        for member in members
        if fitting.attribute(member, "type") == _MIG
    }
    size = size or max((place.start + place.size for place in places.values()), default=1)
    return [
        fitting.Spot(member, f"{fitting.attribute(member, 'profile') or '?'}", places[member])
        if member in places
        else fitting.Spot(member, _kind_of_whole(member), mig.Placement(0, size))
        for member in members
    ]


def _kind_of_whole(member: candidacy.Candidate) -> str:
    return fitting.VFIO if fitting.attribute(member, "type") == _VFIO else fitting.WHOLE


def _parts(
    spots: Sequence[fitting.Spot],
    held: usage.Devices,
    whose: Mapping[str, tuple[occupants.Occupant, ...]],
    size: int,
    there: Collection[int],
) -> list[Part]:
    """What is taken, free instances that exist, and gaps: those of `there` can be had."""
    shown = [spot for spot in spots if spot.name in held]
    for spot in sorted(spots, key=lambda spot: spot.placement.size):
        lies_free = not any(spot.placement.overlaps(other.placement) for other in shown)
        if lies_free and not fitting.counted_slices(spot.candidate.consumes):
            shown.append(spot)
    parts = [_part(spot, whose[spot.name], spot.name in held) for spot in shown]
    taken = {i for p in parts for i in range(p.start, p.start + p.size)}
    for state, here in ((FREE, there), (NOT_OFFERED, set(range(size)).difference(there))):
        gaps = sorted(set(here) - taken)
        parts += [Part(run[0], len(run), state) for run in _runs(gaps)]
    return sorted(parts, key=lambda part: (part.start, -part.size, part.device))


def _part(spot: fitting.Spot, listed: Iterable[occupants.Occupant], is_held: bool) -> Part:
    owners = tuple(who for who in listed if not who.admin_access)
    told = next((who.mig_uuid for who in owners if who.mig_uuid), "")
    if spot.profile not in (fitting.WHOLE, fitting.VFIO):
        told = f"{fitting.attribute(spot.candidate, 'uuid') or told}"
    return Part(
        start=spot.placement.start,
        size=spot.placement.size,
        state=TAKEN if is_held else FREE,
        device=spot.name,
        profile=spot.profile,
        mig_uuid=told,
        held_by=owners,
    )


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _notes(seen: Iterable[pools.Pool], held: _ByPool) -> Iterator[str]:
    for pool in seen:
        if pool.defect:
            yield f"pool {pool} cannot be used: {pool.defect}"
            continue
        for device, holders in held.get(pool.key, ()):
            if device.device not in pool.devices:
                told = ", ".join(map(str, holders))
                yield f"{device.device} is allocated and not published: {told}"
            elif len(excluding := _excluding(device, holders)) > 1:
                told = ", ".join(map(str, excluding))
                yield (
                    f"{device.device} is allocated to claims that exclude each other: {told}. "
                    "Delete the pods of all but one"
                )


def _excluding(
    device: slices.DeviceId, holders: Iterable[snapshots.Holder]
) -> Sequence[snapshots.Holder]:
    """Those who have something of a device, if one of them has the whole of it; else nobody."""
    found: list[snapshots.Holder] = []
    has_whole = False
    for holder in holders:
        for result in holder.allocation.results:
            if result.device == device and not result.admin_access:
                found.append(holder)
                has_whole |= result.share_id is None
    return list(dict.fromkeys(found)) if has_whole else ()


def _without_pool(keys: Collection[usage.PoolKey], held: _ByPool) -> Iterator[str]:
    drivers = {driver for driver, _ in keys} | {snapshots.DRIVER}
    for key, listed in held.items():
        if key[0] in drivers and key not in keys:
            for device, holders in listed:
                told = ", ".join(map(str, holders))
                yield f"{device} is allocated, and there is no such pool: {told}"


def _by_pool(holders: snapshots.Holders) -> _ByPool:
    found: dict[usage.PoolKey, list[_Held]] = collections.defaultdict(list)
    for device, listed in holders.items():
        found[device.driver, device.pool].append((device, listed))
    return found


def _name(uuid: str, members: Iterable[candidacy.Candidate]) -> str:
    """The name of the whole GPU, which partitions have in front of theirs.

    Of one that virtual machines alone can have it is that of the device: NVIDIA's driver counts
    those otherwise than GPUs.
    """
    members = list(members)
    for member in members:
        if fitting.attribute(member, "type") == _GPU:
            return member.id.device
        if match := _PARENT.fullmatch(member.id.device):
            return match[1]
    return members[0].id.device if members else uuid


def _natural(name: str) -> tuple[int, str]:
    match = _NUMBER.search(name)
    return (int(match[0]) if match else 0, name)
