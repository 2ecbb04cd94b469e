"""MIG through NVML: what a GPU is cut into, and cutting it. GPUs are named by UUID.

Nothing here waits or tries again. A change that fails is undone before the error is raised.
"""

import contextlib
import ctypes
import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_codes, nvml_errors, nvml_mig_facts
from dra_driver.model import mig

_NO_INSTANCE = 0xFFFFFFFF
"""NVML's mark for a process that is in no instance."""

_PROCESSES = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)

_ANY_FAILURE = nvml_codes.NO_SUCH_FACT
_NO_SUCH_LIST = frozenset(
    {nvml_codes.Code.NOT_SUPPORTED, nvml_codes.Code.FUNCTION_NOT_FOUND, nvml_codes.Code.DEPRECATED}
)

_REMEDIES: Mapping[int, str] = {
    nvml_codes.Code.NO_PERMISSION: (
        "run the plugin as root and privileged, with /proc/driver/nvidia/capabilities/mig/config"
    ),
    nvml_codes.Code.NOT_SUPPORTED: (
        "check that the GPU can do MIG, that MIG mode is on, and that the profile exists "
        "(nvidia-smi mig -lgip)"
    ),
    nvml_codes.Code.INVALID_ARGUMENT: (
        "check that the GPU has this profile at this place (nvidia-smi mig -lgipp)"
    ),
    nvml_codes.Code.NOT_FOUND: "somebody removed it: look again (nvidia-smi mig -lgi)",
    nvml_codes.Code.FUNCTION_NOT_FOUND: "install a newer NVIDIA driver",
    nvml_codes.Code.IN_USE: (
        "stop its processes (nvidia-smi) and remove its instances (nvidia-smi mig -lgi)"
    ),
    nvml_codes.Code.INSUFFICIENT_RESOURCES: (
        "other instances take its memory slices or engines (nvidia-smi mig -lgi)"
    ),
}

GpuGone = nvml_errors.GpuGone
InUse = nvml_errors.InUse


class NoRoom(errors.Retryable):
    """The place, the engines or the memory are taken by other instances."""


_KINDS: Mapping[int, type[errors.DriverError]] = {nvml_codes.Code.INSUFFICIENT_RESOURCES: NoRoom}


@dataclasses.dataclass(frozen=True, slots=True)
class MigState:
    """What a GPU is cut into. `pending` is the mode after its next reset.

    `minor` is the number of its device node, which a change of the mode may change.
    """

    enabled: bool
    pending: bool
    instances: tuple[mig.Instance, ...]
    """By GPU instance id; none with MIG mode off."""
    minor: int


@dataclasses.dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU, and the GPU instance that it is in."""

    pid: int
    gi: int | None


class MigNvml:
    """Changes GPUs; safe to use from several threads, and GPUs do not wait for each other.

    Every function raises `GpuGone` if there is no such GPU, `errors.Retryable` if the driver does
    not answer, and `errors.Rejected` if asking again does not help: no permission, no MIG.
    """

    def __init__(self, nvml_: nvml.Nvml) -> None:
        self._nvml = nvml_

    @contextlib.contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep NVML open for the length of the block: opening it takes 11 ms on an H100.

        Raises:
            errors.Retryable: the driver is not there.
        """
        with self._nvml.session():
            yield

    def minor(self, gpu: str) -> int:
        """The number of its device node now."""
        with self._gpu(gpu, "reading its minor number") as (library, handle):
            return int(library.nvmlDeviceGetMinorNumber(handle))

    def state(self, gpu: str) -> MigState:
        """The mode and the instances now. A GPU that cannot do MIG is rejected."""
        with self._gpu(gpu, "reading its MIG state") as (library, handle):
            enabled, pending = map(bool, library.nvmlDeviceGetMigMode(handle))
            minor = int(library.nvmlDeviceGetMinorNumber(handle))
            if not enabled:
                return MigState(enabled, pending, (), minor)
            profiles = nvml_mig_facts.profiles(library, handle)
            found = nvml_mig_facts.instances(library, handle, profiles)
            return MigState(enabled, pending, found, minor)

    def create(self, gpu: str, spot: mig.Spot) -> int:
        """A GPU instance exactly there; its id. It has no compute instance yet.

        Raises:
            NoRoom: something else is there.
        """
        doing = f"creating a MIG instance of profile {spot.profile_id} at {spot.placement}"
        with self._gpu(gpu, doing) as (library, handle):
            place = library.c_nvmlGpuInstancePlacement_t()
            place.start, place.size = spot.placement.start, spot.placement.size
            instance = library.nvmlDeviceCreateGpuInstanceWithPlacement(
                handle, spot.profile_id, ctypes.byref(place)
            )
            with _undone(library, lambda: library.nvmlGpuInstanceDestroy(instance)):
                return nvml_mig_facts.identity(library, instance)[0]

    def create_compute(self, gpu: str, gi: int) -> mig.Instance:
        """The compute instance that spans a GPU instance, which has none.

        Raises:
            NoRoom: there is one in it.
            errors.Retryable: there is no such GPU instance any more.
        """
        doing = f"creating the compute instance of GPU instance {gi}"
        with self._gpu(gpu, doing) as (library, handle):
            instance = library.nvmlDeviceGetGpuInstanceById(handle, gi)
            _gi, spot = nvml_mig_facts.identity(library, instance)
            profile = _spanning_profile(library, handle, instance, spot.profile_id)
            compute = library.nvmlGpuInstanceCreateComputeInstance(instance, profile)
            with _undone(library, lambda: library.nvmlComputeInstanceDestroy(compute)):
                ci = library.nvmlComputeInstanceGetInfo(compute).id
                device = nvml_mig_facts.devices(library, handle).get((gi, ci))
                if device is None:
                    raise errors.Retryable(
                        f"{gpu}: NVML lists no MIG device for compute instance {ci} of "
                        f"GPU instance {gi}, which was just created; it was removed again"
                    )
                return mig.Instance(gi, spot, ci, nvml_mig_facts.uuid(library, device))

    def compute_instances(self, gpu: str, gi: int) -> tuple[int, ...]:
        """The ids of the compute instances in a GPU instance, whatever they take of it."""
        with self._gpu(gpu, f"listing what is in GPU instance {gi}") as (library, handle):
            found = nvml_mig_facts.devices(library, handle)
            return tuple(sorted(ci for parent, ci in found if parent == gi))

    def destroy_compute(self, gpu: str, gi: int, ci: int) -> bool:
        """Remove a compute instance; False if it was gone already.

        Raises:
            InUse: a process runs in it.
        """
        doing = f"removing compute instance {ci} of GPU instance {gi}"
        with self._gpu(gpu, doing) as (library, handle):

            def find() -> Any:
                instance = library.nvmlDeviceGetGpuInstanceById(handle, gi)
                return library.nvmlGpuInstanceGetComputeInstanceById(instance, ci)

            return _destroy(library, find, library.nvmlComputeInstanceDestroy)

    def destroy(self, gpu: str, gi: int) -> bool:
        """Remove a GPU instance; False if it was gone already.

        Raises:
            InUse: a compute instance is in it, or a process runs in it.
        """
        with self._gpu(gpu, f"removing GPU instance {gi}") as (library, handle):

            def find() -> Any:
                return library.nvmlDeviceGetGpuInstanceById(handle, gi)

            return _destroy(library, find, library.nvmlGpuInstanceDestroy)

    def set_mode(self, gpu: str, enabled: bool) -> int:
        """Switch MIG mode on or off, unless it is so already; the GPU's minor number afterwards.

        A mode that cannot be had at once does not stay pending: a later reset of the GPU would
        bring it, and by then nobody may want it. The mode is read back with NVML closed in between,
        unless somebody else has it open: NVML may bind the GPU anew, and its minor number, among
        others, may be another one afterwards (nvml.h, `nvmlDeviceSetMigMode`).

        Raises:
            InUse: a process uses the GPU, or an instance is there.
            errors.Rejected: the mode changes with a reset of the GPU only.
            errors.Retryable: also if it is another mode afterwards.
        """
        with self._gpu(gpu, "reading its MIG mode") as (library, handle):
            if list(map(bool, library.nvmlDeviceGetMigMode(handle))) == [enabled, enabled]:
                return int(library.nvmlDeviceGetMinorNumber(handle))
        # Whoever listens to the GPU uses it, too.
        with self._nvml.released():
            self._ask_for_mode(gpu, enabled)
            with self._gpu(gpu, "reading its MIG mode") as (library, handle):
                found = bool(library.nvmlDeviceGetMigMode(handle)[0])
                minor = int(library.nvmlDeviceGetMinorNumber(handle))
        if found != enabled:
            raise errors.Retryable(
                f"{gpu}: MIG mode was switched {_word(enabled)}, and now it is {_word(found)}: see "
                "whether something else switches it (nvidia-smi -mig)"
            )
        return minor

    def _ask_for_mode(self, gpu: str, enabled: bool) -> None:
        word = _word(enabled)
        with self._gpu(gpu, f"switching MIG mode {word}") as (library, handle):
            current, pending = map(bool, library.nvmlDeviceGetMigMode(handle))
            if current == pending == enabled:
                return
            status = library.nvmlDeviceSetMigMode(handle, int(enabled))
            if bool(library.nvmlDeviceGetMigMode(handle)[0]) == enabled:
                return
            with contextlib.suppress(library.NVMLError):
                library.nvmlDeviceSetMigMode(handle, int(current))
            if status == nvml_codes.Code.IN_USE:
                raise library.NVMLError(status)
            raise errors.Rejected(
                f"{gpu}: MIG mode can be switched {word} by a reset of the GPU only: drain the "
                f"node, run nvidia-smi -i {gpu} -mig {int(enabled)} and nvidia-smi -i {gpu} "
                "--gpu-reset, or reboot it"
            )

    def users(self, gpu: str, *, surely: bool = False) -> tuple[GpuProcess, ...]:
        """The processes on a GPU, in its instances too, by process id.

        What NVML does not tell is left out; with `surely` it is an error instead, but for lists
        that its driver does not have besides that of compute processes.
        """
        with self._gpu(gpu, "listing its processes") as (library, handle):
            found = {
                GpuProcess(process.pid, None if gi in {None, _NO_INSTANCE} else gi)
                for function in _PROCESSES
                for process in _listed(
                    library, function, handle, _may_fail(function) if surely else _ANY_FAILURE
                )
                for gi in [process.gpuInstanceId]
            }
        return tuple(sorted(found, key=lambda one: (one.pid, -1 if one.gi is None else one.gi)))

    def _gpu(self, gpu: str, doing: str) -> contextlib.AbstractContextManager[tuple[Any, Any]]:
        """The library and a handle; errors of NVML become ours."""
        return nvml_errors.gpu(self._nvml, gpu, doing, _REMEDIES, _KINDS)


def _word(enabled: bool) -> str:
    return "on" if enabled else "off"


@contextlib.contextmanager
def _undone(library: Any, undo: Callable[[], object]) -> Iterator[None]:
    """Undo what was created if the block fails; that one's error is the one that counts."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(library.NVMLError):
            undo()
        raise


def _destroy(library: Any, find: Callable[[], Any], destroy: Callable[[Any], object]) -> bool:
    """Whether it was there."""
    instance = _found(library, find)
    if instance is None:
        return False
    try:
        destroy(instance)
    except library.NVMLError:
        if _found(library, find) is None:
            # Someone else was faster.
            return False
        raise
    return True


def _found(library: Any, find: Callable[[], Any]) -> Any:
    """What was looked for, or None. With MIG mode off, Ampere answers that it cannot look."""
    try:
        return find()
    except library.NVMLError as error:
        if error.value not in {nvml_codes.Code.NOT_FOUND, nvml_codes.Code.NOT_SUPPORTED}:
            raise
    return None


def _spanning_profile(library: Any, handle: Any, instance: Any, profile_id: int) -> int:
    """The id of the compute instance profile with all slices; it is looked up, not computed.

    Of several with as many slices it is the one with the most multiprocessors, then the first.
    """
    slices = _slices(library, handle, profile_id)
    engines = library.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    found: list[tuple[int, int]] = []
    for index in range(library.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with _skipping(library, nvml_mig_facts.NO_SUCH_PROFILE):
            info = library.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, engines)
            if info.sliceCount == slices:
                found.append((info.multiprocessorCount, info.id))
    if not found:
        raise errors.Rejected(
            f"MIG profile {profile_id}: NVML has no compute instance profile of {slices} slices; "
            "look with nvidia-smi mig -lcip, and update the driver"
        )
    return max(found, key=lambda profile: profile[0])[1]


def _slices(library: Any, handle: Any, profile_id: int) -> int | None:
    known = nvml_mig_facts.profiles(library, handle)
    return next((profile.slices for profile in known if profile.id == profile_id), None)


@contextlib.contextmanager
def _skipping(library: Any, codes: Container[int]) -> Iterator[None]:
    try:
        yield
    except library.NVMLError as error:
        if error.value not in codes:
            raise


def _may_fail(function: str) -> Container[int]:
    """The answers to a question for processes that say: there are none of this kind."""
    return () if function == _PROCESSES[0] else _NO_SUCH_LIST


def _listed(library: Any, function: str, handle: Any, skipped: Container[int]) -> list[Any]:
    found: list[Any] = []
    with _skipping(library, skipped):
        found += getattr(library, function, _nothing)(handle)
    return found


def _nothing(_handle: Any) -> list[Any]:
    return []
