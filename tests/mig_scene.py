"""A simulated node in MIG mode, for tests: an H100 with a 1g.10gb instance, and a plain one."""

import ctypes
import dataclasses
import pathlib

import pynvml

from dra_driver.sim.gpus import gpu_operations, gpus


@dataclasses.dataclass
class Scene:
    directory: pathlib.Path
    library: gpus.SimulatedNvml
    uuid: str
    other: str

    @property
    def handle(self):
        return self.library.nvmlDeviceGetHandleByUUID(self.uuid)

    def instance(self, gi=0):
        return self.library.nvmlDeviceGetGpuInstanceById(self.handle, gi)

    def compute(self, gi=0, ci=0):
        return self.library.nvmlGpuInstanceGetComputeInstanceById(self.instance(gi), ci)

    def create(self, profile_id, start, size, handle=None):
        """Exactly as a caller of the real bindings writes it."""
        place = pynvml.c_nvmlGpuInstancePlacement_t()
        place.start, place.size = start, size
        return self.library.nvmlDeviceCreateGpuInstanceWithPlacement(
            handle or self.handle, profile_id, ctypes.byref(place)
        )

    def arguments(self, name):
        """Arguments with which a call of this MIG function works, made anew."""
        device, none = self.handle, ctypes.byref(ctypes.c_uint())
        place = ctypes.byref(pynvml.c_nvmlGpuInstancePlacement_t(4, 1))
        instances = (self.library.c_nvmlGpuInstance_t * 8)()
        computes = (self.library.c_nvmlComputeInstance_t * 8)()
        given = {
            "nvmlDeviceGetMigMode": [device],
            "nvmlDeviceSetMigMode": [device, 1],
            "nvmlDeviceGetGpuInstanceProfileInfo": [device, 0],
            "nvmlDeviceGetGpuInstancePossiblePlacements": [device, 19, None, none],
            "nvmlDeviceGetGpuInstances": [device, 19, instances, none],
            "nvmlDeviceGetGpuInstanceById": [device, 0],
            "nvmlDeviceCreateGpuInstance": [device, 19],
            "nvmlDeviceCreateGpuInstanceWithPlacement": [device, 19, place],
            "nvmlDeviceGetMaxMigDeviceCount": [device],
            "nvmlDeviceGetMigDeviceHandleByIndex": [device, 0],
            "nvmlComputeInstanceDestroy": [self.compute()],
            "nvmlComputeInstanceGetInfo": [self.compute()],
            "nvmlComputeInstanceGetInfo_v2": [self.compute()],
            "nvmlGpuInstanceGetComputeInstanceById": [self.instance(), 0],
            "nvmlGpuInstanceGetComputeInstanceProfileInfo": [self.instance(), 0, 0],
            "nvmlGpuInstanceGetComputeInstances": [self.instance(), 0, computes, none],
            "nvmlGpuInstanceGetInfo": [self.instance()],
            # The one instance that has no compute instance.
            "nvmlGpuInstanceCreateComputeInstance": [self.instance(1), 0],
            "nvmlGpuInstanceDestroy": [self.instance(1)],
        }
        part = self.library.nvmlDeviceGetMigDeviceHandleByIndex(device, 0)
        return given.get(name, [part])


def build(directory: pathlib.Path) -> Scene:
    library = gpus.SimulatedNvml(directory, spec="h100-80gb-hbm3:2", node="node-a")
    library.nvmlInit()
    uuid, other = (
        library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1)
    )
    gpu_operations.create_instance(directory, uuid, "1g.10gb", 0)
    gpu_operations.create_instance(directory, uuid, "1g.10gb", 6, compute=False)
    return Scene(directory, library, uuid, other)
