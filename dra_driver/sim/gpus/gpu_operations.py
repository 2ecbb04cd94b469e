"""What people and programs do to the GPUs of a machine, for tests and benches to do it.

Each takes the directory in which the GPUs are kept, and is seen by whoever uses them.
"""

import ctypes
import pathlib

from dra_driver import errors
from dra_driver.sim.gpus import (
    gpu_faults,
    gpu_health_state,
    gpu_mig_types,
    gpu_models,
    gpu_session,
    gpu_state,
    gpus,
)
from dra_driver.sim.pci import changing, pci_state


def reset(directory: pathlib.Path, uuid: str) -> None:
    """Reset a GPU: its instances are gone, and the pending MIG mode is the current one.

    What the driver wanted a reset for is done, and errors are counted from 0 on.

    Raises:
        errors.Retryable: a process uses it.
        errors.Rejected: it has fallen off the bus.
    """
    if uuid in gpu_faults.lost(directory):
        raise errors.Rejected(f"{uuid} has fallen off the bus: it takes a reboot to bring it back")
    with gpu_state.open_file(directory).edit() as state:
        gpu = gpu_session.find(state, uuid)
        if gpu.processes:
            users = ", ".join(str(process.pid) for process in gpu.processes)
            raise errors.Retryable(f"{uuid} is used by the processes {users}: end them first")
        _restart(gpu)
        gpu.resets += 1
    with gpu_health_state.open_file(directory).edit() as health:
        gpu_health_state.restart(health.of(uuid))


def link(directory: pathlib.Path, *uuids: str) -> None:
    """The cards are connected by NVLink, each with each."""
    with gpu_state.open_file(directory).edit() as state:
        for uuid in uuids:
            gpu_session.find(state, uuid).linked = [other for other in uuids if other != uuid]


def reboot(directory: pathlib.Path) -> None:
    """Restart the node: processes, instances, compute modes and time slices are gone.

    Lost cards are back, and what resets mend is mended. MIG mode outlives it on Ampere, where it is
    kept on the card, and not on Hopper.
    """
    changing.reboot(directory)
    with gpu_state.open_file(directory).edit() as state:
        for gpu in state.gpus:
            _forget(gpu)
    with gpu_health_state.open_file(directory).edit() as health:
        for one in health.cards.values():
            gpu_health_state.restart(one)
    gpu_faults.bring_back(directory, *gpu_faults.lost(directory))


def leave(directory: pathlib.Path, uuid: str) -> None:
    """The driver gives up a GPU: what it knew of it is forgotten, as by a reboot.

    Persistence mode is off: with it on, the driver does not give up the GPU.
    """
    with gpu_state.open_file(directory).edit() as state:
        _forget(gpu_session.find(state, uuid))


def unload_driver(directory: pathlib.Path) -> None:
    """The kernel module of the driver is taken out. Nothing of NVML works until `load_driver`."""
    changing.unload(directory, pci_state.NVIDIA)
    with gpu_state.open_file(directory).edit() as state:
        state.driver_is_loaded = False


def load_driver(directory: pathlib.Path) -> None:
    """It is loaded again. What was open before, event sets too, is of no use any more.

    Errors are counted from 0 on (`nvml.h`: volatile counts are reset each time the driver loads).
    """
    with gpu_health_state.open_file(directory).edit() as health:
        for one in health.cards.values():
            one.uncorrectable = 0
    changing.load(directory, pci_state.NVIDIA)
    with gpu_state.open_file(directory).edit() as state:
        state.driver_is_loaded = True
        state.driver_loads += 1


def virtualize(directory: pathlib.Path, uuid: str) -> None:
    """The node is a virtual machine from now on, and the GPU a vGPU of it."""
    with gpu_state.open_file(directory).edit() as state:
        vgpu = gpus.SimulatedNvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU
        gpu_session.find(state, uuid).virtualization = vgpu


def renumber(directory: pathlib.Path, *uuids: str) -> None:
    """The driver is loaded again and finds the cards in this order: minors from 0 on.

    Cards that are not among them keep theirs after these.
    """
    with gpu_state.open_file(directory).edit() as state:
        order = {uuid: minor for minor, uuid in enumerate(uuids)}
        state.gpus.sort(key=lambda gpu: order.get(gpu.uuid, len(order) + gpu.minor))
        for minor, gpu in enumerate(state.gpus):
            gpu.minor = minor


def exchange(directory: pathlib.Path, uuid: str, model: str) -> str:
    """Another card comes to where this one is, with its minor number; the UUID of the new one.

    The machine is down meanwhile, as far as that card is concerned.
    """
    with gpu_state.open_file(directory).edit() as state:
        place = state.gpus.index(gpu_session.find(state, uuid))
        new = gpu_state.new_card(model, state.gpus[place])
        state.gpus[place] = new
    return new.uuid


def remove_card(directory: pathlib.Path, uuid: str) -> gpu_state.Gpu:
    """The card is taken out, and those after it move up; what was taken out."""
    with gpu_state.open_file(directory).edit() as state:
        gone = gpu_session.find(state, uuid)
        state.gpus.remove(gone)
    renumber(directory, *(gpu.uuid for gpu in state.gpus))
    return gone


def insert_card(directory: pathlib.Path, card: gpu_state.Gpu) -> None:
    """The card is put in again, at the first place."""
    with gpu_state.open_file(directory).edit() as state:
        state.gpus.insert(0, card)
    renumber(directory, *(gpu.uuid for gpu in state.gpus))


def start_process(
    directory: pathlib.Path,
    uuid: str,
    pid: int,
    *,
    gi: int | None = None,
    ci: int | None = None,
    memory_bytes: int = 0,
) -> None:
    """A process uses a GPU, or the instance with these ids."""
    process = gpu_state.Process(
        pid=pid, used_memory_bytes=memory_bytes, gpu_instance_id=gi, compute_instance_id=ci
    )
    with gpu_state.open_file(directory).edit() as state:
        gpu_session.find(state, uuid).processes.append(process)


def end_process(directory: pathlib.Path, uuid: str, pid: int) -> None:
    """The process does not use the GPU any more."""
    with gpu_state.open_file(directory).edit() as state:
        gpu = gpu_session.find(state, uuid)
        gpu.processes = [process for process in gpu.processes if process.pid != pid]


def create_instance(
    directory: pathlib.Path, uuid: str, profile: str, start: int, *, compute: bool = True
) -> gpu_state.GpuInstance:
    """An administrator makes an instance with nvidia-smi, MIG mode switched on where it is off.

    `profile` is a name, `1g.10gb`, and `start` the memory slice where it begins. With `compute` it
    gets the compute instance that spans it.

    Raises:
        NVMLError: as the library refuses it.
    """
    library = gpus.SimulatedNvml(directory)
    library.nvmlInit()
    try:
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
        if not library.nvmlDeviceGetMigMode(handle)[0]:
            library.nvmlDeviceSetMigMode(handle, library.NVML_DEVICE_MIG_ENABLE)
        state = gpu_session.find(gpu_state.open_file(directory).read(), uuid)
        named = next(
            known
            for known in gpu_models.load(state.model).gpu_instance_profiles
            if known.name == profile
        )
        size = named.placements[0][1]
        place = gpu_mig_types.c_nvmlGpuInstancePlacement_t(start, size)
        instance = library.nvmlDeviceCreateGpuInstanceWithPlacement(
            handle, named.id, ctypes.byref(place)
        )
        if compute:
            spanning = _spanning(library, instance, named.slices)
            library.nvmlGpuInstanceCreateComputeInstance(instance, spanning)
        number = library.nvmlGpuInstanceGetInfo(instance).id
    finally:
        library.nvmlShutdown()
    after = gpu_session.find(gpu_state.open_file(directory).read(), uuid)
    return next(there for there in after.gpu_instances if there.id == number)


def destroy_instance(directory: pathlib.Path, uuid: str, gi: int) -> None:
    """An administrator removes an instance with all that is in it.

    Raises:
        NVMLError: as the library refuses it.
    """
    library = gpus.SimulatedNvml(directory)
    library.nvmlInit()
    try:
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
        instance = library.nvmlDeviceGetGpuInstanceById(handle, gi)
        there = gpu_session.find(gpu_state.open_file(directory).read(), uuid)
        for gpu, compute in gpu_session.compute_instances(there):
            if gpu.id == gi:
                library.nvmlComputeInstanceDestroy(
                    library.nvmlGpuInstanceGetComputeInstanceById(instance, compute.id)
                )
        library.nvmlGpuInstanceDestroy(instance)
    finally:
        library.nvmlShutdown()


def _forget(gpu: gpu_state.Gpu) -> None:
    gpu.processes = []
    gpu.compute_mode = gpus.SimulatedNvml.NVML_COMPUTEMODE_DEFAULT
    gpu.time_slice = 0
    if not gpu_models.load(gpu.model).mig_mode_change_needs_reset:
        gpu.mig_pending = False
    _restart(gpu)


def _restart(gpu: gpu_state.Gpu) -> None:
    gpu.gpu_instances = []
    gpu.mig_enabled = gpu.mig_pending


def _spanning(library: gpus.SimulatedNvml, instance: object, slices: int) -> int:
    for index in range(library.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = library.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, 0)
        except library.NVMLError:
            continue
        if info.sliceCount == slices:
            return int(info.id)
    raise errors.Rejected(f"no compute instance profile has {slices} slices")
