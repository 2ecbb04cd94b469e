"""Parameter objects of DRA's first API as users write them, and how they are read.

Decoding is strict, as that of configs: unknown fields, other cases of letters and other types are
refused; null is the same as absent. Source of shapes: NVIDIA's driver before its configs,
`api/nvidia.com/resource/gpu/v1alpha1` and `api/utils`; there too a node of a selector had at most
one property, and one without any matched nothing: here that is refused.
"""

import re
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field
from pydantic.alias_generators import to_camel

from dra_driver import errors
from dra_driver.model import parameter_faults, parameters, quantities, texts, versions

Json = dict[str, Any]

_VERSION = r"^v?[0-9]{1,9}(\.[0-9]{1,9}){0,2}$"
_PROFILE = r"^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb([+-][a-z]+(\.[a-z]+)?)*$"
_QUANTITY = r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,3})$"
_GLOB = r"^[^\x00-\x1f\x7f]+$"
_UUID = r"^[0-9A-Za-z-]+$"
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def _amount(value: object) -> str:
    text = str(value) if type(value) is int and abs(value) < parameter_faults.LARGE else value
    try:
        if isinstance(text, str) and quantities.parse(text).amount >= 0:
            return text
    except errors.Rejected:
        pass
    raise ValueError("write a quantity, for example 16Gi (2^30 bytes each) or 16G (10^9 each)")


def _version(value: object) -> str:
    advice = 'write one to three numbers in quotes, for example "7.5"'
    if not isinstance(value, str) or not re.fullmatch(_VERSION, value, re.ASCII):
        raise ValueError(advice)
    return versions.normalize(value)


def _glob(value: object) -> str:
    advice = (
        f"write a text of 1 to {parameters.LONGEST_GLOB} characters; * stands for any, ? for one"
    )
    if not isinstance(value, str) or not 1 <= len(value) <= parameters.LONGEST_GLOB:
        raise ValueError(advice)
    if texts.printable(value) != value or "\n" in value or "\t" in value:
        raise ValueError("write no characters that cannot be seen")
    return value


_TEXT: Json = {"type": "string", "minLength": 1}
_OPERATORS = ", ".join(parameters.Operator)
_Operator = Literal[
    "Equals",
    "NotEquals",
    "LessThan",
    "LessThanOrEqualTo",
    "GreaterThan",
    "GreaterThanOrEqualTo",
]
_Amount = Annotated[
    str,
    pydantic.BeforeValidator(_amount),
    pydantic.WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "pattern": _QUANTITY, "maxLength": 64}
    ),
]
_Version = Annotated[
    str,
    pydantic.BeforeValidator(_version),
    pydantic.WithJsonSchema({"type": "string", "pattern": _VERSION, "maxLength": 32}),
]
_Glob = Annotated[
    str,
    pydantic.BeforeValidator(_glob),
    pydantic.WithJsonSchema({**_TEXT, "pattern": _GLOB, "maxLength": parameters.LONGEST_GLOB}),
]
_Uuid = Annotated[str, Field(pattern=_UUID, max_length=64)]
_Count = Annotated[int, Field(ge=1, le=parameters.MOST_DEVICES)]
_Name = Annotated[str, Field(pattern=_NAME, max_length=253)]
_Profile = Annotated[str, Field(pattern=_PROFILE, max_length=64)]


class _Strict(pydantic.BaseModel):
    """Descriptions say what is allowed: they go into the schema and into messages."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel
    )


class AmountComparison(_Strict):
    """A memory size, and how that of a device compares with it."""

    value: _Amount = Field(description="a quantity; 16G and 16Gi differ")
    operator: _Operator = Field(description=f"one of {_OPERATORS}")


class VersionComparison(_Strict):
    """A version, and how that of a device compares with it."""

    value: _Version = Field(description='one to three numbers in quotes, for example "7.5"')
    operator: _Operator = Field(description=f"one of {_OPERATORS}")


def _globs(of: str) -> Any:
    return Field(
        default=None,
        description=f"{of}: a text in which * stands for any characters and ? for one; capital "
        "and small letters are the same",
    )


_AND = "a list of selectors, all of which have to hold"
_OR = "a list of selectors, one of which has to hold"
_SELECTOR = "an object with exactly one property, or one list: andExpression or orExpression"


class _OneOf(_Strict):
    """A node of a selector: exactly one of its fields."""

    @pydantic.model_validator(mode="after")
    def _has_one(self) -> typing.Self:
        given = [name for name, _ in _given(self)]
        if len(given) == 1:
            return self
        told = " and ".join(given) if given else "nothing"
        raise ValueError(
            f"it has {told}: write {_SELECTOR}"
            + ("; several properties go into an andExpression" if given else "")
        )


class GpuSelector(_OneOf):
    """Which GPUs, or partitions of which GPUs."""

    index: Annotated[int, Field(ge=0, le=4095)] | None = Field(
        default=None, description="a whole number from 0 on, NVML's index of the GPU in its node"
    )
    uuid: _Uuid | None = Field(default=None, description="the UUID of the GPU, GPU-…")
    mig_enabled: bool | None = Field(
        default=None, description="true: a GPU that can be cut into partitions; false: any GPU"
    )
    memory: AmountComparison | None = Field(
        default=None, description="an object with value and operator"
    )
    product_name: _Glob | None = _globs("the name of the product")
    brand: _Glob | None = _globs("the brand")
    architecture: _Glob | None = _globs("the architecture")
    cuda_compute_capability: VersionComparison | None = Field(
        default=None, description="an object with value and operator"
    )
    driver_version: VersionComparison | None = Field(
        default=None, description="an object with value and operator"
    )
    cuda_runtime_version: VersionComparison | None = Field(
        default=None, description="an object with value and operator: CUDA of the NVIDIA driver"
    )
    cuda_driver_version: VersionComparison | None = Field(
        default=None,
        description="an object with value and operator (later name of cudaRuntimeVersion)",
    )
    and_expression: "Annotated[list[GpuSelector], _LIST] | None" = Field(
        default=None, alias="andExpression", description=_AND
    )
    or_expression: "Annotated[list[GpuSelector], _LIST] | None" = Field(
        default=None, alias="orExpression", description=_OR
    )


class VfioSelector(_OneOf):
    """Which GPUs for virtual machines: what is known of one that NVIDIA's driver does not have."""

    uuid: _Uuid | None = Field(
        default=None, description="the UUID of the GPU, GPU-…, or of the device"
    )
    memory: AmountComparison | None = Field(
        default=None, description="an object with value and operator: the memory that is addressed"
    )
    product_name: _Glob | None = _globs("the name of the product")
    vendor_id: _Glob | None = Field(
        default=None, alias="vendorID", description="the PCI vendor, for example 0x10de"
    )
    device_id: _Glob | None = Field(
        default=None, alias="deviceID", description="the PCI device, for example 0x2330"
    )
    and_expression: "Annotated[list[VfioSelector], _LIST] | None" = Field(
        default=None, alias="andExpression", description=_AND
    )
    or_expression: "Annotated[list[VfioSelector], _LIST] | None" = Field(
        default=None, alias="orExpression", description=_OR
    )


_LIST = Field(min_length=1, max_length=parameters.MOST_PARTS)


class _Spec(_Strict):
    count: _Count | None = Field(
        default=None,
        description=f"a whole number from 1 to {parameters.MOST_DEVICES}; 1 if left out",
    )


_SHARING = Field(default=None, description="an object: strategy and its config")


class GpuSpec(_Spec):
    """Whole GPUs."""

    selector: GpuSelector | None = Field(default=None, description=_SELECTOR)
    sharing: Json | None = _SHARING


class MigSpec(_Spec):
    """Partitions of GPUs."""

    profile: _Profile = Field(description="a MIG profile, for example 1g.10gb")
    selector: GpuSelector | None = Field(
        default=None, description=f"the GPU of the partition: {_SELECTOR}"
    )
    sharing: Json | None = _SHARING
    gpu_claim_name: _Name | None = Field(
        default=None, description="the name of another claim of the pod, whose GPU is cut"
    )


class VfioSpec(_Spec):
    """GPUs that are handed to virtual machines."""

    selector: VfioSelector | None = Field(default=None, description=_SELECTOR)


Spec = GpuSpec | MigSpec | VfioSpec

MODELS: Mapping[parameters.Kind, type[Spec]] = {
    parameters.Kind.GPU: GpuSpec,
    parameters.Kind.MIG: MigSpec,
    parameters.Kind.MIG_DEVICE: MigSpec,
    parameters.Kind.VFIO: VfioSpec,
}

_LISTS = ("andExpression", "orExpression")


def read(kind: parameters.Kind, spec: object) -> parameters.Parameters:
    """What the `spec` of an object asks for.

    Raises:
        parameters.Refused: what is wrong with its fields.
    """
    spec = {} if spec is None else spec
    if not isinstance(spec, Mapping):
        raise parameters.Refused([parameter_faults.bad("spec", spec, "write an object")])
    if fault := _too_large(spec.get("selector")) or _too_odd(spec.get("sharing")):
        raise parameters.Refused([fault])
    model = MODELS[kind]
    try:
        wire = model.model_validate(spec)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False)
        told = [parameter_faults.of(model, item) for item in found[: texts.MOST_PROBLEMS]]
        raise parameters.Refused(told, len(found) - len(told)) from error
    return parameters.Parameters(
        kind,
        wire.count or 1,
        _selector(wire.selector) if wire.selector else None,
        profile=wire.profile if isinstance(wire, MigSpec) else None,
        sharing=None if isinstance(wire, VfioSpec) else wire.sharing,
        gpu_claim_name=wire.gpu_claim_name if isinstance(wire, MigSpec) else None,
    )


def _too_large(selector: object) -> parameters.Fault | None:
    """Looked at before anything else is: what comes is of any size and depth."""
    rest, count = [(selector, 0)], 0
    while rest:
        node, level = rest.pop()
        count += 1
        if level > parameters.MOST_LEVELS:
            return parameters.Fault(
                "spec.selector",
                f"spec.selector: lists are nested more than {parameters.MOST_LEVELS} deep: write "
                "fewer levels; a list in a list of the same kind is the same as one list",
            )
        if count > parameters.MOST_SELECTORS:
            return parameters.Fault(
                "spec.selector",
                f"spec.selector: more than {parameters.MOST_SELECTORS} selectors: write fewer, "
                "for example globs in place of single values",
            )
        if isinstance(node, Mapping):
            lists = [node[name] for name in _LISTS if isinstance(node.get(name), list)]
            parts = [part for each in lists for part in each[: parameters.MOST_SELECTORS]]
            rest += [(part, level + 1) for part in parts]
    return None


def _too_odd(shared: object) -> parameters.Fault | None:
    """Sharing is read by others, who read what JSON has; YAML has larger numbers."""
    rest = [shared]
    while rest:
        match rest.pop():
            case Mapping() as entries:
                rest += entries.values()
            case list(items):
                rest += items
            case int(number) if abs(number) >= parameter_faults.LARGE:
                return parameter_faults.bad("spec.sharing", number, "write a smaller one")
    return None


def _given(node: pydantic.BaseModel) -> Iterator[tuple[str, Any]]:
    """The fields that have a value, by their names as written."""
    for name, field in type(node).model_fields.items():
        if (value := getattr(node, name)) is not None:
            yield str(field.alias), value


def _selector(node: GpuSelector | VfioSelector) -> parameters.Selector:
    [(name, value)] = _given(node)
    if name in _LISTS:
        parts = tuple(map(_selector, value))
        return parameters.Joined(any=name == "orExpression", parts=parts)
    if isinstance(value, AmountComparison | VersionComparison):
        return parameters.Property(name, value.value, parameters.Operator(value.operator))
    return parameters.Property(name, value)
