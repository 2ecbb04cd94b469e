"""PCI functions as the kernel describes them, and which of them make a card."""

import dataclasses
import uuid
from collections.abc import Mapping

from dra_driver.model import devices

NVIDIA = 0x10DE
"""The vendor of NVIDIA's functions."""
DISPLAY = 0x03
BRIDGE = 0x06
"""Base classes (PCI Code and ID Assignment Specification): of GPUs, and of what is above them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A PCI function. `kind` is its class code, 24 bits.

    `driver` is the kernel's driver that it is bound to, None without one. `group` is its IOMMU
    group, None where the IOMMU is off. `memory_bytes` are those of its memory BARs. `physical` is,
    of a virtual function, the function that it is one of; `virtual_functions` are how many of its
    own are on. `cdev` is its name in `/dev/vfio/devices`, once a VFIO driver has it and the kernel
    has IOMMUFD.
    """

    address: devices.PciAddress
    vendor: int
    device: int
    kind: int
    modalias: str
    driver: str | None = None
    group: int | None = None
    memory_bytes: int = 0
    numa_node: int | None = None
    pcie_root: str | None = None
    physical: devices.PciAddress | None = None
    virtual_functions: int = 0
    cdev: str | None = None
    product: str | None = None
    """What the PCI id database calls it."""

    @property
    def base_class(self) -> int:
        """What kind of thing it is."""
        return self.kind >> 16

    @property
    def is_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU, or a virtual function of one."""
        return self.vendor == NVIDIA and self.base_class == DISPLAY

    @property
    def slot(self) -> str:
        """What functions of one card have in common: `0000:41:00`."""
        return self.address.rpartition(".")[0]

    def __str__(self) -> str:
        """As in messages: `0000:41:00.1 (10de:1aef, snd_hda_intel)`."""
        return f"{self.address} ({self.vendor:04x}:{self.device:04x}, {self.driver or 'no driver'})"


@dataclasses.dataclass(frozen=True, slots=True)
class Bus:
    """NVIDIA's GPUs on the PCI bus, and whatever shares an IOMMU group with one, by address.

    `has_iommu`: the kernel has IOMMU groups; `has_iommufd`: it has `/dev/iommu`.
    """

    functions: Mapping[devices.PciAddress, Function] = dataclasses.field(default_factory=dict)
    has_iommu: bool = False
    has_iommufd: bool = False

    @property
    def gpus(self) -> tuple[Function, ...]:
        """The GPUs, by address."""
        return tuple(one for _, one in sorted(self.functions.items()) if one.is_gpu)

    def members(self, group: int) -> tuple[Function, ...]:
        """What is in an IOMMU group, by address."""
        return tuple(one for _, one in sorted(self.functions.items()) if one.group == group)


def uuid_of(address: str) -> str:
    """The peer's `uuid` of a VFIO device: UUIDv5 of the address in the namespace of DNS."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, address))


_UNSEEN = "PCI-"


def unseen_gpu(address: devices.PciAddress, vendor: int, model: int) -> devices.GpuUuid:
    """What stands for the UUID of a GPU that NVML has never told of: its place, and its kind."""
    return devices.GpuUuid(f"{_UNSEEN}{uuid_of(f'{address} {vendor:04x}:{model:04x}')}")


def is_unseen(gpu: str) -> bool:
    """Whether this stands for a GPU whose UUID nobody knows."""
    return gpu.startswith(_UNSEEN)
