"""A claim as the API has it, to what has to be prepared on this node."""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from dra_driver import errors
from dra_driver.logic import cdi
from dra_driver.model import claims, devices, prepared, slices

CONFIG_API_VERSION = "resource.nvidia.com/v1beta1"
_UID = re.compile(r"[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?")


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """Who prepares: the driver, and its pool on this node."""

    driver_name: str
    pool: str


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What one claim needs here: the answer to the kubelet and the GPUs behind it."""

    entries: tuple[prepared.PreparedDevice, ...]
    gpus: Mapping[str, devices.Gpu]
    """By device name."""


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
    inventory: Mapping[str, devices.Gpu],
) -> Plan:
    """What preparing the claim comes to, with the devices of `inventory` by name.

    Raises:
        errors.Rejected: the claim cannot be prepared here, now or later.
        UnknownDevice: an allocated device is not in the inventory.
    """
    results = own_allocation(ref, claim, node)
    for result in results:
        _refuse_config(ref, claim, result, node)
    unknown = sorted({r.device.device for r in results} - inventory.keys())
    if unknown:
        raise UnknownDevice(
            f"claim {ref}: device {unknown[0]!r} does not exist on this node; "
            f"it has {', '.join(sorted(inventory)) or 'no devices'}. "
            "Has the GPU fallen off the bus (dmesg | grep -i xid), or was MIG mode switched on?"
        )
    entries = _merge(ref, results, node)
    return Plan(entries, {entry.device: inventory[entry.device] for entry in entries})


def allocated_entries(
    ref: claims.ClaimRef, claim: claims.ResourceClaim, node: Node
) -> tuple[prepared.PreparedDevice, ...]:
    """What the kubelet is told of the claim's devices on this node, whether they are there or not.

    Raises:
        errors.Rejected: as from `own_allocation`.
    """
    return _merge(ref, own_allocation(ref, claim, node), node)


class UnknownDevice(errors.Retryable):
    """An allocated device is not there: it may be about to appear."""


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """A device that another claim has."""

    device: str
    holder: claims.ClaimRef


def holdings(
    entries: Iterable[prepared.PreparedDevice], uid: str, records: Iterable[prepared.Record]
) -> tuple[Holding, ...]:
    """Which of the devices other claims hold; admin access neither holds nor minds."""
    others = [record for record in records if record.uid != uid]
    return tuple(
        Holding(entry.device, record.ref)
        for entry in entries
        if not entry.admin_access
        for record in others
        if record.holds(entry)
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
            cdi_ids=(cdi.device_id(node.driver_name, ref.uid, device.device),),
            share_id=share_id,
            admin_access=all(result.admin_access for result in group),
        )
        for (device, share_id), group in merged.items()
    )


def _refuse_config(
    ref: claims.ClaimRef, claim: claims.ResourceClaim, result: claims.Result, node: Node
) -> None:
    """Refuse a config that asks for more than a whole card: it would be ignored otherwise."""
    for config in claim.allocation.configs if claim.allocation else ():
        if config.driver != node.driver_name or not _applies(config, result):
            continue
        parameters = config.parameters
        known = parameters.get("apiVersion") == CONFIG_API_VERSION
        if not known or parameters.get("kind") != "GpuConfig" or parameters.keys() - _PLAIN:
            raise errors.Rejected(
                f"claim {ref}, request {result.request!r}, config from "
                f"{config.source}: {parameters!r} is not supported by this version of the driver; "
                f"allowed is a GpuConfig of {CONFIG_API_VERSION} without `sharing`. "
                "Remove the config from the claim or the class"
            )


_PLAIN = frozenset({"apiVersion", "kind"})


def _applies(config: claims.OpaqueConfig, result: claims.Result) -> bool:
    return not config.requests or bool(
        {result.request, result.base_request}.intersection(config.requests)
    )
