"""How the MIG profiles and instances of one GPU are read through NVML.

`library` is `pynvml` or an object with its functions. A driver or bindings without a function that
is needed have no such fact, and the answer is empty.
"""

import ctypes
from typing import Any

from dra_driver.adapters.nvml import nvml_codes
from dra_driver.model import mig

_PREFIX = "MIG "

NO_SUCH_PROFILE = nvml_codes.NO_SUCH_FACT - {nvml_codes.Code.NOT_FOUND}
"""After any other answer the profile may be there, and its instances would count as gone."""

_GONE = frozenset({nvml_codes.Code.NOT_FOUND, nvml_codes.Code.INVALID_ARGUMENT})
"""Answers about an instance that someone has just removed."""


def profiles(library: Any, handle: Any) -> tuple[mig.Profile, ...]:
    """The profiles that have a name, by NVML's index; none where NVML does not tell.

    Raises:
        library.NVMLError: the GPU or the driver fails.
    """
    if not hasattr(library, "nvmlDeviceGetGpuInstanceProfileInfo"):
        return ()
    found = []
    for index in range(library.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            profile = _profile(library, handle, index)
        except library.NVMLError as error:
            if error.value not in NO_SUCH_PROFILE:
                raise
        else:
            found += [profile] if profile.name else []
    return tuple(found)


def instances(
    library: Any, handle: Any, known: tuple[mig.Profile, ...]
) -> tuple[mig.Instance, ...]:
    """The GPU instances with these profiles, by id. MIG mode is on.

    Raises:
        library.NVMLError: the GPU or the driver fails.
    """
    spanning = _spanning(library, handle)
    found = []
    for profile in known:
        for instance in _with_profile(library, handle, profile):
            try:
                gi, spot = identity(library, instance)
            except library.NVMLError as error:
                if error.value not in _GONE:
                    raise
                continue
            found.append(mig.Instance(gi, spot, *spanning.get(gi, (None, None))))
    return tuple(sorted(found, key=lambda instance: instance.gi))


def identity(library: Any, instance: Any) -> tuple[int, mig.Spot]:
    """The id of a GPU instance, and what it is.

    Raises:
        library.NVMLError: it is gone, or the GPU or the driver fails.
    """
    info = library.nvmlGpuInstanceGetInfo(instance)
    placement = mig.Placement(info.placement.start, info.placement.size)
    return info.id, mig.Spot(info.profileId, placement)


def devices(library: Any, handle: Any) -> dict[tuple[int, int], Any]:
    """The handles of the MIG devices of a GPU, by ids of GPU instance and compute instance.

    Raises:
        library.NVMLError: the GPU or the driver fails.
    """
    found = {}
    for index in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            gi = library.nvmlDeviceGetGpuInstanceId(device)
            ci = library.nvmlDeviceGetComputeInstanceId(device)
        except library.NVMLError as error:
            if error.value not in _GONE:
                raise
        else:
            found[gi, ci] = device
    return found


def uuid(library: Any, device: Any) -> mig.MigUuid:
    """The UUID of a MIG device.

    Raises:
        library.NVMLError: it is gone, or the GPU or the driver fails.
    """
    return mig.MigUuid(_text(library.nvmlDeviceGetUUID(device)))


def _profile(library: Any, handle: Any, index: int) -> mig.Profile:
    info = library.nvmlDeviceGetGpuInstanceProfileInfo(handle, index)
    return mig.Profile(
        index=index,
        id=info.id,
        name=_text(info.name).removeprefix(_PREFIX),
        slices=info.sliceCount,
        instances=info.instanceCount,
        multiprocessors=info.multiprocessorCount,
        copy_engines=info.copyEngineCount,
        decoders=info.decoderCount,
        encoders=info.encoderCount,
        jpeg_engines=info.jpegCount,
        ofa_engines=info.ofaCount,
        memory_mib=info.memorySizeMB,
        placements=_placements(library, handle, info.id),
    )


def _placements(library: Any, handle: Any, profile_id: int) -> tuple[mig.Placement, ...]:
    count = ctypes.c_uint(0)
    ask = library.nvmlDeviceGetGpuInstancePossiblePlacements
    ask(handle, profile_id, None, ctypes.byref(count))
    places = (library.c_nvmlGpuInstancePlacement_t * count.value)()
    ask(handle, profile_id, places, ctypes.byref(count))
    return tuple(mig.Placement(place.start, place.size) for place in places[: count.value])


def _with_profile(library: Any, handle: Any, profile: mig.Profile) -> list[Any]:
    """NVML writes as many as there are and does not look at the size: there is room for all."""
    room = max(profile.instances, len(profile.placements))
    instances_, count = (library.c_nvmlGpuInstance_t * room)(), ctypes.c_uint(room)
    library.nvmlDeviceGetGpuInstances(handle, profile.id, instances_, ctypes.byref(count))
    return list(instances_[: count.value])


def _spanning(library: Any, handle: Any) -> dict[int, tuple[int, mig.MigUuid]]:
    """Compute instances that take their GPU instance whole, as id and UUID, by that instance."""
    found = {}
    for (gi, ci), device in devices(library, handle).items():
        try:
            slices = library.nvmlDeviceGetAttributes(device)
            if slices.computeInstanceSliceCount == slices.gpuInstanceSliceCount:
                found[gi] = (ci, uuid(library, device))
        except library.NVMLError as error:
            if error.value not in _GONE:
                raise
    return found


def _text(value: str | bytes) -> str:
    """Versions of nvidia-ml-py differ in whether they decode."""
    return value.decode() if isinstance(value, bytes) else value
