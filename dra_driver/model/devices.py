"""GPUs as NVML and sysfs describe them, and what the driver calls them."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import NewType

from dra_driver.model import mig

GpuUuid = NewType("GpuUuid", str)
"""`GPU-` and a lower-case UUID, as NVML gives it."""

PciAddress = NewType("PciAddress", str)
"""Lower-case `dddd:bb:dd.f`, as in `/sys/bus/pci/devices`."""


class Virtualization(enum.IntEnum):
    """What a GPU is to a hypervisor (nvml.h, `nvmlGpuVirtualizationMode_t`)."""

    NONE = 0
    """Nothing: the node is a machine."""
    PASSTHROUGH = 1
    """Handed to this virtual machine as a whole: it works as on a machine."""
    VGPU = 2
    """This virtual machine has a part of it, which the hypervisor has cut."""
    HOST_VGPU = 3
    """The node is a hypervisor, and the GPU is for vGPUs of its virtual machines."""
    HOST_VSGA = 4
    """Likewise, for shared graphics."""


class VfioMode(enum.StrEnum):
    """Whether a GPU is handed to virtual machines."""

    OFF = "off"
    ON = "on"
    """Also: whoever comes first has it, whole, in parts or as a VFIO device."""
    ONLY = "only"


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU, or what a virtual machine has of one.

    A fact that could not be read is None; nothing is guessed.

    `architecture` and `brand` are the peer's texts (go-nvlib's names of the NVML enums).
    `cuda_driver_version` is (major, minor); `driver_version` is the text as NVML gives it.
    `minor` and `index` are those of this moment: only the UUID stays with a card. Both are -1 of a
    GPU that NVML has not told of, as another driver has it.
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
    numa_near: tuple[int, ...] = ()
    """Other NUMA nodes of the same socket that are nearest to it, by the kernel's distances."""
    mig_capable: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    """The mode after the next reset of the GPU; other than `mig_enabled`, it is stuck half way."""
    virtualization: Virtualization | None = None
    persistence_mode: bool | None = None
    """Whether the kernel's driver keeps the GPU initialised that nobody has open."""
    compute_mode: int | None = None
    """As `adapters.nvml_compute.ComputeMode` numbers it."""
    time_slices: bool | None = None
    """Whether its time slice can be set, where the driver was asked."""
    profiles: tuple[mig.Profile, ...] = ()
    """What it can be cut into, by NVML's index; empty where NVML does not tell."""
    instances: tuple[mig.Instance, ...] = ()
    """What it is cut into now, by GPU instance id."""
    device: str = ""
    """The device name that is remembered for it; empty until it has one."""
    module_id: int | None = None
    """Its number on a baseboard with NVSwitches; None where it is on none (NVML tells 0)."""
    fabric: tuple[tuple[int, int], ...] | None = None
    """The partitions of the NVLink fabric that it is in: (GPUs of the partition, its id).

    None where Fabric Manager is not asked; empty before it has answered.
    """

    @property
    def name(self) -> str:
        """Its device name; without one, that which it is given first if nobody else has it.

        Where NVML has not told of it, that of its place stands for it.
        """
        return self.device or (gpu_device_name(self.minor) if self.minor >= 0 else self.uuid)

    @property
    def locks(self) -> frozenset[str]:
        """What is locked by whoever changes it.

        An instance of an older driver, in a rolling update, knows it by its minor number alone.
        """
        own = {self.name}
        return frozenset(own if self.minor < 0 else own | {gpu_device_name(self.minor)})


@dataclasses.dataclass(frozen=True, slots=True)
class Passthrough:
    """A GPU as a virtual machine is given it: a PCI function, and what goes along.

    `companions` are the other functions of the card in its IOMMU `group` (audio, USB, UCSI).
    `product` is what the PCI id database calls it, `memory_bytes` the size of its memory BARs,
    `iommufd` whether the host has `/dev/iommu`. `is_found`: somebody else has bound it to a VFIO
    driver, and it stays so.
    """

    address: PciAddress
    vendor: int
    model: int
    group: int
    modalias: str
    companions: tuple[PciAddress, ...] = ()
    product: str | None = None
    memory_bytes: int = 0
    iommufd: bool = False
    is_found: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """Where a card sits, what the bus tells of it there, and in which boot of the node."""

    address: PciAddress
    vendor: int
    model: int
    boot_id: str

    def is_of_same(self, other: "Site") -> bool:
        """Whether a card of the same kind is in the same place, in whatever boot."""
        return (self.address, self.vendor, self.model) == (
            other.address,
            other.vendor,
            other.model,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a device name of a node stands for.

    A whole GPU has neither `profile` nor `spot`. A partition has both; where it is an instance
    that exists and that this driver neither makes nor destroys, it has that `instance` too.
    With `vfio` it is a whole GPU for a virtual machine.
    """

    gpu: Gpu
    profile: mig.Profile | None = None
    spot: mig.Spot | None = None
    instance: mig.Instance | None = None
    vfio: Passthrough | None = None

    @property
    def card(self) -> str:
        """The name of the whole GPU: what partitions have in common."""
        return self.gpu.name


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """What a container is given: a whole GPU, or an instance of it with the profile's name."""

    gpu: Gpu
    instance: mig.Instance | None = None
    profile: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFailure:
    """A GPU that NVML lists and that cannot be used. What could still be read of it is filled.

    The `index` is -1 where it is not NVML that tells of it.

    `missing` are facts that NVML never tells of it, though nobody can use it without them; where
    there are none, it did not answer. `is_lost`: it has fallen off the bus, as NVML says. Any other
    failure to answer may pass.
    """

    index: int
    uuid: GpuUuid | None
    pci_address: PciAddress | None
    reason: str
    missing: tuple[str, ...] = ()
    is_lost: bool = False

    def __str__(self) -> str:
        """As in messages: which GPU, and why."""
        if self.index < 0:
            return (
                f"the GPU at {self.pci_address}: {self.reason}" if self.pci_address else self.reason
            )
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
    """The GPUs of a node by minor number, and those that failed by NVML index.

    `sites` tells where GPUs sit, by their UUID, or by what stands for it of those that NVML has
    never told of (`pci.unseen_gpu`).
    """

    gpus: tuple[Gpu, ...]
    failures: tuple[GpuFailure, ...] = ()
    answers: Mapping[GpuUuid, Answers] = dataclasses.field(default_factory=dict, compare=False)
    """What each GPU was asked."""
    sites: Mapping[GpuUuid, Site] = dataclasses.field(default_factory=dict, hash=False)


def gpu_device_name(number: int) -> str:
    """The device name of a whole GPU, in the peer's form: `gpu-0`.

    The peer's number is the minor number of the GPU's node. Here it is that which the GPU had when
    it was seen first, and stays with it; see `logic.naming`.
    """
    return f"gpu-{number}"


def vfio_device_name(card: str) -> str:
    """The device name of a GPU for virtual machines: `gpu-vfio-0` of `gpu-0`.

    The peer's number is the position in a scan of the bus; here it is that of the card.
    """
    return f"gpu-vfio-{card.removeprefix('gpu-')}"


def is_vfio(name: str) -> bool:
    """Whether a device is a GPU for virtual machines, by its name."""
    return _VFIO_NAME.fullmatch(name) is not None


def number_of(card: str) -> int | None:
    """The number in the name of a whole GPU; None where it is no such name."""
    match = _GPU_NAME.fullmatch(card)
    return int(match["number"]) if match else None


def by_number(card: str) -> tuple[int, str]:
    """The order of whole GPUs by their names."""
    number = number_of(card)
    return (-1 if number is None else number, card)


def mig_device_name(card: str, profile_name: str, spot: mig.Spot) -> str:
    """The device name of a partition, as the peer has it: `gpu-0-mig-1g5gb-19-0`.

    Name of the whole GPU, profile (as far as DNS allows), the profile's id, first memory slice.
    """
    text = _NOT_IN_DNS.sub("-", profile_name.lower().replace(".", "")).strip("-")
    return f"{card}-mig-{text}-{spot.profile_id}-{spot.placement.start}"


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedName:
    """What the name of a partition says. `card` is the name of the whole GPU."""

    card: str
    profile_id: int
    start: int


def parse_mig_device_name(name: str) -> ParsedName | None:
    """What `mig_device_name` put into a name; None where it is no partition's."""
    match = _MIG_NAME.fullmatch(name)
    return match and ParsedName(match["card"], int(match["profile"]), int(match["start"]))


def card_of(name: str) -> str:
    """The name of the whole GPU that a device is, or is part of."""
    if vfio := _VFIO_NAME.fullmatch(name):
        return gpu_device_name(int(vfio["number"]))
    parsed = parse_mig_device_name(name)
    return parsed.card if parsed else name


_NOT_IN_DNS = re.compile(r"[^0-9a-z]+")
_GPU_NAME = re.compile(r"gpu-(?P<number>0|[1-9]\d*)")
_VFIO_NAME = re.compile(r"gpu-vfio-(?P<number>0|[1-9]\d*)")
_MIG_NAME = re.compile(r"(?P<card>gpu-\d+)-mig-.+-(?P<profile>\d+)-(?P<start>\d+)")
