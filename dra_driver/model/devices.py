"""GPUs as NVML and sysfs describe them, and what the driver calls them."""

import dataclasses
import re
from collections.abc import Mapping
from typing import NewType

from dra_driver.model import mig

GpuUuid = NewType("GpuUuid", str)
"""`GPU-` and a lower-case UUID, as NVML gives it."""

PciAddress = NewType("PciAddress", str)
"""Lower-case `dddd:bb:dd.f`, as in `/sys/bus/pci/devices`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU. A fact that could not be read is None; nothing is guessed.

    `architecture` and `brand` are the peer's texts (go-nvlib's names of the NVML enums).
    `cuda_driver_version` is (major, minor); `driver_version` is the text as NVML gives it.
    """

    index: int
    minor: int
    uuid: GpuUuid
    product_name: str
    pci_address: PciAddress
    brand: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    driver_version: str | None = None
    cuda_driver_version: tuple[int, int] | None = None
    addressing_mode: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    mig_capable: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    """The mode after the next reset of the GPU; other than `mig_enabled`, it is stuck half way."""
    profiles: tuple[mig.Profile, ...] = ()
    """What it can be cut into, by NVML's index; empty where NVML does not tell."""
    instances: tuple[mig.Instance, ...] = ()
    """What it is cut into now, by GPU instance id."""


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a device name of a node stands for.

    A whole GPU has neither `profile` nor `spot`. A partition has both; where it is an instance
    that exists and that this driver neither makes nor destroys, it has that `instance` too.
    """

    gpu: Gpu
    profile: mig.Profile | None = None
    spot: mig.Spot | None = None
    instance: mig.Instance | None = None

    @property
    def card(self) -> str:
        """The name of the whole GPU: what is locked, and what partitions have in common."""
        return gpu_device_name(self.gpu.minor)


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """What a container is given: a whole GPU, or an instance of it with the profile's name."""

    gpu: Gpu
    instance: mig.Instance | None = None
    profile: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFailure:
    """A GPU that NVML lists and that did not answer. What could still be read of it is filled.

    `is_lost`: it has fallen off the bus, as NVML says. Any other failure may pass.
    """

    index: int
    uuid: GpuUuid | None
    pci_address: PciAddress | None
    reason: str
    is_lost: bool = False

    def __str__(self) -> str:
        """As in messages: which GPU, and why."""
        names = ", ".join(text for text in (self.uuid, self.pci_address) if text is not None)
        return f"GPU {self.index}{f' ({names})' if names else ''}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a question about a GPU has no answer.

    `is_odd`: not because there is no such fact, so that the next time there may be one.
    """

    reason: str
    is_odd: bool


Answers = Mapping[str, NoAnswer | None]
"""The questions that were asked about a GPU; None where each time there was an answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Discovery:
    """The GPUs of a node by minor number, and those that failed by NVML index."""

    gpus: tuple[Gpu, ...]
    failures: tuple[GpuFailure, ...] = ()
    answers: Mapping[GpuUuid, Answers] = dataclasses.field(default_factory=dict, compare=False)
    """What each GPU was asked."""


def gpu_device_name(minor: int) -> str:
    """The device name of a whole GPU: the peer's, keyed by the minor number of its node."""
    return f"gpu-{minor}"


def mig_device_name(minor: int, profile_name: str, spot: mig.Spot) -> str:
    """The device name of a partition, as the peer has it: `gpu-0-mig-1g5gb-19-0`.

    Minor number, profile (its name as far as DNS allows), the profile's id, first memory slice.
    """
    text = _NOT_IN_DNS.sub("-", profile_name.lower().replace(".", "")).strip("-")
    return f"{gpu_device_name(minor)}-mig-{text}-{spot.profile_id}-{spot.placement.start}"


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedName:
    """What the name of a partition says."""

    minor: int
    profile_id: int
    start: int


def parse_mig_device_name(name: str) -> ParsedName | None:
    """What `mig_device_name` put into a name; None where it is no partition's."""
    match = _MIG_NAME.fullmatch(name)
    return match and ParsedName(*(int(match[part]) for part in ("minor", "profile", "start")))


def card_of(name: str) -> str:
    """The name of the whole GPU that a device is, or is part of."""
    parsed = parse_mig_device_name(name)
    return gpu_device_name(parsed.minor) if parsed else name


_NOT_IN_DNS = re.compile(r"[^0-9a-z]+")
_MIG_NAME = re.compile(r"gpu-(?P<minor>\d+)-mig-.+-(?P<profile>\d+)-(?P<start>\d+)")
