"""MIG devices in the simulated NVML: device handles that mean a part of a GPU."""

# ruff: noqa: N802, N803 - the names are those of pynvml

import ctypes
import types

from dra_driver.sim.gpus import gpu_mig, gpu_mig_rules, gpu_session


class MigDevices(gpu_mig.MigFunctions):
    """The functions of `pynvml` for MIG devices. See `gpus.SimulatedNvml`."""

    def nvmlDeviceGetMaxMigDeviceCount(self, device: gpu_session.Handle) -> int:
        """How many MIG devices there may be; 0 where MIG mode is off."""
        found = self._device("nvmlDeviceGetMaxMigDeviceCount", device)
        if not found.state.mig_enabled:
            return 0
        return max(profile.instances for profile in found.model.gpu_instance_profiles)

    def nvmlDeviceGetMigDeviceHandleByIndex(
        self, device: gpu_session.Handle, index: int
    ) -> gpu_session.Handle:
        found = self._device("nvmlDeviceGetMigDeviceHandleByIndex", device)
        there = gpu_session.compute_instances(self._mig_capable(found).state)
        if not 0 <= index < len(there):
            raise self._error("NOT_FOUND")
        return gpu_session.Handle(self._session, found.state.uuid, there[index][1].uuid)

    def nvmlDeviceIsMigDeviceHandle(self, device: gpu_session.Handle) -> ctypes.c_uint:
        """A C number, as the bindings forget to take it out."""
        found = self._device("nvmlDeviceIsMigDeviceHandle", device, parts=True)
        return ctypes.c_uint(found.mig is not None)

    def nvmlDeviceGetGpuInstanceId(self, device: gpu_session.Handle) -> int:
        return self._part("nvmlDeviceGetGpuInstanceId", device).gpu.id

    def nvmlDeviceGetComputeInstanceId(self, device: gpu_session.Handle) -> int:
        return self._part("nvmlDeviceGetComputeInstanceId", device).compute.id

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        self, migDevice: gpu_session.Handle
    ) -> gpu_session.Handle:
        self._part("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", migDevice)
        return gpu_session.Handle(self._session, migDevice.uuid)

    def nvmlDeviceGetAttributes(self, device: gpu_session.Handle) -> types.SimpleNamespace:
        """What a MIG device has; a whole GPU has no such answer."""
        return self._attributes("nvmlDeviceGetAttributes", device)

    def nvmlDeviceGetAttributes_v2(self, device: gpu_session.Handle) -> types.SimpleNamespace:
        return self._attributes("nvmlDeviceGetAttributes_v2", device)

    def _attributes(self, function: str, device: gpu_session.Handle) -> types.SimpleNamespace:
        found = self._device(function, device, parts=True)
        if found.mig is None:
            raise self._error("NOT_SUPPORTED")
        profile, compute = found.mig.profile, found.mig.compute
        of_compute = gpu_mig_rules.compute_profiles(found.model, profile)[compute.profile_id]
        return types.SimpleNamespace(
            multiprocessorCount=of_compute.multiprocessors,
            sharedCopyEngineCount=profile.copy_engines,
            sharedDecoderCount=profile.decoders,
            sharedEncoderCount=profile.encoders,
            sharedJpegCount=profile.jpeg_engines,
            sharedOfaCount=profile.ofa_engines,
            gpuInstanceSliceCount=profile.slices,
            computeInstanceSliceCount=of_compute.slices,
            memorySizeMB=profile.memory_mib,
        )

    def _part(self, function: str, handle: gpu_session.Handle) -> gpu_session.Instance:
        found = self._device(function, handle, parts=True)
        if found.mig is None:
            raise self._error("INVALID_ARGUMENT")
        return found.mig
