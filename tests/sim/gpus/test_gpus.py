import ctypes
import inspect
import json
import pathlib
import subprocess
import sys

import pynvml
import pytest

from dra_driver import errors
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_events,
    gpu_health,
    gpu_mig,
    gpu_mig_devices,
    gpu_models,
    gpu_state,
    gpus,
)


@pytest.fixture
def machine(tmp_path):
    """A node with two H100 and a T4, NVML open."""
    library = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2,t4:1", node="node-a")
    library.nvmlInit()
    return library


def public(prefix):
    return sorted(name for name in dir(gpus.SimulatedNvml) if name.startswith(prefix))


FUNCTIONS = [name for name in public("nvml") if callable(getattr(gpus.SimulatedNvml, name))]
# Those of MIG are called in test_gpu_mig_calls.py: they need a scene. Those of health are in
# test_gpu_health.py and test_gpu_events.py: a T4 lacks some.
PLAIN = [
    name
    for name in FUNCTIONS
    if name not in vars(gpu_mig.MigFunctions) | vars(gpu_mig_devices.MigDevices)
    and name not in vars(gpu_health.HealthFunctions) | vars(gpu_events.EventFunctions)
]
OF_A_DEVICE = [
    name
    for name in PLAIN
    if next(iter(inspect.signature(getattr(pynvml, name)).parameters), "") in {"handle", "device"}
]
ARGUMENTS = {
    "nvmlInitWithFlags": [1],
    "nvmlErrorString": [3],
    "nvmlDeviceGetHandleByIndex": [0],
    "nvmlDeviceGetHandleByUUID": ["GPU-0"],
    "nvmlDeviceGetHandleByPciBusId": ["0000:00:00.0"],
    "nvmlDeviceSetComputeMode": [0],
    "nvmlDeviceSetPersistenceMode": [0],
}


def call(library, name, handle=None):
    arguments = [handle] if name in OF_A_DEVICE else []
    return getattr(library, name)(*arguments, *ARGUMENTS.get(name, []))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_parameters_of_the_bindings(name):
    _self, *parameters = inspect.signature(getattr(gpus.SimulatedNvml, name)).parameters.values()
    real = inspect.signature(getattr(pynvml, name)).parameters.values()

    def told(parameters):
        # An object of ctypes equals itself alone.
        return [
            (one.name, repr(one.default) if isinstance(one.default, ctypes.c_uint) else one.default)
            for one in parameters
        ]

    assert told(parameters) == told(real)


def test_constants_are_those_of_the_bindings():
    constants = [*public("NVML_"), "nvmlMemory_v2"]

    assert len(constants) > 40
    for name in constants:
        assert getattr(gpus.SimulatedNvml, name) == getattr(pynvml, name), name


def test_every_error_of_the_bindings_exists():
    def real(prefix):
        return sorted(name for name in dir(pynvml) if name.startswith(prefix))

    assert public("NVML_ERROR_") == real("NVML_ERROR_")
    assert public("NVMLError") == real("NVMLError")


@pytest.mark.parametrize("code", sorted(gpu_errors.CODES.values()))
def test_errors_are_those_of_the_bindings(code):
    error, real = gpu_errors.NVMLError(code), pynvml.NVMLError(code)

    assert type(error).__name__ == type(real).__name__
    assert error.value == real.value == code
    assert type(error)() == error
    if code in pynvml.NVMLError._errcode_to_string:
        assert str(error) == str(real)
    with pytest.raises(TypeError, match="unhashable"):
        hash(error)


def test_a_code_that_is_not_known_is_an_unknown_error():
    error = gpu_errors.NVMLError(4711)

    assert type(error) is gpu_errors.NVMLError
    assert (error.value, str(error)) == (4711, "Unknown Error")


def test_the_library_has_its_own_words_for_some_errors(machine):
    assert machine.nvmlErrorString(16) == "GPU requires reset"
    assert str(gpu_errors.NVMLError(16)) == "GPU requires restart"
    assert machine.nvmlErrorString(0) == "Success"


@pytest.mark.gpu
@pytest.mark.skipif(not pathlib.Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver")
def test_texts_are_those_of_the_real_library():
    pynvml.nvmlInit()
    try:
        texts = {code: pynvml.nvmlErrorString(code) for code in gpu_errors.LIBRARY_TEXTS}
    finally:
        pynvml.nvmlShutdown()

    assert texts == gpu_errors.LIBRARY_TEXTS


@pytest.mark.parametrize(
    "name",
    sorted(set(PLAIN) - {"nvmlInit", "nvmlInitWithFlags", "nvmlErrorString"}),
)
def test_nothing_works_before_nvml_is_open_or_after_it_was_closed(tmp_path, name):
    library = gpus.SimulatedNvml(tmp_path, spec="t4:1")

    with pytest.raises(library.NVMLError_Uninitialized):
        call(library, name)
    library.nvmlInit()
    handle = library.nvmlDeviceGetHandleByIndex(0)
    library.nvmlShutdown()
    with pytest.raises(library.NVMLError_Uninitialized):
        call(library, name, handle)


def test_nvml_is_open_until_it_was_closed_as_often_as_opened(machine):
    handle = machine.nvmlDeviceGetHandleByIndex(0)
    machine.nvmlInit()
    machine.nvmlShutdown()

    assert machine.nvmlDeviceGetCount() == 3
    assert machine.nvmlDeviceGetIndex(handle) == 0

    machine.nvmlShutdown()
    with pytest.raises(machine.NVMLError_Uninitialized):
        machine.nvmlDeviceGetCount()


@pytest.mark.parametrize("name", OF_A_DEVICE)
def test_a_handle_ends_with_its_session(machine, name):
    handle = machine.nvmlDeviceGetHandleByIndex(0)
    machine.nvmlShutdown()
    machine.nvmlInit()

    for bad in (handle, None):
        with pytest.raises(machine.NVMLError_InvalidArgument):
            call(machine, name, bad)


def test_a_node_without_gpus_needs_the_flag(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="none")

    with pytest.raises(library.NVMLError_GpuNotFound):
        library.nvmlInit()
    library.nvmlInitWithFlags(library.NVML_INIT_FLAG_NO_GPUS)
    assert library.nvmlDeviceGetCount() == 0


def test_gpus_are_found_by_index_uuid_and_address(machine):
    second = machine.nvmlDeviceGetHandleByIndex(1)
    uuid = machine.nvmlDeviceGetUUID(second)
    info = machine.nvmlDeviceGetPciInfo(second)

    for text in (uuid, uuid.encode(), uuid.removeprefix("GPU-")):
        assert machine.nvmlDeviceGetHandleByUUID(text) == second
    for text in (info.busId, info.busIdLegacy, info.busId.lower().encode(), info.busIdLegacy[:-2]):
        assert machine.nvmlDeviceGetHandleByPciBusId(text) == second
    assert machine.nvmlDeviceGetIndex(second) == 1


def test_what_is_not_there_is_refused_as_by_the_real_library(machine):
    uuid = machine.nvmlDeviceGetUUID(machine.nvmlDeviceGetHandleByIndex(0))

    for index in (-1, 3, 99):
        with pytest.raises(machine.NVMLError_InvalidArgument):
            machine.nvmlDeviceGetHandleByIndex(index)
    for text in ("x", "GPU-00000000-0000-0000-0000-000000000000", f"GPU-{uuid[4:].upper()}"):
        with pytest.raises(machine.NVMLError_NotFound):
            machine.nvmlDeviceGetHandleByUUID(text)
    with pytest.raises(machine.NVMLError_NotFound):
        machine.nvmlDeviceGetHandleByPciBusId("00000000:77:00.0")
    with pytest.raises(machine.NVMLError_InvalidArgument):
        machine.nvmlDeviceGetHandleByPciBusId("x")


def test_a_gpu_tells_the_facts_of_its_model(machine):
    handle = machine.nvmlDeviceGetHandleByIndex(0)
    info = machine.nvmlDeviceGetPciInfo(handle)

    assert machine.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
    assert machine.nvmlDeviceGetBrand(handle) == pynvml.NVML_BRAND_NVIDIA
    assert machine.nvmlDeviceGetArchitecture(handle) == pynvml.NVML_DEVICE_ARCH_HOPPER
    assert machine.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    assert machine.nvmlDeviceGetAddressingMode(handle) == pynvml.NVML_DEVICE_ADDRESSING_MODE_NONE
    assert machine.nvmlDeviceGetNumGpuCores(handle) == 16896
    assert machine.nvmlDeviceGetMemoryBusWidth(handle) == 5120
    assert machine.nvmlDeviceGetMinorNumber(handle) == 0
    assert (info.busId, info.busIdLegacy) == ("00000000:04:00.0", "0000:04:00.0")
    assert (info.domain, info.bus, info.device) == (0, 4, 0)
    assert (info.pciDeviceId, info.pciSubSystemId) == (0x233010DE, 0x16C110DE)
    assert len(machine.nvmlDeviceGetSerial(handle)) == 13


def test_the_driver_is_the_recorded_one(machine):
    assert machine.nvmlSystemGetDriverVersion() == "580.159.04"
    assert machine.nvmlSystemGetNVMLVersion() == "13.580.159.04"
    assert machine.nvmlSystemGetCudaDriverVersion() == 13000
    assert machine.nvmlSystemGetCudaDriverVersion_v2() == 13000


def test_memory_is_counted_as_by_the_real_library(machine, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].processes.append(gpu_state.Process(pid=7, used_memory_bytes=1024))
    handle = machine.nvmlDeviceGetHandleByIndex(0)

    old = machine.nvmlDeviceGetMemoryInfo(handle)
    new = machine.nvmlDeviceGetMemoryInfo(handle, machine.nvmlMemory_v2)

    assert (old.total, old.free, old.used) == (85520809984, 85017492480, 503317504)
    assert (new.total, new.free, new.used) == (85520809984, 85017492480, 1024)
    assert (new.version, new.reserved) == (pynvml.nvmlMemory_v2, 503316480)
    with pytest.raises(machine.NVMLError_FunctionNotFound):
        machine.nvmlDeviceGetMemoryInfo(handle, 1)


def test_processes_are_listed(machine, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].processes += [
            gpu_state.Process(pid=7, used_memory_bytes=1024),
            gpu_state.Process(pid=8, used_memory_bytes=0, gpu_instance_id=2, compute_instance_id=0),
        ]
    first, second, _ = (machine.nvmlDeviceGetHandleByIndex(index) for index in range(3))

    listed = machine.nvmlDeviceGetComputeRunningProcesses(first)

    assert [vars(process) for process in listed] == [
        {
            "pid": 7,
            "usedGpuMemory": 1024,
            "gpuInstanceId": 0xFFFFFFFF,
            "computeInstanceId": 0xFFFFFFFF,
        },
        {"pid": 8, "usedGpuMemory": 0, "gpuInstanceId": 2, "computeInstanceId": 0},
    ]
    assert listed[0].__dict__.keys() == {name for name, _ in pynvml.c_nvmlProcessInfo_t._fields_}
    assert machine.nvmlDeviceGetComputeRunningProcesses(second) == []


def test_answers_have_the_fields_of_the_bindings(machine):
    handle = machine.nvmlDeviceGetHandleByIndex(0)

    def fields(structure):
        return {name for name, _ in structure._fields_}

    assert vars(machine.nvmlDeviceGetPciInfo(handle)).keys() == fields(pynvml.nvmlPciInfo_t)
    assert vars(machine.nvmlDeviceGetMemoryInfo(handle)).keys() == fields(pynvml.c_nvmlMemory_t)
    assert vars(machine.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)).keys() == fields(
        pynvml.c_nvmlMemory_v2_t
    )


def test_mig_mode_is_told_where_there_is_one(machine, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[1].mig_pending = True

    modes = [
        machine.nvmlDeviceGetMigMode(machine.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1)
    ]

    assert modes == [[0, 0], [0, 1]]
    with pytest.raises(machine.NVMLError_NotSupported):
        machine.nvmlDeviceGetMigMode(machine.nvmlDeviceGetHandleByIndex(2))


def test_modes_outlive_the_process_that_set_them(machine, tmp_path):
    handle = machine.nvmlDeviceGetHandleByIndex(1)
    machine.nvmlDeviceSetComputeMode(handle, machine.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    machine.nvmlDeviceSetPersistenceMode(handle, machine.NVML_FEATURE_DISABLED)

    restarted = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2,t4:1", node="node-a")
    restarted.nvmlInit()
    first, second = (restarted.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))

    assert restarted.nvmlDeviceGetComputeMode(second) == 3
    assert restarted.nvmlDeviceGetPersistenceMode(second) == 0
    assert restarted.nvmlDeviceGetComputeMode(first) == 0
    assert restarted.nvmlDeviceGetPersistenceMode(first) == 1
    assert machine.nvmlDeviceGetComputeMode(handle) == 3


def test_modes_that_do_not_exist_are_refused(machine):
    handle = machine.nvmlDeviceGetHandleByIndex(0)

    with pytest.raises(machine.NVMLError_NotSupported):
        machine.nvmlDeviceSetComputeMode(handle, machine.NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
    for mode in (-1, 4):
        with pytest.raises(machine.NVMLError_InvalidArgument):
            machine.nvmlDeviceSetComputeMode(handle, mode)
    with pytest.raises(machine.NVMLError_InvalidArgument):
        machine.nvmlDeviceSetPersistenceMode(handle, 2)
    assert machine.nvmlDeviceGetComputeMode(handle) == 0


def test_what_is_there_is_taken_without_a_spec(machine, tmp_path):
    other = gpus.SimulatedNvml(tmp_path)
    other.nvmlInit()

    assert other.nvmlDeviceGetCount() == 3
    assert other.nvmlDeviceGetUUID(other.nvmlDeviceGetHandleByIndex(0)) == (
        machine.nvmlDeviceGetUUID(machine.nvmlDeviceGetHandleByIndex(0))
    )


def test_a_state_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "gpus.json").write_text('{"version": 2}')

    with pytest.raises(errors.Fatal, match=r"gpus\.json.*remove the file"):
        gpus.SimulatedNvml(tmp_path)


SET_MODE = """
import pathlib, sys
from dra_driver.sim.gpus import gpus
library = gpus.SimulatedNvml(pathlib.Path(sys.argv[1]))
library.nvmlInit()
library.nvmlDeviceSetComputeMode(library.nvmlDeviceGetHandleByIndex(int(sys.argv[2])), 3)
"""


def test_processes_do_not_undo_each_others_changes(tmp_path):
    gpus.SimulatedNvml(tmp_path, spec="t4:8")
    workers = [
        subprocess.Popen([sys.executable, "-c", SET_MODE, str(tmp_path), str(index)])
        for index in range(4)
    ]
    codes = [worker.wait(timeout=60) for worker in workers]

    modes = [gpu.compute_mode for gpu in gpu_state.open_file(tmp_path).read().gpus]

    assert codes == [0, 0, 0, 0]
    assert modes == [3, 3, 3, 3, 0, 0, 0, 0]


def test_the_models_carry_the_facts_they_were_made_from():
    folder = pathlib.Path(__file__).parents[4] / "shared" / "gpus"
    if not folder.exists():
        pytest.skip(f"no {folder}")
    facts = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}

    assert set(facts) <= set(gpu_models.names())
    for name, fact in facts.items():
        model = gpu_models.load(name)
        assert model.product_name == fact["name"]
        assert (model.architecture, model.brand) == (fact["nvmlArchitecture"], fact["nvmlBrand"])
        assert list(model.compute_capability) == fact["cudaComputeCapability"]
        assert model.memory_bytes == fact["memoryTotalBytes"]
        assert model.memory_reserved_bytes == fact["memoryReservedBytes"]
        assert f"0x{model.pci_device_id:08x}" == fact["pciDeviceId"]
        assert model.mig_capable == fact["migCapable"]
        assert model.mig_mode_change_needs_reset == fact["migModeChangeNeedsReset"]
        assert (model.cores, model.memory_bus_width) == (
            fact["numGpuCores"],
            fact["memoryBusWidth"],
        )
        assert [
            (profile.id, profile.name, profile.memory_mib, profile.multiprocessors)
            for profile in model.gpu_instance_profiles
        ] == [
            (fact["id"], fact["name"], fact["memorySizeMB"], fact["multiprocessorCount"])
            for fact in fact["gpuInstanceProfiles"]
        ]
        assert [profile.placements for profile in model.gpu_instance_profiles] == [
            tuple((place["start"], place["size"]) for place in fact["placements"])
            for fact in fact["gpuInstanceProfiles"]
        ]
