"""GPUs as NVML and sysfs describe them, and what the driver calls them."""

import dataclasses
from typing import NewType

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


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFailure:
    """A GPU that NVML lists and that did not answer. What could still be read of it is filled."""

    index: int
    uuid: GpuUuid | None
    pci_address: PciAddress | None
    reason: str

    def __str__(self) -> str:
        """As in messages: which GPU, and why."""
        names = ", ".join(text for text in (self.uuid, self.pci_address) if text is not None)
        return f"GPU {self.index}{f' ({names})' if names else ''}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class Discovery:
    """The GPUs of a node by minor number, and those that failed by NVML index."""

    gpus: tuple[Gpu, ...]
    failures: tuple[GpuFailure, ...] = ()


def gpu_device_name(minor: int) -> str:
    """The device name of a whole GPU: the peer's, keyed by the minor number of its node."""
    return f"gpu-{minor}"
