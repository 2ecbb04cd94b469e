"""How NVML is opened and closed, and what happens when the driver or a GPU comes or goes."""

import threading

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_state, gpus

CODES = gpu_errors.CODES


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2,t4:1", node="node-a")


def discover(library):
    return nvml.Nvml(library).discover()


def uuids(state_dir):
    return [gpu.uuid for gpu in gpu_state.open_file(state_dir).read().gpus]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("NVML_ERROR_DRIVER_NOT_LOADED", "modprobe nvidia"),
        ("NVML_ERROR_LIBRARY_NOT_FOUND", "driver root"),
        ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "load the module of the library"),
        ("NVML_ERROR_NO_PERMISSION", "privileged"),
        ("NVML_ERROR_UNKNOWN", "Unknown Error"),
    ],
)
def test_a_driver_that_is_not_there_can_be_there_later(machine, tmp_path, error, remedy):
    adapter = nvml.Nvml(machine)
    gpu_faults.inject(tmp_path, function="nvmlInitWithFlags", error=CODES[error])

    for _ in range(2):
        with pytest.raises(errors.Retryable) as caught:
            adapter.discover()
        assert f"NVML error {CODES[error]}" in str(caught.value)
        assert remedy in str(caught.value)
    gpu_faults.clear(tmp_path)

    assert len(adapter.discover().gpus) == 3


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"]
)
def test_a_driver_that_goes_away_during_a_look_is_no_empty_node(machine, tmp_path, function):
    gpu_faults.inject(tmp_path, function=function, error=CODES["NVML_ERROR_DRIVER_NOT_LOADED"])

    with pytest.raises(errors.Retryable, match="Driver Not Loaded"):
        discover(machine)


def test_gpus_that_vanish_and_come_back_are_seen_by_the_next_look(machine, tmp_path):
    adapter = nvml.Nvml(machine)
    gone = uuids(tmp_path)[0]

    gpu_faults.remove(tmp_path, gone)
    without = adapter.discover()
    gpu_faults.clear(tmp_path)

    assert [(gpu.index, gpu.minor) for gpu in without.gpus] == [(0, 1), (1, 2)]
    assert without.failures == ()
    assert [gpu.minor for gpu in adapter.discover().gpus] == [0, 1, 2]


def test_a_gpu_that_vanishes_while_nvml_is_held_open_is_reported(machine, tmp_path):
    adapter = nvml.Nvml(machine)
    adapter.init()
    gpu_faults.remove(tmp_path, uuids(tmp_path)[2])

    found = adapter.discover()

    assert [gpu.minor for gpu in found.gpus] == [0, 1]
    assert "GPU is lost" in found.failures[0].reason


def test_a_gpu_that_comes_while_another_thread_uses_nvml_is_seen_once_it_is_done(machine, tmp_path):
    adapter = nvml.Nvml(machine)
    gpu_faults.remove(tmp_path, uuids(tmp_path)[0])
    opened, done = threading.Event(), threading.Event()

    def use():
        with adapter.session():
            opened.set()
            done.wait()

    worker = threading.Thread(target=use)
    worker.start()
    assert opened.wait(timeout=60)
    gpu_faults.clear(tmp_path)

    assert [gpu.minor for gpu in adapter.discover().gpus] == [1, 2]
    done.set()
    worker.join()
    assert [gpu.minor for gpu in adapter.discover().gpus] == [0, 1, 2]


def test_a_session_that_ends_leaves_the_others_open(machine):
    adapter = nvml.Nvml(machine)

    with adapter.session() as library:
        handle = library.nvmlDeviceGetHandleByIndex(0)
        adapter.discover()
        assert library.nvmlDeviceGetMinorNumber(handle) == 0


def test_a_look_leaves_nvml_as_it_found_it(machine):
    adapter = nvml.Nvml(machine)

    adapter.discover()
    with pytest.raises(machine.NVMLError, match="Uninitialized"):
        machine.nvmlDeviceGetCount()
    adapter.init()
    adapter.discover()
    assert machine.nvmlDeviceGetCount() == 3
    adapter.shutdown()
    with pytest.raises(machine.NVMLError, match="Uninitialized"):
        machine.nvmlDeviceGetCount()


def test_nvml_is_closed_after_a_look_that_failed(machine, tmp_path):
    gpu_faults.inject(
        tmp_path, function="nvmlDeviceGetCount", error=CODES["NVML_ERROR_UNKNOWN"], times=1
    )

    with pytest.raises(errors.Retryable):
        discover(machine)

    with pytest.raises(machine.NVMLError, match="Uninitialized"):
        machine.nvmlDeviceGetCount()


def test_closing_what_is_closed_does_nothing(machine):
    nvml.Nvml(machine).shutdown()


def test_many_threads_can_look_at_once(machine):
    adapter = nvml.Nvml(machine)
    found = []
    threads = [threading.Thread(target=lambda: found.append(adapter.discover())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert len(found) == 8
    assert set(found) == {adapter.discover()}
