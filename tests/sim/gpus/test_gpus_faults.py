import inspect
import json

import pytest

from dra_driver import errors
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_events,
    gpu_faults,
    gpu_health,
    gpu_mig,
    gpu_mig_devices,
    gpus,
)

LOST = gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"]
UNKNOWN = gpu_errors.CODES["NVML_ERROR_UNKNOWN"]
ARGUMENTS = {
    "nvmlInitWithFlags": [1],
    "nvmlErrorString": [3],
    "nvmlDeviceSetComputeMode": [0],
    "nvmlDeviceSetPersistenceMode": [0],
}
FUNCTIONS = sorted(
    name
    for name in dir(gpus.SimulatedNvml)
    if name.startswith("nvml")
    and callable(getattr(gpus.SimulatedNvml, name))
    and name not in {"nvmlInit", "nvmlErrorString"}
    # Those of MIG are called in test_gpu_mig_calls.py: they need a scene.
    and name not in vars(gpu_mig.MigFunctions) | vars(gpu_mig_devices.MigDevices)
    # Those of health in test_gpu_health.py and test_gpu_events.py: a T4 lacks some.
    and name not in vars(gpu_health.HealthFunctions) | vars(gpu_events.EventFunctions)
)


@pytest.fixture
def machine(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="t4:2")
    library.nvmlInit()
    return library


@pytest.fixture
def uuids(machine):
    return [
        machine.nvmlDeviceGetUUID(machine.nvmlDeviceGetHandleByIndex(index)) for index in (0, 1)
    ]


def arguments(machine, name, index=0):
    handle = machine.nvmlDeviceGetHandleByIndex(index)
    given = {
        "nvmlDeviceGetHandleByIndex": [index],
        "nvmlDeviceGetHandleByUUID": [machine.nvmlDeviceGetUUID(handle)],
        "nvmlDeviceGetHandleByPciBusId": [machine.nvmlDeviceGetPciInfo(handle).busId],
    }
    if name in given:
        return given[name]
    first = next(iter(inspect.signature(getattr(machine, name)).parameters), "")
    return [*([handle] if first in {"handle", "device"} else []), *ARGUMENTS.get(name, [])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_fails_on_demand_under_its_own_name(machine, tmp_path, name):
    given = arguments(machine, name)
    gpu_faults.inject(tmp_path, function=name, error=UNKNOWN, times=1)

    with pytest.raises(machine.NVMLError_Unknown):
        getattr(machine, name)(*given)

    assert json.loads((tmp_path / "faults.json").read_text()) == {"faults": []}


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if name.startswith("nvmlDevice") and "Count" not in name]
)
def test_a_lost_gpu_fails_in_every_function_and_the_other_in_none(machine, tmp_path, uuids, name):
    second = arguments(machine, name, 1)
    first = arguments(machine, name, 0)
    gpu_faults.inject(tmp_path, uuid=uuids[1], error=LOST)

    with pytest.raises(machine.NVMLError_GpuIsLost):
        getattr(machine, name)(*second)
    getattr(machine, name)(*first)


def test_a_fault_happens_as_often_as_it_was_asked_for(machine, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetCount", error=UNKNOWN, times=2)

    for _ in range(2):
        with pytest.raises(machine.NVMLError_Unknown):
            machine.nvmlDeviceGetCount()
    assert machine.nvmlDeviceGetCount() == 2


def test_a_fault_is_counted_off_for_every_process(machine, tmp_path):
    other = gpus.SimulatedNvml(tmp_path)
    other.nvmlInit()
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetCount", error=UNKNOWN, times=1)

    with pytest.raises(machine.NVMLError_Unknown):
        machine.nvmlDeviceGetCount()
    assert other.nvmlDeviceGetCount() == 2


def test_faults_come_one_after_the_other(machine, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetCount", error=UNKNOWN, times=1)
    gpu_faults.inject(tmp_path, error=LOST, times=1)

    with pytest.raises(machine.NVMLError_Unknown):
        machine.nvmlDeviceGetCount()
    with pytest.raises(machine.NVMLError_GpuIsLost):
        machine.nvmlDeviceGetCount()
    assert machine.nvmlDeviceGetCount() == 2


def test_a_fault_of_one_gpu_does_not_hit_calls_about_none(machine, tmp_path, uuids):
    gpu_faults.inject(tmp_path, uuid=uuids[0], error=LOST)

    assert machine.nvmlDeviceGetCount() == 2
    assert machine.nvmlSystemGetDriverVersion() == "580.159.04"


def test_everything_works_again_once_faults_are_cleared(machine, tmp_path, uuids):
    gpu_faults.inject(tmp_path, error=UNKNOWN)
    gpu_faults.remove(tmp_path, uuids[0])
    gpu_faults.clear(tmp_path)

    assert machine.nvmlDeviceGetCount() == 2
    assert not (tmp_path / "faults.json").exists()
    gpu_faults.clear(tmp_path)


def test_a_driver_that_is_not_loaded_is_a_fault_of_opening(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="t4:1")
    gpu_faults.inject(tmp_path, function="nvmlInitWithFlags", error=9)

    with pytest.raises(library.NVMLError_DriverNotLoaded):
        library.nvmlInit()
    gpu_faults.clear(tmp_path)
    library.nvmlInit()
    assert library.nvmlDeviceGetCount() == 1


def test_a_gpu_that_fell_off_is_lost_until_nvml_looks_again(machine, tmp_path, uuids):
    handle = machine.nvmlDeviceGetHandleByIndex(0)
    gpu_faults.remove(tmp_path, uuids[0])

    assert machine.nvmlDeviceGetCount() == 2
    with pytest.raises(machine.NVMLError_GpuIsLost):
        machine.nvmlDeviceGetName(handle)
    with pytest.raises(machine.NVMLError_GpuIsLost):
        machine.nvmlDeviceGetHandleByIndex(0)
    machine.nvmlShutdown()
    machine.nvmlInit()

    assert machine.nvmlDeviceGetCount() == 1
    left = machine.nvmlDeviceGetHandleByIndex(0)
    assert machine.nvmlDeviceGetUUID(left) == uuids[1]
    assert machine.nvmlDeviceGetIndex(left) == 0
    assert machine.nvmlDeviceGetMinorNumber(left) == 1
    with pytest.raises(machine.NVMLError_NotFound):
        machine.nvmlDeviceGetHandleByUUID(uuids[0])


def test_a_gpu_is_lost_once_however_often_it_is_lost(machine, tmp_path, uuids):
    for _ in range(2):
        gpu_faults.lose(tmp_path, uuids[0])

    written = json.loads((tmp_path / "faults.json").read_text())["faults"]
    assert len(written) == 1
    assert gpu_faults.lost(tmp_path) == {uuids[0]}
    gpu_faults.bring_back(tmp_path, uuids[0])
    assert json.loads((tmp_path / "faults.json").read_text()) == {"faults": []}


OTHERS = [
    {"function": "nvmlDeviceGetName", "error": LOST, "times": None},
    {"function": None, "error": LOST, "times": 3},
    {"function": None, "error": UNKNOWN, "times": None},
]


@pytest.mark.parametrize("other", OTHERS)
def test_a_gpu_of_which_something_works_is_not_lost_and_keeps_its_fault(
    machine, tmp_path, uuids, other
):
    gpu_faults.inject(tmp_path, uuid=uuids[0], **other)
    before = (tmp_path / "faults.json").read_text()

    assert gpu_faults.lost(tmp_path) == frozenset()
    gpu_faults.bring_back(tmp_path, uuids[0])
    assert (tmp_path / "faults.json").read_text() == before


def test_who_is_brought_back_leaves_the_others_where_they_are(machine, tmp_path, uuids):
    first, second = uuids
    gpu_faults.remove(tmp_path, first, second)
    gpu_faults.remove(tmp_path, first)
    gpu_faults.lose(tmp_path, second)
    gpu_faults.bring_back(tmp_path, first)

    written = json.loads((tmp_path / "faults.json").read_text())["faults"]
    assert written[0] == {"absent": [second]}
    assert len(written) == 2
    assert gpu_faults.lost(tmp_path) == {second}


def test_faults_can_be_written_by_hand(machine, tmp_path, uuids):
    faults = [
        {"function": "nvmlDeviceGetName", "uuid": uuids[0], "error": 15, "times": None},
        {"absent": [uuids[1]]},
    ]
    (tmp_path / "faults.json").write_text(json.dumps({"faults": faults}))

    with pytest.raises(machine.NVMLError_GpuIsLost):
        machine.nvmlDeviceGetName(machine.nvmlDeviceGetHandleByIndex(0))
    with pytest.raises(machine.NVMLError_GpuIsLost):
        machine.nvmlDeviceGetHandleByIndex(1)


def test_an_error_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(errors.Rejected, match=r"NVML error 77 does not exist.*15 NVML_ERROR_GPU"):
        gpu_faults.inject(tmp_path, error=77)


def test_a_fault_that_could_never_happen_is_no_silent_one(machine, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetNam", error=UNKNOWN)

    with pytest.raises(errors.Fatal, match=r"'nvmlDeviceGetNam'.*correct the name"):
        machine.nvmlDeviceGetCount()


def test_a_fault_file_that_cannot_be_read_is_named(machine, tmp_path):
    (tmp_path / "faults.json").write_text('{"faults": [{"eror": 15}]}')

    with pytest.raises(errors.Fatal, match=r"faults\.json"):
        machine.nvmlDeviceGetCount()
