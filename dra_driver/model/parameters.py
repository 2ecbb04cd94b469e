"""Parameter objects of DRA's first API: group `gpu.resource.nvidia.com`, version `v1alpha1`.

Kinds, fields and meaning are those of NVIDIA's driver of that time (2023 to 2024), with the names
that fields had in between beside the last ones, and what was announced and not made: a selector of
the GPU of a partition, GPUs for virtual machines, and the operator `NotEquals`. What is said of
`sharing` is read elsewhere, as a config of today (`logic/parameters/claims`).

How they are written: `parameter_specs`.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import sharing, texts

Json = dict[str, Any]

GROUP = "gpu.resource.nvidia.com"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
MOST_DEVICES = 32
"""Devices of one claim. Source: Kubernetes 1.36 `resource/v1.AllocationResultsMaxSize`."""
MOST_PARTS = 32
"""Selectors in one list."""
MOST_SELECTORS = 256
"""Selectors in one object, lists of them included."""
MOST_LEVELS = 16
"""Lists of selectors in one another."""
LONGEST_GLOB = 128
"""Characters; an attribute has at most 64 bytes."""


class Kind(enum.StrEnum):
    """The kinds. Two mean the same: the one name is of NVIDIA's talks, the longer of its code."""

    GPU = "GpuClaimParameters"
    MIG = "MigClaimParameters"
    MIG_DEVICE = "MigDeviceClaimParameters"
    VFIO = "VfioGpuClaimParameters"

    @property
    def device_type(self) -> sharing.DeviceType:
        """What is asked for."""
        return _TYPES[self]

    @property
    def plural(self) -> str:
        """As in paths of the API."""
        return self.lower()


_TYPES: Mapping[Kind, sharing.DeviceType] = {
    Kind.GPU: sharing.DeviceType.GPU,
    Kind.MIG: sharing.DeviceType.MIG,
    Kind.MIG_DEVICE: sharing.DeviceType.MIG,
    Kind.VFIO: sharing.DeviceType.VFIO,
}


class Operator(enum.StrEnum):
    """How a value of a device is compared with the one that is written."""

    EQUALS = "Equals"
    NOT_EQUALS = "NotEquals"
    LESS_THAN = "LessThan"
    LESS_THAN_OR_EQUAL_TO = "LessThanOrEqualTo"
    GREATER_THAN = "GreaterThan"
    GREATER_THAN_OR_EQUAL_TO = "GreaterThanOrEqualTo"

    @property
    def symbol(self) -> str:
        """As in CEL."""
        return _SYMBOLS[self]


_SYMBOLS: Mapping[Operator, str] = {
    Operator.EQUALS: "==",
    Operator.NOT_EQUALS: "!=",
    Operator.LESS_THAN: "<",
    Operator.LESS_THAN_OR_EQUAL_TO: "<=",
    Operator.GREATER_THAN: ">",
    Operator.GREATER_THAN_OR_EQUAL_TO: ">=",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """One property that a device has to have; `name` and `value` as they were written.

    `operator` is there where values are compared; else a text is a glob, but for a UUID.
    """

    name: str
    value: str | int | bool
    operator: Operator | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """Several selectors, of which all have to hold, or one (`any`)."""

    any: bool
    parts: "tuple[Selector, ...]"


Selector = Property | Joined


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """What an object asks for. `sharing` is as it was written; `profile` is of partitions only."""

    kind: Kind
    count: int = 1
    selector: Selector | None = None
    profile: str | None = None
    sharing: Json | None = None
    gpu_claim_name: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field; `message` names it too, with its value and what is allowed."""

    field: str
    message: str

    def __str__(self) -> str:
        """As in messages."""
        return self.message


class Refused(errors.Rejected):
    """Parameters that cannot be read: at most `texts.MOST_PROBLEMS` faults, and how many more."""

    def __init__(self, faults: Sequence[Fault], left_out: int = 0) -> None:
        """The text is `<fault>; <fault>; and 2 more problems`."""
        self.faults = tuple(faults[: texts.MOST_PROBLEMS])
        self.left_out = left_out + len(faults) - len(self.faults)
        super().__init__(texts.joined(tuple(map(str, self.faults)), more=self.left_out))
