"""Simulated GPUs behind the functions of `pynvml`: same names, parameters, answers and errors.

What this class has no function for, it does not pretend to have. Behaviour beyond NVML's
documentation is what a real H100 with driver 580.159.04 did when it was asked.
"""

# ruff: noqa: N802, N803, N815 - the names are those of pynvml

import dataclasses
import importlib.resources
import pathlib
import threading
import types

from dra_driver import errors
from dra_driver.sim import gpu_errors, gpu_faults, gpu_models, gpu_state, gpu_sysfs

NVIDIA_SMI = pathlib.Path(str(importlib.resources.files("dra_driver.sim") / "nvidia-smi"))
"""The stand-in for `nvidia-smi` that is mounted into containers with simulated GPUs."""

_MEMORY_V2 = 0x02000028


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """What NVML calls a device handle: opaque, and void once NVML was closed."""

    session: int
    uuid: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Device:
    """A GPU that answers: its state, and the facts of its model."""

    state: gpu_state.Gpu
    model: gpu_models.Model


class SimulatedNvml(gpu_errors.Names):
    """Stands in for the module `pynvml`. State and faults are files in `state_dir`.

    Args:
        state_dir: where the GPUs of this node are kept; made if it is not there.
        spec: which GPUs the node has, see `gpu_state.parse_spec`. None takes those that are there.
        node: the node's name; GPUs of different nodes have different UUIDs.

    Raises:
        errors.Rejected: the spec is wrong.
        errors.Fatal: the state on disk cannot be read.
    """

    NVML_FEATURE_DISABLED = 0
    NVML_FEATURE_ENABLED = 1
    NVML_INIT_FLAG_NO_GPUS = 1
    NVML_DEVICE_MIG_DISABLE = 0
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_COMPUTEMODE_DEFAULT = 0
    NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1
    NVML_COMPUTEMODE_PROHIBITED = 2
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
    nvmlMemory_v2 = _MEMORY_V2

    def __init__(
        self, state_dir: pathlib.Path, *, spec: str | None = None, node: str = "node"
    ) -> None:
        if spec is not None:
            gpu_state.install(state_dir, gpu_state.parse_spec(spec), node=node)
        self._state_dir = state_dir
        self._state = gpu_state.open_file(state_dir)
        self._faults = gpu_faults.FaultFile(state_dir)
        self._state.read()
        self._lock = threading.Lock()
        self._opened = 0
        self._session = 0
        self._attached: tuple[str, ...] = ()

    def write_sysfs(self) -> pathlib.Path:
        """Write a `/sys` that fits these GPUs, and return its path."""
        return gpu_sysfs.write(self._state_dir, self._state.read())

    def nvmlInit(self) -> None:
        self.nvmlInitWithFlags(0)

    def nvmlInitWithFlags(self, flags: int) -> None:
        """Open NVML. Which GPUs there are is looked up now, and not again until it is closed."""
        self._meet_fault("nvmlInitWithFlags")
        with self._lock:
            if not self._opened:
                present = self._present()
                if not present and not flags & self.NVML_INIT_FLAG_NO_GPUS:
                    raise self._error("GPU_NOT_FOUND")
                self._attached = present
                self._session += 1
            self._opened += 1

    def nvmlShutdown(self) -> None:
        self._enter("nvmlShutdown")
        with self._lock:
            self._opened = max(self._opened - 1, 0)

    def nvmlErrorString(self, result: int) -> str:
        return gpu_errors.text(result)

    def nvmlSystemGetDriverVersion(self) -> str:
        self._enter("nvmlSystemGetDriverVersion")
        return self._state.read().driver_version

    def nvmlSystemGetNVMLVersion(self) -> str:
        self._enter("nvmlSystemGetNVMLVersion")
        return self._state.read().nvml_version

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        self._enter("nvmlSystemGetCudaDriverVersion")
        return self._state.read().cuda_driver_version

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._enter("nvmlSystemGetCudaDriverVersion_v2")
        return self._state.read().cuda_driver_version

    def nvmlDeviceGetCount(self) -> int:
        self._enter("nvmlDeviceGetCount")
        return len(self._attached)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:
        self._enter("nvmlDeviceGetHandleByIndex")
        if not 0 <= index < len(self._attached):
            raise self._error("INVALID_ARGUMENT")
        return self._handle("nvmlDeviceGetHandleByIndex", self._attached[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> Handle:
        """The GPU with this UUID; NVML takes it without `GPU-` too, and minds upper case."""
        self._enter("nvmlDeviceGetHandleByUUID")
        text = f"GPU-{_text(uuid).removeprefix('GPU-')}"
        if text not in self._attached:
            raise self._error("NOT_FOUND")
        return self._handle("nvmlDeviceGetHandleByUUID", text)

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str | bytes) -> Handle:
        """The GPU at this address: four or eight digits of domain, any case, function optional."""
        self._enter("nvmlDeviceGetHandleByPciBusId")
        domain, colon, rest = _text(pciBusId).lower().partition(":")
        if not colon:
            raise self._error("INVALID_ARGUMENT")
        address = f"{domain[-4:]}:{rest}" + ("" if "." in rest else ".0")
        for gpu in self._state.read().gpus:
            if gpu.pci_address == address and gpu.uuid in self._attached:
                return self._handle("nvmlDeviceGetHandleByPciBusId", gpu.uuid)
        raise self._error("NOT_FOUND")

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        return self._device("nvmlDeviceGetName", handle).model.product_name

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        return self._device("nvmlDeviceGetUUID", handle).state.uuid

    def nvmlDeviceGetSerial(self, handle: Handle) -> str:
        return self._device("nvmlDeviceGetSerial", handle).state.serial

    def nvmlDeviceGetIndex(self, handle: Handle) -> int:
        return self._attached.index(self._device("nvmlDeviceGetIndex", handle).state.uuid)

    def nvmlDeviceGetMinorNumber(self, handle: Handle) -> int:
        return self._device("nvmlDeviceGetMinorNumber", handle).state.minor

    def nvmlDeviceGetBrand(self, handle: Handle) -> int:
        return self._device("nvmlDeviceGetBrand", handle).model.brand

    def nvmlDeviceGetArchitecture(self, device: Handle) -> int:
        return self._device("nvmlDeviceGetArchitecture", device).model.architecture

    def nvmlDeviceGetCudaComputeCapability(self, handle: Handle) -> tuple[int, int]:
        return self._device("nvmlDeviceGetCudaComputeCapability", handle).model.compute_capability

    def nvmlDeviceGetAddressingMode(self, device: Handle) -> int:
        return self._device("nvmlDeviceGetAddressingMode", device).model.addressing_mode

    def nvmlDeviceGetNumGpuCores(self, device: Handle) -> int:
        return self._device("nvmlDeviceGetNumGpuCores", device).model.cores

    def nvmlDeviceGetMemoryBusWidth(self, device: Handle) -> int:
        return self._device("nvmlDeviceGetMemoryBusWidth", device).model.memory_bus_width

    def nvmlDeviceGetPciInfo(self, handle: Handle) -> types.SimpleNamespace:
        device = self._device("nvmlDeviceGetPciInfo", handle)
        address = device.state.pci_address
        domain, bus, slot = address.partition(".")[0].split(":")
        return types.SimpleNamespace(
            busIdLegacy=address.upper(),
            domain=int(domain, 16),
            bus=int(bus, 16),
            device=int(slot, 16),
            pciDeviceId=device.model.pci_device_id,
            pciSubSystemId=device.model.pci_subsystem_id or 0,
            busId=f"0000{address}".upper(),
        )

    def nvmlDeviceGetMemoryInfo(
        self, handle: Handle, version: int | None = None
    ) -> types.SimpleNamespace:
        """Memory in bytes. Only the second version tells what the driver keeps for itself."""
        device = self._device("nvmlDeviceGetMemoryInfo", handle)
        total, reserved = device.model.memory_bytes, device.model.memory_reserved_bytes or 0
        used = sum(process.used_memory_bytes for process in device.state.processes)
        free = total - reserved - used
        if not version:
            return types.SimpleNamespace(total=total, free=free, used=reserved + used)
        if version != _MEMORY_V2:
            raise self._error("FUNCTION_NOT_FOUND")
        return types.SimpleNamespace(
            version=version, total=total, reserved=reserved, free=free, used=used
        )

    def nvmlDeviceGetMigMode(self, device: Handle) -> list[int]:
        """Current and pending mode."""
        found = self._device("nvmlDeviceGetMigMode", device)
        if not found.model.mig_capable:
            raise self._error("NOT_SUPPORTED")
        return [int(found.state.mig_enabled), int(found.state.mig_pending)]

    def nvmlDeviceGetComputeMode(self, handle: Handle) -> int:
        return self._device("nvmlDeviceGetComputeMode", handle).state.compute_mode

    def nvmlDeviceSetComputeMode(self, handle: Handle, mode: int) -> None:
        device = self._device("nvmlDeviceSetComputeMode", handle)
        if mode == self.NVML_COMPUTEMODE_EXCLUSIVE_THREAD:
            raise self._error("NOT_SUPPORTED")
        if not 0 <= mode <= self.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
            raise self._error("INVALID_ARGUMENT")
        with self._state.edit() as state:
            _gpu(state, device.state.uuid).compute_mode = mode

    def nvmlDeviceGetPersistenceMode(self, handle: Handle) -> int:
        return int(self._device("nvmlDeviceGetPersistenceMode", handle).state.persistence_mode)

    def nvmlDeviceSetPersistenceMode(self, handle: Handle, mode: int) -> None:
        device = self._device("nvmlDeviceSetPersistenceMode", handle)
        if mode not in {self.NVML_FEATURE_DISABLED, self.NVML_FEATURE_ENABLED}:
            raise self._error("INVALID_ARGUMENT")
        with self._state.edit() as state:
            _gpu(state, device.state.uuid).persistence_mode = bool(mode)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> list[types.SimpleNamespace]:
        device = self._device("nvmlDeviceGetComputeRunningProcesses", handle)
        return [
            types.SimpleNamespace(
                pid=process.pid,
                usedGpuMemory=process.used_memory_bytes,
                gpuInstanceId=_instance_id(process.gpu_instance_id),
                computeInstanceId=_instance_id(process.compute_instance_id),
            )
            for process in device.state.processes
        ]

    def _present(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs that are on the bus, in its order, which is that of the index."""
        absent = self._faults.read().absent
        gpus = sorted(self._state.read().gpus, key=lambda gpu: gpu.pci_address)
        return tuple(gpu.uuid for gpu in gpus if gpu.uuid not in absent)

    def _enter(self, function: str) -> None:
        if not self._opened:
            raise self._error("UNINITIALIZED")
        self._meet_fault(function)

    def _meet_fault(self, function: str, uuid: str | None = None) -> None:
        for fault in self._faults.read().failing:
            if fault.function is not None and not hasattr(self, fault.function):
                raise errors.Fatal(
                    f"fault for {fault.function!r}: simulated GPUs have no such function, "
                    "so it would never happen; correct the name"
                )
        error = self._faults.take(function, uuid)
        if error is not None:
            raise self.NVMLError(error)

    def _handle(self, function: str, uuid: str) -> Handle:
        handle = Handle(self._session, uuid)
        self._device(function, handle)
        return handle

    def _device(self, function: str, handle: Handle) -> _Device:
        """The GPU behind a handle, unless a fault comes first."""
        if not self._opened:
            raise self._error("UNINITIALIZED")
        if not isinstance(handle, Handle) or handle.session != self._session:
            raise self._error("INVALID_ARGUMENT")
        self._meet_fault(function, handle.uuid)
        if handle.uuid not in self._present():
            raise self._error("GPU_IS_LOST")
        state = _gpu(self._state.read(), handle.uuid)
        return _Device(state, gpu_models.load(state.model))

    def _error(self, name: str) -> gpu_errors.NVMLError:
        return self.NVMLError(gpu_errors.CODES[f"NVML_ERROR_{name}"])


def _gpu(state: gpu_state.Node, uuid: str) -> gpu_state.Gpu:
    return next(gpu for gpu in state.gpus if gpu.uuid == uuid)


def _instance_id(value: int | None) -> int:
    """NVML's mark for "no instance" is the largest 32-bit number."""
    return 0xFFFFFFFF if value is None else value


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
