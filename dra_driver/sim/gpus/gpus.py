"""Simulated GPUs behind the functions of `pynvml`: same names, parameters, answers and errors.

What this class has no function for, it does not pretend to have. Behaviour beyond NVML's
documentation is what a real H100 with driver 580.159.04 did when it was asked.
"""

# ruff: noqa: N802, N803, N815 - the names are those of pynvml

import ctypes
import importlib.resources
import pathlib
import types
from typing import Any

from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_events,
    gpu_health,
    gpu_mig_devices,
    gpu_mig_rules,
    gpu_mig_types,
    gpu_session,
    gpu_state,
    gpu_sysfs,
)

NVIDIA_SMI = pathlib.Path(str(importlib.resources.files("dra_driver.sim.gpus") / "nvidia-smi"))
"""The stand-in for `nvidia-smi` that is mounted into containers with simulated GPUs."""

_MEMORY_V2 = 0x02000028


class SimulatedNvml(
    gpu_mig_devices.MigDevices, gpu_health.HealthFunctions, gpu_events.EventFunctions
):
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
    NVML_COMPUTEMODE_DEFAULT = 0
    NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1
    NVML_COMPUTEMODE_PROHIBITED = 2
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
    NVML_GPU_VIRTUALIZATION_MODE_NONE = 0
    NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH = 1
    nvmlMemory_v2 = _MEMORY_V2

    def write_sysfs(self) -> pathlib.Path:
        """Write a `/sys` that fits these GPUs, and return its path."""
        return gpu_sysfs.write(self._state_dir, self._state.read())

    def present(self) -> frozenset[str]:
        """The PCI addresses of the GPUs that are on the bus, whether NVML is open or not."""
        there = set(self._present())
        return frozenset(g.pci_address for g in self._state.read().gpus if g.uuid in there)

    def load(self) -> str:
        """Which load of the driver this is; empty while it is not loaded."""
        node = self._state.read()
        return str(node.driver_loads) if node.driver_is_loaded else ""

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

    def nvmlDeviceGetHandleByIndex(self, index: int) -> gpu_session.Handle:
        self._enter("nvmlDeviceGetHandleByIndex")
        if not 0 <= index < len(self._attached):
            raise self._error("INVALID_ARGUMENT")
        return self._handle("nvmlDeviceGetHandleByIndex", self._attached[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> gpu_session.Handle:
        """The GPU with this UUID; NVML takes it without `GPU-` too, and minds upper case.

        A MIG device has its own, which begins with `MIG-`.
        """
        self._enter("nvmlDeviceGetHandleByUUID")
        for gpu in self._state.read().gpus:
            for _instance, compute in gpu_session.compute_instances(gpu):
                if compute.uuid == _text(uuid) and gpu.uuid in self._attached:
                    return gpu_session.Handle(self._session, gpu.uuid, compute.uuid)
        text = f"GPU-{_text(uuid).removeprefix('GPU-')}"
        if text not in self._attached:
            raise self._error("NOT_FOUND")
        return self._handle("nvmlDeviceGetHandleByUUID", text)

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str | bytes) -> gpu_session.Handle:
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

    def nvmlDeviceGetName(self, handle: gpu_session.Handle) -> str:
        found = self._device("nvmlDeviceGetName", handle, parts=True)
        if found.mig is None:
            return found.model.product_name
        profiles = gpu_mig_rules.compute_profiles(found.model, found.mig.profile)
        return f"{found.model.product_name} {profiles[found.mig.compute.profile_id].name}"

    def nvmlDeviceGetUUID(self, handle: gpu_session.Handle) -> str:
        found = self._device("nvmlDeviceGetUUID", handle, parts=True)
        return found.state.uuid if found.mig is None else found.mig.compute.uuid

    def nvmlDeviceGetSerial(self, handle: gpu_session.Handle) -> str:
        return self._device("nvmlDeviceGetSerial", handle).state.serial

    def nvmlDeviceGetIndex(self, handle: gpu_session.Handle) -> int:
        """The index of a GPU on the node, or of a MIG device on its GPU."""
        found = self._device("nvmlDeviceGetIndex", handle, parts=True)
        if found.mig is None:
            return self._attached.index(found.state.uuid)
        there = [compute.uuid for _gpu, compute in gpu_session.compute_instances(found.state)]
        return there.index(found.mig.compute.uuid)

    def nvmlDeviceGetMinorNumber(self, handle: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetMinorNumber", handle).state.minor

    def nvmlDeviceGetModuleId(
        self,
        handle: gpu_session.Handle,
        moduleId: Any = ctypes.c_uint(),  # noqa: B008 - as in the bindings
    ) -> int:
        """Which module of the baseboard it is, from 1 on; 0 of cards without one (nvml.h).

        Here they are in the order of the bus. Of cards in virtual machines an H100 said 3, and two
        H200 said 5 and 7.
        """
        device = self._device("nvmlDeviceGetModuleId", handle)
        number = gpu_state.slot(device.state.pci_address) + 1 if device.model.nvlinks else 0
        if type(moduleId) is ctypes.c_uint:
            return number
        gpu_mig_types.at(moduleId, ctypes.c_uint)[0] = number
        return 0

    def nvmlDeviceGetBrand(self, handle: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetBrand", handle).model.brand

    def nvmlDeviceGetArchitecture(self, device: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetArchitecture", device).model.architecture

    def nvmlDeviceGetCudaComputeCapability(self, handle: gpu_session.Handle) -> tuple[int, int]:
        return self._device("nvmlDeviceGetCudaComputeCapability", handle).model.compute_capability

    def nvmlDeviceGetAddressingMode(self, device: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetAddressingMode", device).model.addressing_mode

    def nvmlDeviceGetNumGpuCores(self, device: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetNumGpuCores", device).model.cores

    def nvmlDeviceGetMemoryBusWidth(self, device: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetMemoryBusWidth", device).model.memory_bus_width

    def nvmlDeviceGetPciInfo(self, handle: gpu_session.Handle) -> types.SimpleNamespace:
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
        self, handle: gpu_session.Handle, version: int | None = None
    ) -> types.SimpleNamespace:
        """Memory in bytes. Only the second version tells what the driver keeps for itself."""
        device = self._device("nvmlDeviceGetMemoryInfo", handle, parts=True)
        total, reserved = device.model.memory_bytes, device.model.memory_reserved_bytes or 0
        if device.mig is not None:
            total, reserved = device.mig.profile.memory_mib << 20, 0
        used = sum(process.used_memory_bytes for process in _processes(device))
        free = total - reserved - used
        if not version:
            return types.SimpleNamespace(total=total, free=free, used=reserved + used)
        if version != _MEMORY_V2:
            raise self._error("FUNCTION_NOT_FOUND")
        return types.SimpleNamespace(
            version=version, total=total, reserved=reserved, free=free, used=used
        )

    def nvmlDeviceGetComputeMode(self, handle: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetComputeMode", handle).state.compute_mode

    def nvmlDeviceSetComputeMode(self, handle: gpu_session.Handle, mode: int) -> None:
        device = self._device("nvmlDeviceSetComputeMode", handle)
        if mode == self.NVML_COMPUTEMODE_EXCLUSIVE_THREAD:
            raise self._error("NOT_SUPPORTED")
        if not 0 <= mode <= self.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
            raise self._error("INVALID_ARGUMENT")
        with self._state.edit() as state:
            gpu_session.find(state, device.state.uuid).compute_mode = mode

    def nvmlDeviceGetPersistenceMode(self, handle: gpu_session.Handle) -> int:
        return int(self._device("nvmlDeviceGetPersistenceMode", handle).state.persistence_mode)

    def nvmlDeviceSetPersistenceMode(self, handle: gpu_session.Handle, mode: int) -> None:
        device = self._device("nvmlDeviceSetPersistenceMode", handle)
        if mode not in {self.NVML_FEATURE_DISABLED, self.NVML_FEATURE_ENABLED}:
            raise self._error("INVALID_ARGUMENT")
        with self._state.edit() as state:
            gpu_session.find(state, device.state.uuid).persistence_mode = bool(mode)

    def nvmlDeviceGetVirtualizationMode(self, handle: gpu_session.Handle) -> int:
        return self._device("nvmlDeviceGetVirtualizationMode", handle).state.virtualization

    def nvmlDeviceGetComputeRunningProcesses(
        self, handle: gpu_session.Handle
    ) -> list[types.SimpleNamespace]:
        """The processes of a GPU, those in its instances too, or of a MIG device."""
        device = self._device("nvmlDeviceGetComputeRunningProcesses", handle, parts=True)
        return [
            types.SimpleNamespace(
                pid=process.pid,
                usedGpuMemory=process.used_memory_bytes,
                gpuInstanceId=_instance_id(process.gpu_instance_id),
                computeInstanceId=_instance_id(process.compute_instance_id),
            )
            for process in _processes(device)
        ]


def _processes(device: gpu_session.Device) -> list[gpu_state.Process]:
    """Those of the GPU. Of a MIG device: those in its compute instance."""
    if device.mig is None:
        return device.state.processes
    wanted = (device.mig.gpu.id, device.mig.compute.id)
    return [
        process
        for process in device.state.processes
        if (process.gpu_instance_id, process.compute_instance_id) == wanted
    ]


def _instance_id(value: int | None) -> int:
    """NVML's mark for "no instance" is the largest 32-bit number."""
    return 0xFFFFFFFF if value is None else value


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
