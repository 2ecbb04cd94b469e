"""Multi-Instance GPU: the nouns of NVML, with its numbers.

Memory slices are NVML's unit of place: a GPU has 8 of them (4 on an A30), and `3g` takes 4.
"""

import dataclasses
import enum
from typing import NewType

MigUuid = NewType("MigUuid", str)
"""`MIG-` and a lower-case UUID, as NVML gives it."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Placement:
    """Where an instance sits, in memory slices."""

    start: int
    size: int

    def overlaps(self, other: "Placement") -> bool:
        """Whether both take a memory slice in common."""
        return self.start < other.start + other.size and other.start < self.start + self.size

    def __str__(self) -> str:
        """As nvidia-smi writes it."""
        return f"{self.start}:{self.size}"


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """A GPU instance profile of one GPU, as NVML describes it.

    `index` is what NVML's query takes, `id` what it takes to create an instance. `name` has no
    `MIG ` in front: `3g.40gb`. `slices` counts compute slices (the number in the name);
    `instances` is how many of them a GPU may have at most.
    """

    index: int
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    placements: tuple[Placement, ...]
    """In NVML's order."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A profile at a place: what a partition is before, while and after it exists."""

    profile_id: int
    placement: Placement


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Instance:
    """A GPU instance that exists.

    `ci` and `uuid` are those of the compute instance that spans it; None where it has none, or is
    cut into several.
    """

    gi: int
    spot: Spot
    ci: int | None = None
    uuid: MigUuid | None = None


class Mode(enum.StrEnum):
    """What this driver does with the MIG of a GPU.

    DYNAMIC: instances are made for claims. STATIC: those that an administrator made are used and
    left alone. OFF: GPUs are handed out whole, or not at all.
    """

    DYNAMIC = "dynamic"
    STATIC = "static"
    OFF = "off"
