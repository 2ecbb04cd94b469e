"""MIG mode, resets, processes and delays of simulated GPUs."""

import threading

import mig_scene
import pydantic
import pytest

from dra_driver import errors
from dra_driver.sim.gpus import gpu_delays, gpu_errors, gpu_models, gpu_operations, gpu_state, gpus

IN_USE = gpu_errors.CODES["NVML_ERROR_IN_USE"]
RESET_REQUIRED = gpu_errors.CODES["NVML_ERROR_RESET_REQUIRED"]


@pytest.fixture
def scene(tmp_path):
    return mig_scene.build(tmp_path)


def opened(directory, spec):
    library = gpus.SimulatedNvml(directory, spec=spec)
    library.nvmlInit()
    handle = library.nvmlDeviceGetHandleByIndex(0)
    return library, handle, library.nvmlDeviceGetUUID(handle)


def test_hopper_switches_at_once(tmp_path):
    library, handle, _uuid = opened(tmp_path, "h100-80gb-hbm3:2")

    assert library.nvmlDeviceSetMigMode(handle, 1) == 0
    assert library.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert library.nvmlDeviceGetMigMode(library.nvmlDeviceGetHandleByIndex(1)) == [0, 0]
    assert library.nvmlDeviceSetMigMode(handle, 0) == 0
    assert library.nvmlDeviceGetMigMode(handle) == [0, 0]


def test_a_gpu_with_a_process_keeps_its_mode_and_the_other_one_pending(tmp_path):
    library, handle, uuid = opened(tmp_path, "h100-80gb-hbm3:1")
    gpu_operations.start_process(tmp_path, uuid, 7)

    assert library.nvmlDeviceSetMigMode(handle, 1) == IN_USE
    assert library.nvmlDeviceGetMigMode(handle) == [0, 1]

    gpu_operations.end_process(tmp_path, uuid, 7)
    assert library.nvmlDeviceSetMigMode(handle, 1) == 0
    assert library.nvmlDeviceGetMigMode(handle) == [1, 1]


def test_a_pending_mode_is_taken_back(tmp_path):
    library, handle, uuid = opened(tmp_path, "h100-80gb-hbm3:1")
    gpu_operations.start_process(tmp_path, uuid, 7)
    library.nvmlDeviceSetMigMode(handle, 1)

    assert library.nvmlDeviceSetMigMode(handle, 0) == 0
    assert library.nvmlDeviceGetMigMode(handle) == [0, 0]


def test_mig_mode_stays_on_while_there_are_instances(scene):
    assert scene.library.nvmlDeviceSetMigMode(scene.handle, 0) == IN_USE
    assert scene.library.nvmlDeviceGetMigMode(scene.handle) == [1, 0]


def test_a_mode_that_does_not_exist_is_refused(scene):
    for mode in (-1, 2):
        with pytest.raises(scene.library.NVMLError_InvalidArgument):
            scene.library.nvmlDeviceSetMigMode(scene.handle, mode)


def test_ampere_switches_with_a_reset_and_tells_its_profiles_only_then(tmp_path):
    library, handle, uuid = opened(tmp_path, "a100-40gb-sxm4:1")

    assert library.nvmlDeviceSetMigMode(handle, 1) == RESET_REQUIRED
    assert library.nvmlDeviceGetMigMode(handle) == [0, 1]
    for function, argument in (
        (library.nvmlDeviceGetGpuInstanceProfileInfo, 0),
        (library.nvmlDeviceGetGpuInstanceById, 0),
        (library.nvmlDeviceCreateGpuInstance, 19),
    ):
        with pytest.raises(library.NVMLError_NotSupported):
            function(handle, argument)

    gpu_operations.reset(tmp_path, uuid)
    assert library.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert library.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0).name == "MIG 1g.5gb"
    library.nvmlDeviceCreateGpuInstance(handle, 19)


def test_a_reset_destroys_the_instances_of_that_gpu_only(scene):
    gpu_operations.create_instance(scene.directory, scene.other, "7g.80gb", 0)

    gpu_operations.reset(scene.directory, scene.uuid)

    first, second = gpu_state.open_file(scene.directory).read().gpus
    assert (first.gpu_instances, first.mig_enabled) == ([], True)
    assert [instance.profile_id for instance in second.gpu_instances] == [0]


def test_a_gpu_with_a_process_is_not_reset(scene):
    gpu_operations.start_process(scene.directory, scene.uuid, 4711, gi=0, ci=0)

    with pytest.raises(errors.Retryable, match="4711"):
        gpu_operations.reset(scene.directory, scene.uuid)


@pytest.mark.parametrize(("model", "mode"), [("h100-80gb-hbm3", False), ("a100-40gb-sxm4", True)])
def test_mig_mode_outlives_a_reboot_on_ampere_only_and_instances_never_do(tmp_path, model, mode):
    library, handle, uuid = opened(tmp_path, f"{model}:1")
    library.nvmlDeviceSetMigMode(handle, 1)
    gpu_operations.reset(tmp_path, uuid)
    smallest = gpu_models.load(model).gpu_instance_profiles[0].name
    gpu_operations.create_instance(tmp_path, uuid, smallest, 0)
    gpu_operations.start_process(tmp_path, uuid, 7, gi=0, ci=0)
    library.nvmlDeviceSetComputeMode(handle, library.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)

    gpu_operations.reboot(tmp_path)

    state = gpu_state.open_file(tmp_path).read().gpus[0]
    assert (state.mig_enabled, state.mig_pending) == (mode, mode)
    assert (state.gpu_instances, state.processes, state.compute_mode) == ([], [], 0)


def test_instances_with_a_process_stay(scene):
    library = scene.library
    gpu_operations.start_process(scene.directory, scene.uuid, 7, gi=0, ci=0)

    with pytest.raises(library.NVMLError_InUse):
        library.nvmlComputeInstanceDestroy(scene.compute())
    gpu_operations.start_process(scene.directory, scene.uuid, 8, gi=1)
    with pytest.raises(library.NVMLError_InUse):
        library.nvmlGpuInstanceDestroy(scene.instance(1))

    gpu_operations.end_process(scene.directory, scene.uuid, 7)
    gpu_operations.end_process(scene.directory, scene.uuid, 8)
    library.nvmlComputeInstanceDestroy(scene.compute())
    library.nvmlGpuInstanceDestroy(scene.instance(1))


def test_a_process_in_one_compute_instance_does_not_hold_the_other(scene):
    library = scene.library
    instance = scene.create(14, 2, 2)
    computes = [library.nvmlGpuInstanceCreateComputeInstance(instance, 0) for _ in range(2)]
    gpu_operations.start_process(scene.directory, scene.uuid, 7, gi=2, ci=1)

    library.nvmlComputeInstanceDestroy(computes[0])
    with pytest.raises(library.NVMLError_InUse):
        library.nvmlComputeInstanceDestroy(computes[1])


def test_processes_are_listed_with_their_instances(scene):
    library = scene.library
    gpu_operations.create_instance(scene.directory, scene.uuid, "2g.20gb", 2)
    gpu_operations.start_process(scene.directory, scene.uuid, 7, gi=0, ci=0, memory_bytes=1024)
    gpu_operations.start_process(scene.directory, scene.uuid, 8, gi=2, ci=0)

    def listed(handle):
        return [
            (process.pid, process.gpuInstanceId, process.computeInstanceId)
            for process in library.nvmlDeviceGetComputeRunningProcesses(handle)
        ]

    first = library.nvmlDeviceGetMigDeviceHandleByIndex(scene.handle, 0)
    assert listed(scene.handle) == [(7, 0, 0), (8, 2, 0)]
    assert listed(first) == [(7, 0, 0)]
    assert library.nvmlDeviceGetMemoryInfo(first).used == 1024


def test_an_administrator_removes_what_he_made(scene):
    made = gpu_operations.create_instance(scene.directory, scene.other, "3g.40gb", 4)
    assert (made.id, made.start, made.size) == (0, 4, 4)
    assert made.compute_instances[0].uuid.startswith("MIG-")

    gpu_operations.destroy_instance(scene.directory, scene.other, made.id)

    first, second = gpu_state.open_file(scene.directory).read().gpus
    assert second.gpu_instances == []
    assert len(first.gpu_instances) == 2


def test_without_delays_nothing_is_waited(scene):
    scene.library.nvmlDeviceCreateGpuInstance(scene.handle, 19)

    assert gpu_delays.waited(scene.directory) == 0


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceCreateGpuInstance",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
    ],
)
def test_what_a_change_takes_is_added_up(scene, monkeypatch, name):
    naps = []
    monkeypatch.setattr(gpu_delays.time, "sleep", naps.append)
    arguments = scene.arguments(name)
    gpu_delays.set_delays(scene.directory, {name: 2.5})

    getattr(scene.library, name)(*arguments)

    assert naps == [2.5]
    lines = (scene.directory / "delays.log").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [name]


def test_a_mode_change_takes_its_time_and_one_that_fails_does_not(tmp_path, monkeypatch):
    naps = []
    monkeypatch.setattr(gpu_delays.time, "sleep", naps.append)
    gpu_delays.set_delays(tmp_path, {"nvmlDeviceSetMigMode": 1})
    library, handle, uuid = opened(tmp_path, "h100-80gb-hbm3:1")

    gpu_operations.start_process(tmp_path, uuid, 7)
    library.nvmlDeviceSetMigMode(handle, 1)
    assert naps == []
    gpu_operations.end_process(tmp_path, uuid, 7)
    library.nvmlDeviceSetMigMode(handle, 1)
    assert naps == [1]


def test_waits_of_all_processes_are_added_up(tmp_path):
    gpu_delays.set_delays(tmp_path, {"nvmlDeviceSetMigMode": 0.01})
    for _ in range(2):
        library, handle, _uuid = opened(tmp_path, "h100-80gb-hbm3:1")
        library.nvmlDeviceSetMigMode(handle, 1)
        library.nvmlDeviceSetMigMode(handle, 0)

    assert gpu_delays.waited(tmp_path) >= 4 * 0.01


def test_a_slow_change_of_one_gpu_does_not_hold_up_another(scene, monkeypatch):
    slow, finish = threading.Event(), threading.Event()

    def sleep(_seconds):
        slow.set()
        finish.wait(60)

    monkeypatch.setattr(gpu_delays.time, "sleep", sleep)
    gpu_delays.set_delays(scene.directory, {"nvmlDeviceCreateGpuInstance": 1})
    worker = threading.Thread(
        target=scene.library.nvmlDeviceCreateGpuInstance, args=(scene.handle, 19)
    )
    worker.start()
    assert slow.wait(timeout=60)

    other = scene.library.nvmlDeviceGetHandleByUUID(scene.other)
    assert scene.library.nvmlDeviceSetMigMode(other, 1) == 0
    scene.create(19, 3, 1, handle=other)

    finish.set()
    worker.join()


def test_a_delay_of_a_function_that_never_waits_is_refused(tmp_path):
    with pytest.raises(errors.Rejected, match=r"'nvmlDeviceGetName'.*nvmlDeviceSetMigMode"):
        gpu_delays.set_delays(tmp_path, {"nvmlDeviceGetName": 1})


def test_a_negative_delay_is_refused(tmp_path):
    with pytest.raises(pydantic.ValidationError):
        gpu_delays.set_delays(tmp_path, {"nvmlDeviceSetMigMode": -1})
