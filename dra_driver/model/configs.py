"""Opaque configs as users write them: group `resource.nvidia.com`, version `v1beta1`.

Kinds, fields and meaning are those of NVIDIA's driver, with older names beside the newer ones, and
`maxClients` and `domain` added. Decoding is strict: unknown fields, other cases of letters and
other types are refused; null is the same as absent, as in Go. A key that an object has twice cannot
be seen here: the JSON parser has kept the last one.
"""

import dataclasses
import enum
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field
from pydantic.alias_generators import to_camel

from dra_driver import errors
from dra_driver.model import quantities, sharing

API_VERSION = "resource.nvidia.com/v1beta1"
MOST_CLIENTS = 48
"""Clients of one MPS server on Volta to Hopper (NVIDIA, Multi-Process Service)."""

MOST_MEMORY = 2**50
"""Bytes of a limit; no device has as many."""

ALIASES: Mapping[str, str] = {
    "activeThreadPercentage": "defaultActiveThreadPercentage",
    "pinnedDeviceMemoryLimit": "defaultPinnedDeviceMemoryLimit",
    "maxConnections": "maxClients",
    "timeSlice": "interval",
}
"""Older names of fields, and what they are called now."""

_QUANTITY = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,3})$"
_DEVICE_KEY = r"^(0|[1-9][0-9]{0,3}|(GPU|MIG)-[0-9A-Za-z/-]+)$"


def mebibytes(value: object) -> int:
    """The bytes of a memory limit, rounded down to whole MiB as in NVIDIA's driver.

    Raises:
        errors.Rejected: it is no quantity, less than 1Mi, or more than `MOST_MEMORY`.
    """
    advice = "write a quantity of memory, for example 10Gi"
    if not isinstance(value, str | int | float):
        raise errors.Rejected(advice)
    try:
        whole = quantities.parse(str(value)).value // sharing.MEBIBYTE
    except errors.Rejected as error:
        raise errors.Rejected(advice) from error
    if whole < 1:
        raise errors.Rejected("write at least 1Mi: limits are in whole MiB")
    if whole * sharing.MEBIBYTE > MOST_MEMORY:
        raise errors.Rejected("write at most 1Pi: no device has as much")
    return whole * sharing.MEBIBYTE


def _memory(value: object) -> int:
    try:
        return mebibytes(value)
    except errors.Rejected as error:
        raise ValueError(str(error)) from error


def _device_key(key: str) -> str:
    if not re.fullmatch(_DEVICE_KEY, key, re.ASCII):
        raise ValueError(
            "write the UUID of a device (GPU-…, MIG-…), or its index from 0 on among the sorted "
            "UUIDs of the devices that the config is for"
        )
    return key


def _text_keys(value: object) -> object:
    """YAML takes the key `0:` for a number; kubectl makes it a text, as JSON has no other keys."""
    if not isinstance(value, dict):
        return value
    return {str(key) if type(key) is int else key: item for key, item in value.items()}


_MEMORY_SCHEMA: Mapping[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": _QUANTITY, "maxLength": 64},
        {
            "type": "number",
            "exclusiveMinimum": sharing.MEBIBYTE - 1,
            "exclusiveMaximum": MOST_MEMORY + sharing.MEBIBYTE,
        },
    ]
}
_Memory = Annotated[
    int, pydantic.BeforeValidator(_memory), pydantic.WithJsonSchema(dict(_MEMORY_SCHEMA))
]
_PerDevice = Annotated[
    dict[Annotated[str, pydantic.AfterValidator(_device_key)], _Memory],
    pydantic.BeforeValidator(_text_keys),
    pydantic.WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": _DEVICE_KEY},
            "additionalProperties": dict(_MEMORY_SCHEMA),
        }
    ),
]
_Percentage = Annotated[int, Field(ge=1, le=100)]
_Clients = Annotated[int, Field(ge=1, le=MOST_CLIENTS)]


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _is(name: str, value: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"const": value}}}


def _never_both(*facts: dict[str, Any]) -> dict[str, Any]:
    return {"not": {"allOf": list(facts)}}


def _one_name(*names: str) -> dict[str, Any]:
    return {"allOf": [_never_both(_given(name), _given(ALIASES[name])) for name in names]}


_TEXTS: Mapping[str, str] = {
    "interval": "Default (also if left out), Short, Medium or Long",
    "defaultActiveThreadPercentage": "a whole number from 1 to 100, the percentage of "
    "multiprocessors that each process may use; without it there is no limit",
    "defaultPinnedDeviceMemoryLimit": "a quantity of at least 1Mi, the memory of each device for "
    "all processes of the claim; without it there is no limit",
    "maxClients": f"a whole number from 1 to {MOST_CLIENTS}, how many processes the claim runs; "
    "each gets an even part of the memory limit. Without it each gets all of it",
}


def _new(name: str) -> Any:
    return Field(default=None, description=_TEXTS[name])


def _old(name: str) -> Any:
    new = ALIASES[name]
    text = f"{_TEXTS[new]} (older name of {new})"
    # pydantic's own `deprecated` would warn on each access.
    return Field(default=None, description=text, json_schema_extra={"deprecated": True})


class _Strict(pydantic.BaseModel):
    """Descriptions say what is allowed: they go into the schema and into messages."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel
    )


class TimeSlicingConfig(_Strict):
    """Time-slicing of a whole GPU."""

    model_config = pydantic.ConfigDict(json_schema_extra=_one_name("timeSlice"))

    interval: Literal["Default", "Short", "Medium", "Long"] | None = _new("interval")
    time_slice: Literal["Default", "Short", "Medium", "Long"] | None = _old("timeSlice")


class MpsConfig(_Strict):
    """An MPS daemon and the limits that it holds its clients to."""

    model_config = pydantic.ConfigDict(
        json_schema_extra=_one_name(
            "activeThreadPercentage", "pinnedDeviceMemoryLimit", "maxConnections"
        )
    )

    default_active_thread_percentage: _Percentage | None = _new("defaultActiveThreadPercentage")
    default_pinned_device_memory_limit: _Memory | None = _new("defaultPinnedDeviceMemoryLimit")
    default_per_device_pinned_memory_limit: _PerDevice | None = Field(
        default=None,
        description="an object from devices, by UUID or by index among the sorted UUIDs, to "
        "quantities of at least 1Mi, which override defaultPinnedDeviceMemoryLimit",
    )
    multi_user: bool | None = Field(
        default=None, description="true or false: whether processes of several users run at once"
    )
    max_clients: _Clients | None = _new("maxClients")
    domain: Literal["Claim", "Namespace"] | None = Field(
        default=None,
        description="Claim (also if left out) or Namespace: who shares the daemon, and the faults",
    )
    active_thread_percentage: _Percentage | None = _old("activeThreadPercentage")
    pinned_device_memory_limit: _Memory | None = _old("pinnedDeviceMemoryLimit")
    max_connections: _Clients | None = _old("maxConnections")


class GpuSharing(_Strict):
    """How the processes on a whole GPU share it."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "allOf": [
                _never_both(_is("strategy", "MPS"), _given("timeSlicingConfig")),
                _never_both(_is("strategy", "TimeSlicing"), _given("mpsConfig")),
                {
                    "if": {"anyOf": [_given("timeSlicingConfig"), _given("mpsConfig")]},
                    "then": _given("strategy"),
                },
            ]
        }
    )

    strategy: Literal["TimeSlicing", "MPS"] | None = Field(
        default=None, description="TimeSlicing or MPS; without it nothing is set up"
    )
    time_slicing_config: TimeSlicingConfig | None = Field(
        default=None, description="an object, with the strategy TimeSlicing only"
    )
    mps_config: MpsConfig | None = Field(
        default=None, description="an object, with the strategy MPS only"
    )


class MigDeviceSharing(_Strict):
    """How the processes on a MIG device share it."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "if": _given("mpsConfig"),
            "then": _given("strategy"),
        }
    )

    strategy: Literal["MPS"] | None = Field(
        default=None,
        description="MPS, or leave it out: time slices are set on whole GPUs, and have no effect "
        "on a MIG device",
    )
    mps_config: MpsConfig | None = Field(
        default=None, description="an object, with the strategy MPS only"
    )


class Iommu(_Strict):
    """The way to a virtual machine."""

    backend_policy: Literal["LegacyOnly", "PreferIommuFD"] | None = Field(
        default=None, description="LegacyOnly (also if left out) or PreferIommuFD"
    )
    enable_api_device: bool | None = Field(
        default=None,
        alias="enableAPIDevice",
        description="true or false: whether the container gets the device of the IOMMU interface",
    )


_API_VERSION = Field(description=API_VERSION)


class GpuConfig(_Strict):
    """Config of whole GPUs."""

    api_version: Literal["resource.nvidia.com/v1beta1"] = _API_VERSION
    kind: Literal["GpuConfig"] = Field(description="GpuConfig")
    sharing: GpuSharing | None = Field(default=None, description="an object")


class MigDeviceConfig(_Strict):
    """Config of MIG devices."""

    api_version: Literal["resource.nvidia.com/v1beta1"] = _API_VERSION
    kind: Literal["MigDeviceConfig"] = Field(description="MigDeviceConfig")
    sharing: MigDeviceSharing | None = Field(default=None, description="an object")


class VfioDeviceConfig(_Strict):
    """Config of GPUs that are handed to virtual machines."""

    api_version: Literal["resource.nvidia.com/v1beta1"] = _API_VERSION
    kind: Literal["VfioDeviceConfig"] = Field(description="VfioDeviceConfig")
    iommu: Iommu | None = Field(default=None, description="an object")


Wire = GpuConfig | MigDeviceConfig | VfioDeviceConfig

_MODELS: Mapping[sharing.Kind, type[Wire]] = {
    sharing.Kind.GPU: GpuConfig,
    sharing.Kind.MIG: MigDeviceConfig,
    sharing.Kind.VFIO: VfioDeviceConfig,
}


class Reason(enum.Enum):
    """What is wrong with a field."""

    MISSING = enum.auto()
    UNKNOWN = enum.auto()
    VALUE = enum.auto()
    KEY = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A field that is wrong: its path and value, and what is allowed there.

    For an unknown field `allowed` lists the known ones.
    """

    path: tuple[str, ...]
    reason: Reason
    value: Any
    allowed: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """What is wrong with fields, one by one: the first, and how many more there are."""

    faults: tuple[Fault, ...]
    left_out: int


def read(kind: sharing.Kind, parameters: Mapping[str, Any], most: int) -> Wire | Refused:
    """The config in `parameters`, or what is wrong with at most so many of its fields."""
    model = _MODELS[kind]
    try:
        return model.model_validate(parameters)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False)
        told = tuple(_fault(model, item) for item in found[:most])
        return Refused(told, len(found) - len(told))


def schema(kind: sharing.Kind) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a kind."""
    body: dict[str, Any] = _plain(_MODELS[kind].model_json_schema(by_alias=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/{kind.lower()}.schema.json",
        "title": kind.value,
        **body,
    }


def _fault(model: type[pydantic.BaseModel], error: Any) -> Fault:
    path, kind = tuple(map(str, error["loc"])), error["type"]
    holder, rest = _descend(model, path)
    if kind in {"extra_forbidden", "invalid_key"}:
        known = tuple(name for name in _fields(holder) if name not in ALIASES)
        return Fault(path, Reason.UNKNOWN, error["input"], known)
    if len(rest) > 1:
        # An entry of a map; pydantic puts "[key]" behind the key where that is what is wrong.
        path, reason = path[: len(path) - len(rest) + 2], Reason.VALUE
        if rest[2:]:
            reason = Reason.KEY
        allowed = str(error["ctx"]["error"]) if "ctx" in error else "write a text as key"
        return Fault(path, reason, error["input"], (allowed,))
    field = _fields(holder)[rest[0]] if rest else None
    allowed = f"write {field.description if field else 'an object'}"
    if kind == "value_error":
        allowed = str(error["ctx"]["error"])
    reason = Reason.MISSING if kind == "missing" else Reason.VALUE
    return Fault(path, reason, error["input"], (allowed,))


def _descend(
    model: type[pydantic.BaseModel], path: tuple[str, ...]
) -> tuple[type[pydantic.BaseModel], tuple[str, ...]]:
    """The innermost model on a path, and what of the path is left in it."""
    if len(path) > 1 and (field := _fields(model).get(path[0])):
        for inner in _models(field.annotation):
            return _descend(inner, path[1:])
    return model, path


def _fields(model: type[pydantic.BaseModel]) -> dict[str, pydantic.fields.FieldInfo]:
    return {str(field.alias): field for field in model.model_fields.values()}


def _models(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    for inner in typing.get_args(annotation):
        if isinstance(inner, type) and issubclass(inner, pydantic.BaseModel):
            yield inner


def _plain(value: Any, *, of_names: bool = False) -> Any:
    """Without what depends on pydantic's version: titles, null defaults, enums of one."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    idle = {"title", *(["enum"] if "const" in value else [])}
    if value.get("default", ...) is None:
        idle.add("default")
    return {
        key: _plain(item, of_names=key in {"properties", "$defs"} and not of_names)
        for key, item in value.items()
        if of_names or key not in idle
    }
