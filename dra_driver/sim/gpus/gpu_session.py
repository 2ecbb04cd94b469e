"""What every function of the simulated NVML stands on: opening and closing, handles, faults."""

# ruff: noqa: N802 - the names are those of pynvml

import dataclasses
import pathlib
import threading

from dra_driver import errors
from dra_driver.sim.gpus import (
    gpu_clients,
    gpu_delays,
    gpu_errors,
    gpu_faults,
    gpu_models,
    gpu_state,
)
from dra_driver.sim.pci import pci_state


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """What NVML calls a device handle: opaque, and void once NVML was closed.

    `mig` is the UUID of the MIG device that is meant, None for the GPU itself.
    """

    session: int
    uuid: str
    mig: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """A MIG device: a compute instance and the GPU instance that it is in."""

    gpu: gpu_state.GpuInstance
    compute: gpu_state.ComputeInstance
    profile: gpu_models.Profile


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A GPU that answers: its state, and the facts of its model. `mig` if a part of it is meant."""

    state: gpu_state.Gpu
    model: gpu_models.Model
    mig: Instance | None = None


class Session(gpu_errors.Names):
    """The library as it is opened. See `gpus.SimulatedNvml`."""

    NVML_INIT_FLAG_NO_GPUS = 1

    def __init__(
        self, state_dir: pathlib.Path, *, spec: str | None = None, node: str = "node"
    ) -> None:
        if spec is not None:
            gpu_state.install(state_dir, gpu_state.parse_spec(spec), node=node)
        self._state_dir = state_dir
        self._state = gpu_state.open_file(state_dir)
        self._bus = pci_state.open_file(state_dir)
        self._faults = gpu_faults.FaultFile(state_dir)
        self._delays = gpu_delays.DelayFile(state_dir)
        self._state.read()
        self._lock = threading.Lock()
        self._opened = 0
        self._session = 0
        self._loads = 0
        self._attached: tuple[str, ...] = ()
        self._clients: gpu_clients.Opened | None = None

    def nvmlInit(self) -> None:
        self.nvmlInitWithFlags(0)

    def nvmlInitWithFlags(self, flags: int) -> None:
        """Open NVML, and with it all GPUs, whatever the flags.

        Which there are is looked up now, and not again until it is closed.
        """
        self._meet_fault("nvmlInitWithFlags")
        node = self._state.read()
        if not node.driver_is_loaded:
            raise self._error("DRIVER_NOT_LOADED")
        with self._lock:
            if not self._opened:
                self._loads = node.driver_loads
                present = self._present()
                if not present and not flags & self.NVML_INIT_FLAG_NO_GPUS:
                    raise self._error("GPU_NOT_FOUND")
                self._clients = gpu_clients.attach(self._state_dir, present)
                self._attached = present
                self._session += 1
            self._opened += 1

    def nvmlShutdown(self) -> None:
        if not self._opened:
            raise self._error("UNINITIALIZED")
        self._meet_fault("nvmlShutdown")
        with self._lock:
            self._opened = max(self._opened - 1, 0)
            if not self._opened and self._clients is not None:
                gpu_clients.detach(self._clients)
                self._clients = None

    def _present(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs that the driver has, in the bus's order: that of the index."""
        absent = self._faults.read().absent
        closed = pci_state.closed_to(self._bus.read(), pci_state.NVIDIA)
        gpus = sorted(self._state.read().gpus, key=lambda gpu: gpu.pci_address)
        return tuple(
            gpu.uuid for gpu in gpus if gpu.uuid not in absent and gpu.pci_address not in closed
        )

    def _is_served(self, gpu: gpu_state.Gpu) -> bool:
        """Whether it answers: it is on the bus, and the driver has it still."""
        apart = pci_state.apart_from(self._bus.read(), pci_state.NVIDIA)
        return gpu.uuid not in self._faults.read().absent and gpu.pci_address not in apart

    def _enter(self, function: str) -> None:
        self._check_open()
        self._meet_fault(function)

    def _check_open(self) -> None:
        """Nothing works that was opened before the driver was unloaded."""
        if not self._opened:
            raise self._error("UNINITIALIZED")
        node = self._state.read()
        if not node.driver_is_loaded:
            raise self._error("DRIVER_NOT_LOADED")
        if node.driver_loads != self._loads:
            raise self._error("UNINITIALIZED")

    def _meet_fault(self, function: str, uuid: str | None = None) -> None:
        failing = self._faults.read().failing
        if not failing:
            return
        for fault in failing:
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

    def _device(self, function: str, handle: Handle, *, parts: bool = False) -> Device:
        """The GPU behind a handle, unless a fault comes first.

        `parts` says that the function answers for MIG devices too.
        """
        self._check_open()
        if not isinstance(handle, Handle) or handle.session != self._session:
            raise self._error("INVALID_ARGUMENT")
        return self._ask(function, handle.uuid, handle.mig, parts=parts)

    def _ask(self, function: str, uuid: str, part: str | None = None, *, parts: bool) -> Device:
        self._meet_fault(function, uuid)
        there = {gpu.uuid: gpu for gpu in self._state.read().gpus}
        if uuid not in there or not self._is_served(there[uuid]):
            raise self._error("GPU_IS_LOST")
        state = there[uuid]
        model = gpu_models.load(state.model)
        mig = None if part is None else _instance(state, model, part)
        if part is not None and (mig is None or not parts):
            raise self._error("INVALID_ARGUMENT")
        return Device(state, model, mig)

    def _error(self, name: str) -> gpu_errors.NVMLError:
        return self.NVMLError(gpu_errors.CODES[f"NVML_ERROR_{name}"])


def find(state: gpu_state.Node, uuid: str) -> gpu_state.Gpu:
    """The GPU with this UUID, which must be there."""
    return next(gpu for gpu in state.gpus if gpu.uuid == uuid)


def _instance(state: gpu_state.Gpu, model: gpu_models.Model, uuid: str) -> Instance | None:
    for gpu, compute in compute_instances(state):
        if compute.uuid == uuid:
            return Instance(gpu, compute, model.profile(gpu.profile_id))
    return None


def compute_instances(
    state: gpu_state.Gpu,
) -> list[tuple[gpu_state.GpuInstance, gpu_state.ComputeInstance]]:
    """All MIG devices of a GPU, in the order of their index."""
    return [
        (gpu, compute)
        for gpu in sorted(state.gpu_instances, key=lambda instance: instance.id)
        for compute in sorted(gpu.compute_instances, key=lambda instance: instance.id)
    ]
