"""A claim as the API has it, to what has to be prepared on this node."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from dra_driver import errors
from dra_driver.logic.offering import naming
from dra_driver.logic.preparing import cdi, metadata, sharing_plan
from dra_driver.model import claims, device_metadata, devices, prepared, slices

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
    before any is made. `described` are the requests that containers read of.
    """

    entries: tuple[prepared.PreparedDevice, ...]
    offers: Mapping[str, devices.Offer]
    partitions: tuple[prepared.Partition, ...] = ()
    needs: sharing_plan.Needs = sharing_plan.NO_NEEDS
    described: device_metadata.Content = device_metadata.NOTHING

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
    _refuse_onlookers(ref, entries, node)
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
    described = metadata.wanted(claim, results)
    return Plan(entries, offers, tuple(partitions.values()), needs, described)


def _refuse_onlookers(
    ref: claims.ClaimRef, entries: Iterable[prepared.PreparedDevice], node: Node
) -> None:
    """To look at a GPU for virtual machines it would have to be taken from who uses it."""
    for entry in entries:
        if entry.kind == "vfio" and entry.admin_access:
            raise errors.Rejected(
                f"claim {ref}: device {entry.device!r} with adminAccess: a GPU for virtual "
                "machines can be looked at only by who has it. Ask for class "
                f"{node.driver_name}, or without adminAccess"
            )


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
