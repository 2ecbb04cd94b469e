"""A claim as the API has it, to what has to be prepared on this node."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from dra_driver import errors
from dra_driver.logic.offering import naming, shares
from dra_driver.logic.preparing import cdi, sharing_plan
from dra_driver.model import claims, devices, mig, prepared, quantities, slices

_UID = re.compile(r"[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?")


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """Who prepares: the driver, and its pool on this node."""

    driver_name: str
    pool: str


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What one claim needs here: the answer to the kubelet, and what is behind it.

    `offers` are by device name. `partitions` are the MIG instances among them, as they are known
    before any is made.
    """

    entries: tuple[prepared.PreparedDevice, ...]
    offers: Mapping[str, devices.Offer]
    partitions: tuple[prepared.Partition, ...] = ()
    needs: sharing_plan.Needs = sharing_plan.NO_NEEDS

    @property
    def cards(self) -> frozenset[str]:
        """What has to be locked: the whole GPUs that are touched."""
        return frozenset(lock for offer in self.offers.values() for lock in offer.gpu.locks)

    @property
    def gpus(self) -> dict[str, str]:
        """The UUIDs of the whole GPUs that are touched, by name."""
        return {offer.card: offer.gpu.uuid for offer in self.offers.values()}

    @property
    def numbered(self) -> dict[str, str]:
        """The cards of devices that are used through device nodes of NVIDIA's driver, by device."""
        return {name: one.card for name, one in self.offers.items() if one.vfio is None}

    @property
    def minors(self) -> dict[str, int]:
        """The numbers of their device nodes, by name; a VFIO device has none."""
        return {one.card: one.gpu.minor for one in self.offers.values() if one.vfio is None}


def check_uid(uid: str) -> None:
    """Refuse a UID that is not fit to be part of a file name.

    Raises:
        errors.Rejected: it is not.
    """
    if not _UID.fullmatch(uid):
        raise errors.Rejected(
            f"claim UID {uid!r}: allowed are 1 to 63 letters, digits and '-', "
            "as the API server makes them"
        )


def own_allocation(
    ref: claims.ClaimRef, claim: claims.ResourceClaim, node: Node
) -> tuple[claims.Result, ...]:
    """The results of a claim that are this driver's, on this node.

    Raises:
        errors.Rejected: it is another claim of that name, is not allocated, or is allocated
            elsewhere.
    """
    if claim.ref.uid != ref.uid:
        raise errors.Rejected(
            f"claim {ref.namespace}/{ref.name} has UID {claim.ref.uid}, not {ref.uid}: "
            "it was deleted and made again. The pod has to be made again too"
        )
    if claim.allocation is None:
        raise errors.Rejected(
            f"claim {ref} is not allocated: was its pod bound to this node by hand (nodeName)? "
            "Let the scheduler place it"
        )
    own = tuple(r for r in claim.allocation.results if r.device.driver == node.driver_name)
    for result in own:
        if result.device.pool != node.pool:
            raise errors.Rejected(
                f"claim {ref}, request {result.request!r}: device {result.device} is of pool "
                f"{result.device.pool!r}, this node prepares devices of pool {node.pool!r} only"
            )
    return own


def plan(
    ref: claims.ClaimRef,
    claim: claims.ResourceClaim,
    node: Node,
    inventory: Mapping[str, devices.Offer],
    divisions: sharing_plan.Divisions = MappingProxyType({}),
    before: prepared.Record | None = None,
) -> Plan:
    """What preparing the claim comes to, with the devices of `inventory` by name.

    `divisions` tell how those are divided that many claims consume. `before` is what is remembered
    of the claim: shares that are prepared stay what they are, however devices are divided by now.

    Raises:
        errors.Rejected: the claim cannot be prepared here, now or later.
        naming.WrongCard: a device is not on the card that is remembered.
        UnknownDevice: an allocated device is not in the inventory.
    """
    results = own_allocation(ref, claim, node)
    unknown = sorted({r.device.device for r in results} - inventory.keys())
    if unknown:
        raise UnknownDevice(
            f"claim {ref}: device {unknown[0]!r} does not exist on this node; "
            f"it has {_listed(inventory)}. "
            "Has the GPU fallen off the bus (dmesg | grep -i xid), or was its MIG mode changed?",
            [result for result in results if result.device.device == unknown[0]],
        )
    naming.refuse_moved(ref, results, inventory, before)
    claimed = [sharing_plan.Claimed(r, inventory[r.device.device]) for r in results]
    entries = _merge(ref, results, node)
    try:
        needs = sharing_plan.needs(ref, claim, node.driver_name, claimed, divisions)
    except errors.Rejected:
        if before is None or not has_shares(before, entries):
            raise
        needs = sharing_plan.Needs(before.sharing)
    offers = {entry.device: inventory[entry.device] for entry in entries}
    # Shares of one partition are of one instance.
    partitions = {
        entry.device: partition(entry, offers[entry.device])
        for entry in entries
        if entry.kind == "mig"
    }
    return Plan(entries, offers, tuple(partitions.values()), needs)


def has_shares(record: prepared.Record, entries: tuple[prepared.PreparedDevice, ...]) -> bool:
    """Whether the claim has been prepared with just these devices, and shares are among them.

    Its containers may run, so settings that changed since then are no reason to refuse it.
    """
    return (
        record.phase is prepared.Phase.COMPLETED
        and not record.rebuilt
        and record.devices == entries
        and any(entry.share_id is not None for entry in entries)
    )


def partition(entry: prepared.PreparedDevice, offer: devices.Offer) -> prepared.Partition:
    """What is remembered of a partition before it is made.

    Raises:
        errors.Rejected: the offer is of a whole GPU.
    """
    if offer.spot is None or offer.profile is None:
        raise errors.Rejected(f"device {entry.device!r} is a whole GPU, not a partition")
    found = offer.instance
    return prepared.Partition(
        device=entry.device,
        gpu=offer.gpu.uuid,
        minor=offer.gpu.minor,
        profile=offer.profile.name,
        profile_id=offer.spot.profile_id,
        start=offer.spot.placement.start,
        size=offer.spot.placement.size,
        # Who only looks at a partition neither makes it nor takes it away.
        made=found is None and not entry.admin_access,
        gi=found.gi if found else None,
        ci=found.ci if found else None,
        uuid=found.uuid if found else None,
    )


def existing(partition: prepared.Partition, offer: devices.Offer) -> prepared.Partition:
    """The partition with the instance that the GPU has at its place, if there is one."""
    found = next((one for one in offer.gpu.instances if one.spot == partition.spot), None)
    if found is None:
        return partition
    return partition.model_copy(update={"gi": found.gi, "ci": found.ci, "uuid": found.uuid})


def kind(name: str) -> Literal["gpu", "mig", "vfio"]:
    """What a device is, by its name."""
    if devices.is_vfio(name):
        return "vfio"
    return "mig" if devices.parse_mig_device_name(name) else "gpu"


def cards(record: prepared.Record) -> frozenset[str]:
    """What is locked by whoever changes what a claim has: the whole GPUs that its devices are on.

    As in `devices.Gpu.locks`, as far as the record tells.
    """
    names = {devices.card_of(device.device) for device in record.devices}
    return frozenset(names | {devices.gpu_device_name(one.minor) for one in record.partitions})


def allocated_entries(
    ref: claims.ClaimRef, claim: claims.ResourceClaim, node: Node
) -> tuple[prepared.PreparedDevice, ...]:
    """What the kubelet is told of the claim's devices on this node, whether they are there or not.

    Raises:
        errors.Rejected: as from `own_allocation`.
    """
    return _merge(ref, own_allocation(ref, claim, node), node)


class UnknownDevice(errors.Retryable):
    """An allocated device is not there: it may be about to appear.

    `results` are those of the allocation that are about it.
    """

    def __init__(self, message: str, results: Sequence[claims.Result]) -> None:
        super().__init__(message)
        self.results = tuple(results)

    @property
    def device(self) -> str:
        """Its name."""
        return self.results[0].device.device


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """A device that is wanted, and one that excludes it, maybe the same, that another claim has."""

    wanted: str
    device: str
    holder: claims.ClaimRef


def holdings(plan: Plan, uid: str, records: Iterable[prepared.Record]) -> tuple[Holding, ...]:
    """Which devices of other claims are in the way; admin access neither holds nor minds.

    Shares of one device are not in each other's way.
    A partition is in the way of those that overlap it and of the whole GPU, and the other way
    round.
    """
    others = [record for record in records if record.uid != uid]
    return tuple(
        Holding(entry.device, held.device, record.ref)
        for entry in plan.entries
        if not entry.admin_access
        for record in others
        for held in record.devices
        if not held.admin_access
        and held.pool == entry.pool
        and not (entry.device == held.device and entry.share_id and held.share_id)
        and _excludes(entry.device, plan.offers[entry.device], held.device, record)
    )


def _excludes(name: str, offer: devices.Offer, held: str, record: prepared.Record) -> bool:
    if name == held:
        return True
    if devices.card_of(held) != offer.card:
        return False
    if offer.spot is None or held == offer.card:
        return True
    places = [one.spot.placement for one in record.partitions if one.device == held]
    # A record that was rebuilt without its GPU has names only.
    places = places or list(_places(held, offer.gpu))
    return any(place.overlaps(offer.spot.placement) for place in places)


def _places(name: str, gpu: devices.Gpu) -> Iterator[mig.Placement]:
    """Where a partition of the GPU sits, by its name."""
    parsed = devices.parse_mig_device_name(name)
    for profile in gpu.profiles if parsed else ():
        for place in profile.placements:
            if parsed and (profile.id, place.start) == (parsed.profile_id, parsed.start):
                yield place


@dataclasses.dataclass(frozen=True, slots=True)
class Contradiction:
    """What claims cannot have both, and who the others are: none where it is one claim."""

    problem: str
    remedy: str
    holdings: tuple[Holding, ...]


def over_use(
    plan: Plan, records: Iterable[prepared.Record], divisions: sharing_plan.Divisions
) -> Iterator[Contradiction]:
    """Of which devices other claims' shares leave too little, and of what.

    The scheduler counts too; this is for when it counted with less than there is now. Like it,
    shares with admin access are not counted.
    """
    takers = [one for one in plan.entries if not one.admin_access]
    known = [(record, one) for record in records for one in record.devices if not one.admin_access]
    for name in dict.fromkeys(one.device for one in takers if one.share_id is not None):
        division = divisions.get(name)
        if division is None:
            continue
        own = [one for one in takers if one.device == name]
        others = [(record, one) for record, one in known if one.device == name]
        users = tuple(Holding(name, name, record.ref) for record, _ in others)
        for capacity, amount in shares.capacity_of(plan.offers[name], division).items():
            used = sum(
                quantities.parse(one.consumed[capacity]).value
                for one in [*own, *(other for _, other in others)]
                if capacity in one.consumed
            )
            if used > amount.value:
                yield Contradiction(
                    f"device {name!r}, capacity {capacity}: {amount} is what it has, and its "
                    f"claims together have {quantities.of_amount(used, amount.format)}",
                    "Delete the pods of some of its claims",
                    users,
                )


_ONE_INTERVAL = "Use another card, or the same interval"


def interval_conflicts(plan: Plan, records: Iterable[prepared.Record]) -> Iterator[Contradiction]:
    """Which cards are to have two time slices at a time."""
    known = list(records)
    wanted = plan.needs.remembered.time_slices
    for one in wanted:
        numbers = {other.number for other in wanted if other.gpu == one.gpu}
        if len(numbers) > 1:
            yield Contradiction(
                f"device {one.device!r}: time slices {sorted(numbers)} are wanted for the same "
                "card; allowed is one interval for a card",
                _ONE_INTERVAL,
                (),
            )
        for record in known:
            for other in record.sharing.time_slices:
                if other.gpu == one.gpu and other.number != one.number:
                    yield Contradiction(
                        f"device {one.device!r}: time slice {one.number} is wanted, and claim "
                        f"{record.ref} has set {other.number} on the same card; allowed is the "
                        "same interval",
                        _ONE_INTERVAL,
                        (Holding(one.device, other.device, record.ref),),
                    )


def is_held_in_earnest(holding: Holding, claim: claims.ResourceClaim | None, node: Node) -> bool:
    """Whether the API, too, says that the holder has the device; `claim` is None where it is gone.

    A holder that does not is on its way out: its unprepare has not arrived yet.
    """
    if claim is None or claim.ref.uid != holding.holder.uid or claim.allocation is None:
        return False
    device = slices.DeviceId(node.driver_name, node.pool, holding.device)
    return any(result.device == device for result in claim.allocation.results)


def _merge(
    ref: claims.ClaimRef, results: Iterable[claims.Result], node: Node
) -> tuple[prepared.PreparedDevice, ...]:
    """One entry for each device and share, however many requests it serves.

    The kubelet keeps devices by (pool, device, share): two entries for one would be listed twice.
    """
    merged: dict[tuple[slices.DeviceId, str | None], list[claims.Result]] = {}
    for result in results:
        merged.setdefault((result.device, result.share_id), []).append(result)
    return tuple(
        prepared.PreparedDevice(
            requests=tuple(dict.fromkeys(result.base_request for result in group)),
            pool=device.pool,
            device=device.device,
            cdi_ids=(
                cdi.device_id(node.driver_name, ref.uid, cdi.device_key(device.device, share_id)),
            ),
            share_id=share_id,
            consumed={
                name: str(amount) for name, amount in sorted(group[0].consumed_capacity.items())
            },
            admin_access=all(result.admin_access for result in group),
            kind=kind(device.device),
        )
        for (device, share_id), group in merged.items()
    )


def _listed(inventory: Mapping[str, devices.Offer]) -> str:
    """Whole GPUs by name, partitions by number: a node has hundreds."""
    whole = sorted(name for name, offer in inventory.items() if offer.spot is None)
    partitions = len(inventory) - len(whole)
    parts = [*whole, *([f"{partitions} partitions"] if partitions else [])]
    return ", ".join(parts) or "no devices"
