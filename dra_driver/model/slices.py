"""ResourceSlices and the devices in them, as `resource.k8s.io/v1` has them on the wire.

Source: Kubernetes 1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Mapping
from typing import Any, NewType

from dra_driver import errors
from dra_driver.model import quantities, request_policies, texts

Json = dict[str, Any]
DeviceName = NewType("DeviceName", str)
PoolName = NewType("PoolName", str)


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """A semantic version attribute, in the text that is published: `580.65.6`."""

    text: str


Scalar = int | bool | str | Version
AttributeValue = Scalar | tuple[Scalar, ...]
"""One value, or a list of one type (alpha in 1.36): a server without its gate drops the list."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """What names one device in a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        """As in messages: driver/pool/device."""
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A device as published: what can be selected on, and how much of it there is.

    `extra` holds the wire fields that have no attribute here (taints, consumesCounters,
    allowMultipleAllocations, ...), so that nothing read is lost when written back. `policies` are
    the request policies of those capacities that have one.
    """

    name: str
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, quantities.Quantity]
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    policies: Mapping[str, request_policies.RequestPolicy] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceSlice:
    """One slice of a pool. `name` is empty until the server has given one."""

    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    node_name: str | None
    devices: tuple[Device, ...]
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Wire fields of `spec` without an attribute here: nodeSelector, sharedCounters, ..."""


def parse(body: Json) -> ResourceSlice:
    """The slice in a `resource.k8s.io/v1` (or v1beta2, the same shape) object."""
    spec = body["spec"]
    pool = spec["pool"]
    known = {"driver", "pool", "nodeName", "devices"}
    return ResourceSlice(
        name=body["metadata"].get("name", ""),
        driver=spec["driver"],
        pool=pool["name"],
        generation=pool.get("generation", 0),
        slice_count=pool["resourceSliceCount"],
        node_name=spec.get("nodeName"),
        devices=tuple(parse_device(device) for device in spec.get("devices") or ()),
        extra={key: value for key, value in spec.items() if key not in known},
    )


def parse_device(body: Json) -> Device:
    """One entry of `spec.devices`.

    Devices that are alike share what they have in common: a cluster has many.
    """
    known = {"name", "attributes", "capacity"}
    extra = {key: value for key, value in body.items() if key not in known}
    if extra.get("consumesCounters"):
        extra["consumesCounters"] = _one_of_equals(json.dumps(extra["consumesCounters"]))
    listed = (body.get("capacity") or {}).items()
    return Device(
        name=body["name"],
        attributes={
            sys.intern(key): _parse_value(body["name"], key, value)
            for key, value in (body.get("attributes") or {}).items()
        },
        capacity=_capacity(tuple((key, str(value["value"])) for key, value in listed)),
        extra=extra,
        policies={
            key: request_policies.parse(value["requestPolicy"])
            for key, value in listed
            if value.get("requestPolicy")
        },
    )


def format_device(device: Device) -> Json:
    """The wire form of a device; keys are sorted, so that equal devices give equal bytes."""
    body: Json = {"name": device.name}
    if device.attributes:
        body["attributes"] = {
            key: format_value(device.attributes[key]) for key in sorted(device.attributes)
        }
    if device.capacity:
        body["capacity"] = {key: _format_capacity(device, key) for key in sorted(device.capacity)}
    body.update({key: device.extra[key] for key in sorted(device.extra)})
    return body


def without_times(device: Json) -> Json:
    """The wire form of a device without the times of its taints."""
    if not device.get("taints"):
        return device
    taints = [
        {key: value for key, value in taint.items() if key != "timeAdded"}
        for taint in device["taints"]
    ]
    return {**device, "taints": taints}


def format_value(value: AttributeValue) -> Json:
    """The wire form of an attribute value: exactly one field, named after the type."""
    if isinstance(value, tuple):
        listed = [format_value(item) for item in value]
        return {f"{kind}s": [item[kind] for item in listed] for kind in listed[0]}
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": value.text}
        case str():
            return {"string": value}


def scalars(value: AttributeValue) -> tuple[Scalar, ...]:
    """The values of a list, or the one that there is."""
    return value if isinstance(value, tuple) else (value,)


def _format_capacity(device: Device, key: str) -> Json:
    body: Json = {"value": str(device.capacity[key])}
    if key in device.policies:
        body["requestPolicy"] = request_policies.format_policy(device.policies[key])
    return body


@functools.lru_cache(maxsize=4096)
def _one_of_equals(text: str) -> Any:
    return json.loads(text)


@functools.lru_cache(maxsize=4096)
def _capacity(listed: tuple[tuple[str, str], ...]) -> Mapping[str, quantities.Quantity]:
    return {key: quantities.parse(value) for key, value in listed}


@functools.lru_cache(maxsize=4096)
def _version(text: str) -> Version:
    return Version(text)


def _parse_value(device: str, key: str, body: Json) -> AttributeValue:
    match list(body.items()):
        case [(str(field), [_, *_] as listed)] if field.removesuffix("s") in _SCALARS:
            kind = field.removesuffix("s")
            values = tuple(_parse_scalar(kind, item) for item in listed)
            if field.endswith("s") and None not in values:
                return tuple(value for value in values if value is not None)
        case [(str(field), value)]:
            parsed = _parse_scalar(field, value)
            if parsed is not None:
                return parsed
    raise errors.Rejected(
        f"device {device!r}, attribute {key!r}: {texts.quoted(body)} is not supported; "
        "allowed is exactly one of int, bool, string, version, or a list: ints, bools, strings, "
        "versions"
    )


def _parse_scalar(field: str, value: Any) -> Scalar | None:
    match field, value:
        case "bool", bool(flag):
            return flag
        case "int", int(number) if not isinstance(number, bool):
            return number
        case "string", str(text):
            return sys.intern(text)
        case "version", str(text):
            return _version(text)
    return None


_SCALARS = frozenset({"bool", "int", "string", "version"})
