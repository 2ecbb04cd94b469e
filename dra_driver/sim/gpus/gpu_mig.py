"""Multi-Instance GPU in the simulated NVML: modes, GPU instances, compute instances, MIG devices.

Answers with MIG mode off are those of a real H100 with driver 580.159.04. Whatever changes an
instance or a mode was not tried there, and follows the vendor's documentation.
"""

# ruff: noqa: N802, N803 - the names are those of pynvml

import ctypes
import pathlib
import types
import uuid
from typing import Any

from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_mig_rules,
    gpu_mig_types,
    gpu_models,
    gpu_session,
    gpu_state,
)

GPU_INSTANCE = gpu_mig_types.c_nvmlGpuInstance_t
COMPUTE_INSTANCE = gpu_mig_types.c_nvmlComputeInstance_t
PLACEMENT = gpu_mig_types.c_nvmlGpuInstancePlacement_t


class MigFunctions(gpu_session.Session, gpu_mig_types.Types):
    """The functions of `pynvml` for MIG. See `gpus.SimulatedNvml`."""

    NVML_GPU_VIRTUALIZATION_MODE_VGPU = 2
    NVML_DEVICE_MIG_DISABLE = 0
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_GPU_INSTANCE_PROFILE_COUNT = 18
    NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 9
    NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE = 4
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED = 0

    def __init__(
        self, state_dir: pathlib.Path, *, spec: str | None = None, node: str = "node"
    ) -> None:
        super().__init__(state_dir, spec=spec, node=node)
        self._pointers = gpu_mig_types.Pointers()

    def nvmlDeviceGetMigMode(self, device: gpu_session.Handle) -> list[int]:
        """Current and pending mode."""
        state = self._mig_capable(self._device("nvmlDeviceGetMigMode", device)).state
        return [int(state.mig_enabled), int(state.mig_pending)]

    def nvmlDeviceSetMigMode(self, device: gpu_session.Handle, mode: int) -> int:
        """Ask for a mode. The answer is 0, or the code of what keeps it pending.

        The driver may bind the GPU anew, which may give it another minor number (nvml.h).
        """
        found = self._own(self._mig_capable(self._device("nvmlDeviceSetMigMode", device)))
        if mode not in {self.NVML_DEVICE_MIG_DISABLE, self.NVML_DEVICE_MIG_ENABLE}:
            raise self._error("INVALID_ARGUMENT")
        with self._state.edit() as state:
            gpu = gpu_session.find(state, found.state.uuid)
            gpu.mig_pending = bool(mode)
            if gpu.mig_enabled == gpu.mig_pending:
                return 0
            if found.model.mig_mode_change_needs_reset:
                return gpu_errors.CODES["NVML_ERROR_RESET_REQUIRED"]
            if gpu.processes or gpu.gpu_instances:
                return gpu_errors.CODES["NVML_ERROR_IN_USE"]
            gpu.mig_enabled = gpu.mig_pending
            _renumber(state, gpu, self._faults.take_minor(gpu.uuid))
        self._delays.wait("nvmlDeviceSetMigMode")
        return 0

    def nvmlDeviceGetGpuInstanceProfileInfo(
        self, device: gpu_session.Handle, profile: int, version: int = 2
    ) -> types.SimpleNamespace:
        """The profile with this index. Its `version` is 0, as the real library leaves it."""
        if version not in {1, 2}:
            raise self._error("FUNCTION_NOT_FOUND")
        found = self._readable(self._device("nvmlDeviceGetGpuInstanceProfileInfo", device))
        if profile not in gpu_mig_rules.PROFILE_INDICES:
            raise self._error("INVALID_ARGUMENT")
        for known in found.model.gpu_instance_profiles:
            if known.nvml_profile == profile:
                return gpu_mig_types.profile_info(known, version)
        raise self._error("NOT_SUPPORTED")

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, device: gpu_session.Handle, profileId: int, placementsRef: Any, countRef: Any
    ) -> int:
        """All places of a profile, taken or not. `countRef` is written only, never read."""
        name = "nvmlDeviceGetGpuInstancePossiblePlacements"
        found = self._readable(self._device(name, device))
        count = gpu_mig_types.at(countRef, ctypes.c_uint)
        profile = gpu_mig_rules.profile_of(found.model, profileId)
        if profile is None and profileId in gpu_mig_rules.OTHER_PROFILE_IDS:
            raise self._error("NOT_SUPPORTED")
        if profile is None or not count:
            raise self._error("INVALID_ARGUMENT")
        count[0] = len(profile.placements)
        if placementsRef is not None:
            places = [PLACEMENT(start, size) for start, size in profile.placements]
            gpu_mig_types.fill(placementsRef, PLACEMENT, places)
        return 0

    def nvmlDeviceGetGpuInstances(
        self, device: gpu_session.Handle, profileId: int, gpuInstancesRef: Any, countRef: Any
    ) -> int:
        """The GPU instances that have this profile; none with MIG mode off."""
        found = self._readable(self._device("nvmlDeviceGetGpuInstances", device))
        count = gpu_mig_types.at(countRef, ctypes.c_uint)
        profile = gpu_mig_rules.profile_of(found.model, profileId)
        known = profile is not None or profileId in gpu_mig_rules.OTHER_PROFILE_IDS
        if not known or not count or gpuInstancesRef is None:
            raise self._error("INVALID_ARGUMENT")
        there = [
            self._pointer(found.state, instance)
            for instance in sorted(found.state.gpu_instances, key=lambda instance: instance.id)
            if instance.profile_id == profileId
        ]
        gpu_mig_types.fill(gpuInstancesRef, GPU_INSTANCE, there)
        count[0] = len(there)
        return 0

    def nvmlDeviceGetGpuInstanceById(self, device: gpu_session.Handle, gpuInstanceId: int) -> Any:
        found = self._readable(self._device("nvmlDeviceGetGpuInstanceById", device))
        return self._pointer(found.state, self._instance(found.state, gpuInstanceId))

    def nvmlDeviceCreateGpuInstance(self, device: gpu_session.Handle, profileId: int) -> Any:
        """A GPU instance where there is room, at the first such place."""
        name = "nvmlDeviceCreateGpuInstance"
        return self._create(name, self._device(name, device), profileId, None)

    def nvmlDeviceCreateGpuInstanceWithPlacement(
        self, device: gpu_session.Handle, profileId: int, placement: Any
    ) -> Any:
        """A GPU instance at this place, which is given by reference."""
        name = "nvmlDeviceCreateGpuInstanceWithPlacement"
        found = self._device(name, device)
        where = gpu_mig_types.at(placement, PLACEMENT)
        if not where:
            raise self._error("INVALID_ARGUMENT")
        place = (where.contents.start, where.contents.size)
        return self._create(name, found, profileId, place)

    def nvmlGpuInstanceDestroy(self, gpuInstance: Any) -> int:
        found, instance = self._gpu_instance("nvmlGpuInstanceDestroy", gpuInstance)
        with self._state.edit() as state:
            gpu = gpu_session.find(state, found.state.uuid)
            there = self._instance(gpu, instance.id)
            if there.compute_instances or _users(gpu, there.id):
                raise self._error("IN_USE")
            gpu.gpu_instances.remove(there)
        self._delays.wait("nvmlGpuInstanceDestroy")
        return 0

    def nvmlGpuInstanceGetInfo(self, gpuInstance: Any) -> types.SimpleNamespace:
        found, instance = self._gpu_instance("nvmlGpuInstanceGetInfo", gpuInstance)
        return types.SimpleNamespace(
            device=gpu_session.Handle(self._session, found.state.uuid),
            id=instance.id,
            profileId=instance.profile_id,
            placement=PLACEMENT(instance.start, instance.size),
        )

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, device: Any, profile: int, engProfile: int, version: int = 2
    ) -> types.SimpleNamespace:
        """The compute instance profile with this index; there are those that fit the instance.

        The bindings call the GPU instance `device`.
        """
        if version not in {1, 2}:
            raise self._error("FUNCTION_NOT_FOUND")
        name = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        found, instance = self._gpu_instance(name, device)
        of_gpu = found.model.profile(instance.profile_id)
        if (
            not 0 <= profile < self.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
            or engProfile != self.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        ):
            raise self._error("INVALID_ARGUMENT")
        known = gpu_mig_rules.compute_profiles(found.model, of_gpu).get(profile)
        if known is None:
            raise self._error("NOT_SUPPORTED")
        return gpu_mig_types.compute_profile_info(of_gpu, known, version)

    def nvmlGpuInstanceCreateComputeInstance(self, gpuInstance: Any, profileId: int) -> Any:
        """A compute instance at the first place with room. Its MIG device has a new UUID."""
        name = "nvmlGpuInstanceCreateComputeInstance"
        found, instance = self._gpu_instance(name, gpuInstance)
        profile = found.model.profile(instance.profile_id)
        known = gpu_mig_rules.compute_profiles(found.model, profile).get(profileId)
        if known is None:
            raise self._error("NOT_SUPPORTED")
        with self._state.edit() as state:
            there = self._instance(gpu_session.find(state, found.state.uuid), instance.id)
            start = gpu_mig_rules.free_compute_start(profile, there, known.slices)
            if start is None:
                raise self._error("INSUFFICIENT_RESOURCES")
            number = gpu_mig_rules.smallest_free([ci.id for ci in there.compute_instances])
            there.compute_instances.append(
                gpu_state.ComputeInstance(
                    id=number, profile_id=known.id, uuid=f"MIG-{uuid.uuid4()}", start=start
                )
            )
        self._delays.wait(name)
        return self._pointer(found.state, instance, number)

    def nvmlGpuInstanceGetComputeInstances(
        self, gpuInstance: Any, profileId: int, computeInstancesRef: Any, countRef: Any
    ) -> int:
        """The compute instances of a GPU instance that have this profile."""
        name = "nvmlGpuInstanceGetComputeInstances"
        found, instance = self._gpu_instance(name, gpuInstance)
        count = gpu_mig_types.at(countRef, ctypes.c_uint)
        if not count or computeInstancesRef is None:
            raise self._error("INVALID_ARGUMENT")
        of_gpu = found.model.profile(instance.profile_id)
        if profileId not in gpu_mig_rules.compute_profiles(found.model, of_gpu):
            raise self._error("NOT_SUPPORTED")
        there = [
            self._pointer(found.state, instance, compute.id)
            for compute in sorted(instance.compute_instances, key=lambda compute: compute.id)
            if compute.profile_id == profileId
        ]
        gpu_mig_types.fill(computeInstancesRef, COMPUTE_INSTANCE, there)
        count[0] = len(there)
        return 0

    def nvmlGpuInstanceGetComputeInstanceById(
        self, gpuInstance: Any, computeInstanceId: int
    ) -> Any:
        name = "nvmlGpuInstanceGetComputeInstanceById"
        found, instance = self._gpu_instance(name, gpuInstance)
        self._compute(instance, computeInstanceId)
        return self._pointer(found.state, instance, computeInstanceId)

    def nvmlComputeInstanceDestroy(self, computeInstance: Any) -> int:
        name = "nvmlComputeInstanceDestroy"
        found, instance, compute = self._compute_instance(name, computeInstance)
        with self._state.edit() as state:
            gpu = gpu_session.find(state, found.state.uuid)
            there = self._instance(gpu, instance.id)
            if compute.id in _users(gpu, there.id):
                raise self._error("IN_USE")
            there.compute_instances.remove(self._compute(there, compute.id))
        self._delays.wait(name)
        return 0

    def nvmlComputeInstanceGetInfo(self, computeInstance: Any) -> types.SimpleNamespace:
        return self._compute_info("nvmlComputeInstanceGetInfo", computeInstance)

    def nvmlComputeInstanceGetInfo_v2(self, computeInstance: Any) -> types.SimpleNamespace:
        return self._compute_info("nvmlComputeInstanceGetInfo_v2", computeInstance)

    def _compute_info(self, function: str, pointer: Any) -> types.SimpleNamespace:
        found, instance, compute = self._compute_instance(function, pointer)
        size = gpu_mig_rules.COMPUTE_SLICES[compute.profile_id]
        return types.SimpleNamespace(
            device=gpu_session.Handle(self._session, found.state.uuid),
            gpuInstance=self._pointer(found.state, instance),
            id=compute.id,
            profileId=compute.profile_id,
            placement=types.SimpleNamespace(start=compute.start, size=size),
        )

    def _create(
        self,
        function: str,
        found: gpu_session.Device,
        profile_id: int,
        place: tuple[int, int] | None,
    ) -> Any:
        self._own(found)
        with self._state.edit() as state:
            gpu = gpu_session.find(state, found.state.uuid)
            instance = self._new_instance(found.model, gpu, profile_id, place)
            gpu.gpu_instances.append(instance)
        self._delays.wait(function)
        return self._pointer(found.state, instance)

    def _new_instance(
        self,
        model: gpu_models.Model,
        gpu: gpu_state.Gpu,
        profile_id: int,
        place: tuple[int, int] | None,
    ) -> gpu_state.GpuInstance:
        if not gpu.mig_enabled:
            raise self._error("NOT_SUPPORTED")
        profile = gpu_mig_rules.profile_of(model, profile_id)
        if profile is None and profile_id in gpu_mig_rules.OTHER_PROFILE_IDS:
            raise self._error("NOT_SUPPORTED")
        if profile is None or place not in {None, *profile.placements}:
            raise self._error("INVALID_ARGUMENT")
        if place is None:
            place = gpu_mig_rules.free_placement(model, gpu, profile)
        if place is None or not gpu_mig_rules.has_room(model, gpu, profile, place):
            raise self._error("INSUFFICIENT_RESOURCES")
        number = gpu_mig_rules.smallest_free([instance.id for instance in gpu.gpu_instances])
        return gpu_state.GpuInstance(
            id=number, profile_id=profile_id, start=place[0], size=place[1]
        )

    def _mig_capable(self, device: gpu_session.Device) -> gpu_session.Device:
        if not device.model.mig_capable:
            raise self._error("NOT_SUPPORTED")
        return device

    def _own(self, device: gpu_session.Device) -> gpu_session.Device:
        """What a vGPU is cut into is settled by its profile on the host, not by its guest."""
        if device.state.virtualization == self.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
            raise self._error("NOT_SUPPORTED")
        return device

    def _readable(self, device: gpu_session.Device) -> gpu_session.Device:
        """Ampere tells nothing of its profiles while MIG mode is off."""
        needs_mode = device.model.mig_mode_change_needs_reset and not device.state.mig_enabled
        if not device.model.mig_capable or needs_mode:
            raise self._error("NOT_SUPPORTED")
        return device

    def _pointer(
        self, gpu: gpu_state.Gpu, instance: gpu_state.GpuInstance, compute: int | None = None
    ) -> Any:
        kind = GPU_INSTANCE if compute is None else COMPUTE_INSTANCE
        return self._pointers.to((self._session, gpu.uuid, instance.id, compute), kind)

    def _meant(
        self, function: str, pointer: Any, kind: Any
    ) -> tuple[gpu_session.Device, gpu_state.GpuInstance, int | None]:
        if not self._opened:
            raise self._error("UNINITIALIZED")
        meaning = self._pointers.meaning(pointer, kind)
        if meaning is None or meaning[0] != self._session:
            raise self._error("INVALID_ARGUMENT")
        _session, gpu, number, compute = meaning
        found = self._ask(function, gpu, parts=False)
        return found, self._instance(found.state, number), compute

    def _gpu_instance(
        self, function: str, pointer: Any
    ) -> tuple[gpu_session.Device, gpu_state.GpuInstance]:
        found, instance, _none = self._meant(function, pointer, GPU_INSTANCE)
        return found, instance

    def _compute_instance(
        self, function: str, pointer: Any
    ) -> tuple[gpu_session.Device, gpu_state.GpuInstance, gpu_state.ComputeInstance]:
        found, instance, number = self._meant(function, pointer, COMPUTE_INSTANCE)
        return found, instance, self._compute(instance, number)

    def _instance(self, gpu: gpu_state.Gpu, number: int) -> gpu_state.GpuInstance:
        for instance in gpu.gpu_instances:
            if instance.id == number:
                return instance
        raise self._error("NOT_FOUND")

    def _compute(
        self, instance: gpu_state.GpuInstance, number: int | None
    ) -> gpu_state.ComputeInstance:
        for compute in instance.compute_instances:
            if compute.id == number:
                return compute
        raise self._error("NOT_FOUND")


def _renumber(state: gpu_state.Node, gpu: gpu_state.Gpu, minor: int | None) -> None:
    """Give a GPU another minor number; the one that has it gets the old one."""
    if minor is None:
        return
    for other in state.gpus:
        if other.minor == minor:
            other.minor = gpu.minor
    gpu.minor = minor


def _users(gpu: gpu_state.Gpu, number: int) -> set[int | None]:
    """The compute instances in a GPU instance in which a process runs."""
    return {
        process.compute_instance_id
        for process in gpu.processes
        if process.gpu_instance_id == number
    }
