"""Who has a device: claims with their pods, and what the driver reports of it."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.logic.picturing import granted, snapshots
from dra_driver.model import slices

Json = dict[str, Any]

_MIG = "MIG-"


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod that a claim is reserved for; `phase` is empty where the pod is not known."""

    name: str
    phase: str


@dataclasses.dataclass(frozen=True, slots=True)
class Occupant:
    """What a claim has of a device: the whole, or with a `share_id` a share.

    One with `admin_access` keeps nobody else from the device. `mig_uuid` and `conditions` are what
    the driver reports in the claim's status, if it does; `consumed` is by capacity.
    """

    namespace: str
    claim: str
    request: str
    share_id: str
    admin_access: bool
    consumed: Mapping[str, str]
    pods: tuple[Pod, ...]
    mig_uuid: str
    conditions: Mapping[str, str]


def of(device: slices.DeviceId, snapshot: snapshots.Snapshot) -> tuple[Occupant, ...]:
    """The occupants of a device, by namespace and claim; shares in the order of the results."""
    return tuple(_occupants(device, snapshot))


def _occupants(device: slices.DeviceId, snapshot: snapshots.Snapshot) -> Iterator[Occupant]:
    for holder in snapshot.holders.get(device, ()):
        body = snapshot.claims[holder.namespace, holder.claim]
        status = body.get("status") or {}
        for result in holder.allocation.results:
            if result.device != device:
                continue
            reported = granted.reported(body, result) or {}
            yield Occupant(
                namespace=holder.namespace,
                claim=holder.claim,
                request=result.request,
                share_id=result.share_id or "",
                admin_access=result.admin_access,
                consumed={
                    name: str(amount)
                    for name, amount in sorted(result.consumed_capacity.items())
                    if amount.amount
                },
                pods=tuple(_pods(holder.namespace, status, snapshot)),
                mig_uuid=_mig_uuid(reported),
                conditions={
                    item["type"]: item["status"] for item in reported.get("conditions") or ()
                },
            )


def _pods(namespace: str, status: Json, snapshot: snapshots.Snapshot) -> Iterator[Pod]:
    for user in status.get("reservedFor") or ():
        if user.get("resource") != "pods":
            yield Pod(f"{user.get('resource')}/{user['name']}", "")
            continue
        body = snapshot.pods.get((namespace, user["name"]))
        known = body is not None and body["metadata"].get("uid") == user.get("uid")
        phase = ((body or {}).get("status") or {}).get("phase") or "Pending"
        yield Pod(user["name"], phase if known else "")


def _mig_uuid(reported: Json) -> str:
    """Whatever the driver calls the field: what it holds tells, as text or as a typed value."""
    data = reported.get("data")
    told = data.values() if isinstance(data, dict) else ()
    values = (value.get("string") if isinstance(value, dict) else value for value in told)
    return next((v for v in values if isinstance(v, str) and v.startswith(_MIG)), "")
