"""Modules of a baseboard with NVSwitches, as simulated GPUs tell of them."""

import ctypes

from dra_driver.sim.gpus import gpus


def test_only_modules_of_a_baseboard_have_a_module_id(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="t4:1,h100-80gb-hbm3:2", node="node-1")
    library.nvmlInit()
    handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(3)]
    assert [library.nvmlDeviceGetModuleId(handle) for handle in handles] == [0, 2, 3]
    place = ctypes.c_uint()
    assert library.nvmlDeviceGetModuleId(handles[2], ctypes.pointer(place)) == 0
    assert place.value == 3
