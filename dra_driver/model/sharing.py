"""How devices of a claim are set up: time slices, MPS, hand-over to a virtual machine.

These are configs after defaults and validation; `configs.py` has what users write.
"""

import dataclasses
import enum
from collections.abc import Mapping

MEBIBYTE = 2**20
"""The unit in which MPS is told of memory limits."""


class DeviceType(enum.StrEnum):
    """What a device is: its attribute `type`."""

    GPU = "gpu"
    MIG = "mig"
    VFIO = "vfio"


class Kind(enum.StrEnum):
    """The kinds of config."""

    GPU = "GpuConfig"
    MIG = "MigDeviceConfig"
    VFIO = "VfioDeviceConfig"

    @property
    def device_type(self) -> DeviceType:
        """The only type of device that it can be applied to."""
        return DeviceType[self.name]

    @classmethod
    def of(cls, device_type: DeviceType) -> "Kind":
        """The only kind that can be applied to a type of device."""
        return cls[device_type.name]


class Interval(enum.StrEnum):
    """How long a process runs before the GPU goes to the next one."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"

    @property
    def number(self) -> int:
        """As in `nvidia-smi compute-policy --set-timeslice`: 0 to 3."""
        return list(Interval).index(self)


class Domain(enum.StrEnum):
    """Who shares an MPS daemon, and so runs concurrently and is hit by each other's faults."""

    CLAIM = "Claim"
    NAMESPACE = "Namespace"


class BackendPolicy(enum.StrEnum):
    """Which interface of the kernel a device is handed to a virtual machine through."""

    LEGACY_ONLY = "LegacyOnly"
    PREFER_IOMMU_FD = "PreferIommuFD"


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSlicing:
    """Processes take turns; nothing is limited."""

    interval: Interval = Interval.DEFAULT


@dataclasses.dataclass(frozen=True, slots=True)
class Mps:
    """Processes run at once, through a daemon that holds their limits.

    `thread_percentage` is for each process, 1 to 100; None limits nothing. Memory limits are bytes
    in whole MiB, promised to the claim for each device, and shared out evenly among `max_clients`
    processes. The keys of `per_device`, UUIDs or indices into the sorted UUIDs of the devices that
    one config is applied to, override `memory_limit`.
    """

    thread_percentage: int | None = None
    memory_limit: int | None = None
    per_device: Mapping[str, int] = dataclasses.field(default_factory=dict)
    multi_user: bool = False
    max_clients: int = 1
    domain: Domain = Domain.CLAIM

    def client_limit(self, promised: int) -> int:
        """What each process gets of a promised number of bytes: bytes in whole MiB."""
        return promised // self.max_clients // MEBIBYTE * MEBIBYTE


@dataclasses.dataclass(frozen=True, slots=True)
class Vfio:
    """A GPU for a virtual machine; with `api_device` the container gets /dev/iommu or its like."""

    backend_policy: BackendPolicy = BackendPolicy.LEGACY_ONLY
    api_device: bool = False


Settings = TimeSlicing | Mps | Vfio


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """One config. Without `settings` nothing is set up: the device as it is."""

    kind: Kind
    settings: Settings | None = None
