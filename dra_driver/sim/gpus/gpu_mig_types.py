"""The C types of NVML's MIG functions, and arguments that are given by reference."""

# ruff: noqa: N801, N815, N816 - the names are those of pynvml

import ctypes
import threading
import types
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.gpus import gpu_mig_rules, gpu_models

Meaning = tuple[int, str, int, int | None]
_STEP = 64


class c_nvmlGpuInstancePlacement_t(ctypes.Structure):
    """A place in memory slices."""

    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


class struct_c_nvmlGpuInstance_t(ctypes.Structure):
    """Opaque."""


class struct_c_nvmlComputeInstance_t(ctypes.Structure):
    """Opaque."""


c_nvmlGpuInstance_t = ctypes.POINTER(struct_c_nvmlGpuInstance_t)
c_nvmlComputeInstance_t = ctypes.POINTER(struct_c_nvmlComputeInstance_t)


class Types:
    """All of the above under the names that `pynvml` has, as attributes of an object."""

    c_nvmlGpuInstancePlacement_t = c_nvmlGpuInstancePlacement_t
    struct_c_nvmlGpuInstance_t = struct_c_nvmlGpuInstance_t
    struct_c_nvmlComputeInstance_t = struct_c_nvmlComputeInstance_t
    c_nvmlGpuInstance_t = c_nvmlGpuInstance_t
    c_nvmlComputeInstance_t = c_nvmlComputeInstance_t


def at(reference: Any, kind: Any) -> Any:
    """A pointer to what the caller gave by reference: `byref`, a pointer or an array.

    Raises:
        ctypes.ArgumentError: it was given by value, where the real library reads wild memory.
    """
    return ctypes.cast(reference, ctypes.POINTER(kind))


def fill(reference: Any, kind: Any, values: Sequence[Any]) -> None:
    """Write values to where the caller wants them.

    Raises:
        IndexError: there is no room, where the real library overwrites what comes after.
    """
    target = getattr(reference, "_obj", reference)
    if isinstance(target, ctypes.Array) and len(target) < len(values):
        raise IndexError(f"room for {len(target)} of {len(values)} answers: the array is too short")
    pointer = at(reference, kind)
    for index, value in enumerate(values):
        pointer[index] = value


class Pointers:
    """Which instance an opaque pointer means: (session, GPU, GPU instance, compute instance)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[Meaning, int] = {}
        self._meanings: dict[int, Meaning] = {}

    def to(self, meaning: Meaning, kind: Any) -> Any:
        """The pointer that means this; always the same one."""
        with self._lock:
            address = self._addresses.setdefault(meaning, (len(self._addresses) + 1) * _STEP)
            self._meanings[address] = meaning
        return ctypes.cast(ctypes.c_void_p(address), kind)

    def meaning(self, pointer: Any, kind: Any) -> Meaning | None:
        """What a pointer of this type means; None for null and for what was never given out."""
        if not isinstance(pointer, kind):
            return None
        return self._meanings.get(ctypes.cast(pointer, ctypes.c_void_p).value or 0)


def profile_info(profile: gpu_models.Profile, version: int) -> types.SimpleNamespace:
    """What NVML tells of a GPU instance profile; the first version has no name."""
    info = types.SimpleNamespace(
        id=profile.id,
        isP2pSupported=int(profile.p2p),
        sliceCount=profile.slices,
        instanceCount=profile.instances,
        multiprocessorCount=profile.multiprocessors,
        copyEngineCount=profile.copy_engines,
        decoderCount=profile.decoders,
        encoderCount=profile.encoders,
        jpegCount=profile.jpeg_engines,
        ofaCount=profile.ofa_engines,
        memorySizeMB=profile.memory_mib,
    )
    if version != 1:
        info.version, info.name = 0, f"MIG {profile.name}"
    return info


def compute_profile_info(
    of_gpu: gpu_models.Profile, profile: gpu_mig_rules.ComputeProfile, version: int
) -> types.SimpleNamespace:
    """What NVML tells of a compute instance profile; the first version has no name."""
    info = types.SimpleNamespace(
        id=profile.id,
        sliceCount=profile.slices,
        instanceCount=profile.instances,
        multiprocessorCount=profile.multiprocessors,
        sharedCopyEngineCount=of_gpu.copy_engines,
        sharedDecoderCount=of_gpu.decoders,
        sharedEncoderCount=of_gpu.encoders,
        sharedJpegCount=of_gpu.jpeg_engines,
        sharedOfaCount=of_gpu.ofa_engines,
    )
    if version != 1:
        info.version, info.name = 0, profile.name
    return info
