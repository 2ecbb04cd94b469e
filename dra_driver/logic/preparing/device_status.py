"""What a driver tells of a claim's devices in its status: `status.devices`, entry by entry.

Sources: Kubernetes 1.36, `staging/src/k8s.io/api/resource/v1/types.go` (AllocatedDeviceStatus),
`pkg/apis/resource/validation/validation.go`, `apimachinery/pkg/apis/meta/v1/types.go` (Condition).
"""

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import claims, quantities, slices, texts

Json = dict[str, Any]


class Unseen(enum.Enum):
    """A fact that cannot be seen at the moment: what was told of it stays."""

    AS_TOLD = enum.auto()


Value = slices.Scalar | quantities.Quantity | Unseen
"""What is told of a device under one name: a fact, or an amount of it that the claim holds."""

READY = "Ready"
"""True: the device is configured as the configs of the class and the claim say."""
HEALTHY = "Healthy"
"""True: the card is well, or what is wrong with it keeps nobody from using it."""
MOST_CONDITIONS = 8
"""Conditions of a device, those of others counted; the API server refuses more."""
MOST_DATA = 10 * 1024
"""Bytes of `data` as JSON."""

_Key = tuple[str, str, str | None]
"""Pool, device, share."""


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """How a device's card is: a word in CamelCase, a message, and since when (RFC 3339).

    `healthy` is None where nobody can tell.
    """

    healthy: bool | None
    reason: str
    message: str = ""
    since: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceReport:
    """What is to be told of one device of a claim.

    `reason` is a word in CamelCase. Values of `data` that are None are left out; the others are
    written as a ResourceSlice writes them: `{string: …}`, `{int: …}`, `{version: …}` of attributes,
    `{value: …}` of amounts. Without `health` nothing is told of it, and where conditions of others
    leave no room beside `Ready`.
    """

    pool: str
    device: str
    ready: bool
    reason: str
    message: str = ""
    share_id: str | None = None
    data: Mapping[str, Value | None] = dataclasses.field(default_factory=dict)
    health: Health | None = None


def wanted(
    body: Json, driver: str, reports: Sequence[DeviceReport], *, pool: str, now: str
) -> tuple[Json, ...] | None:
    """The entries that the driver's part of a claim's status should have; None if it has them.

    Only devices that are allocated can have an entry. Of a claim whose devices are all in other
    pools than `pool`, which is the node's, there is nothing to tell: it was given back here and
    allocated anew, and the entries are the other node's. A condition that stays as it is keeps its
    `lastTransitionTime`; `now` (RFC 3339) is that of one that changes.

    Raises:
        errors.Rejected: the data of a device is too long.
    """
    allocated = _allocated(body, driver)
    if allocated and all(where != pool for where, _, _ in allocated):
        return None
    present = {_key(entry): entry for entry in _reported(body, driver)}
    told = {(report.pool, report.device, report.share_id): report for report in reports}
    entries = {
        key: _entry(driver, report, present.get(key), body["metadata"], now)
        for key, report in told.items()
        if key in allocated
    }
    same = entries.keys() == present.keys()
    if same and all(_says(present[key], entry) for key, entry in entries.items()):
        return None
    return tuple(entries.values())


def application(body: Json, entries: Iterable[Json]) -> Json:
    """What is sent to server-side apply so that the driver's entries become `entries`.

    It is about the object that was read, not a later one: the allocation may be another by then.
    """
    kept = ("name", "namespace", "uid", "resourceVersion")
    applied: Json = {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {key: body["metadata"][key] for key in kept},
    }
    if devices := list(entries):
        applied["status"] = {"devices": devices}
    return applied


def arrived(answer: Json, driver: str, entries: Iterable[Json]) -> bool:
    """Whether the server kept the entries; it drops them while the feature gate is off."""
    there = {_key(entry) for entry in _reported(answer, driver)}
    return all(_key(entry) in there for entry in entries)


def _allocated(body: Json, driver: str) -> set[_Key]:
    allocation = claims.parse_outcome(body).allocation
    return {
        (result.device.pool, result.device.device, result.share_id)
        for result in (allocation.results if allocation else ())
        if result.device.driver == driver
    }


def _reported(body: Json, driver: str) -> list[Json]:
    entries = (body.get("status") or {}).get("devices") or ()
    return [entry for entry in entries if entry["driver"] == driver]


def _key(entry: Json) -> _Key:
    return entry["pool"], entry["device"], entry.get("shareID")


def _entry(
    driver: str, report: DeviceReport, present: Json | None, metadata: Json, now: str
) -> Json:
    before = present or {}
    listed = [
        _condition(READY, report.ready, report.reason, report.message)
        | {"lastTransitionTime": _transition(before, READY, report.ready, now)}
    ]
    if (health := report.health) is not None and _others(before) + 2 <= MOST_CONDITIONS:
        since = health.since or _transition(before, HEALTHY, health.healthy, now)
        listed.append(
            _condition(HEALTHY, health.healthy, health.reason, health.message)
            | {"lastTransitionTime": since}
        )
    if "generation" in metadata:
        listed = [one | {"observedGeneration": metadata["generation"]} for one in listed]
    entry: Json = {"driver": driver, "pool": report.pool, "device": report.device}
    if report.share_id is not None:
        entry["shareID"] = report.share_id
    entry["conditions"] = listed
    if data := _data(report, before.get("data") or {}):
        _check_length(report, data)
        entry["data"] = data
    return entry


def _data(report: DeviceReport, before: Json) -> Json:
    told = {name: _format(value, before.get(name)) for name, value in report.data.items()}
    return {name: value for name, value in told.items() if value is not None}


def _format(value: Value | None, before: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Unseen):
        return before
    if isinstance(value, quantities.Quantity):
        return {"value": str(value)}
    return slices.format_value(value)


def _check_length(report: DeviceReport, data: Json) -> None:
    length = len(json.dumps(data).encode())
    if length > MOST_DATA:
        raise errors.Rejected(
            f"status of device {report.device!r}: data has {length} bytes as JSON, allowed are "
            f"{MOST_DATA}: report less of it"
        )


def _says(present: Json, entry: Json) -> bool:
    """Whether an entry that is there says all that is wanted; others may have added to it."""
    return present.get("data") == entry.get("data") and all(
        (_present(present, condition["type"]).get(name) or "") == value
        for condition in entry["conditions"]
        for name, value in condition.items()
    )


def _condition(kind: str, is_so: bool | None, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": _STATUS[is_so],
        "reason": reason,
        "message": texts.told(message),
    }


def _transition(present: Json, kind: str, is_so: bool | None, now: str) -> str:
    before = _present(present, kind)
    return str(before["lastTransitionTime"]) if before.get("status") == _STATUS[is_so] else now


def _others(entry: Json) -> int:
    """How many conditions others have written."""
    kinds = {item.get("type") for item in entry.get("conditions") or ()}
    return len(kinds - {READY, HEALTHY})


_STATUS = {True: "True", False: "False", None: "Unknown"}


def _present(entry: Json, kind: str) -> Json:
    conditions = entry.get("conditions") or ()
    return next((item for item in conditions if item.get("type") == kind), {})
