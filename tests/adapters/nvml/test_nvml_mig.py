"""The MIG adapter over the simulated NVML: what it changes, and what it makes of errors."""

import threading

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_mig
from dra_driver.model import mig
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_operations, gpu_state, gpus

CODES = gpu_errors.CODES
SMALL = mig.Spot(19, mig.Placement(0, 1))
WHOLE = mig.Spot(0, mig.Placement(0, 8))


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2,a100-40gb-sxm4:1,t4:1")


@pytest.fixture
def adapter(machine):
    return nvml_mig.MigNvml(nvml.Nvml(machine))


@pytest.fixture
def uuids(machine, tmp_path):
    return [gpu.uuid for gpu in gpu_state.open_file(tmp_path).read().gpus]


@pytest.fixture
def gpu(adapter, uuids):
    """An H100 in MIG mode."""
    adapter.set_mode(uuids[0], enabled=True)
    return uuids[0]


def inject(tmp_path, function, error, **limits):
    gpu_faults.inject(tmp_path, function=function, error=CODES[f"NVML_ERROR_{error}"], **limits)


def state_of(tmp_path, index=0):
    return gpu_state.open_file(tmp_path).read().gpus[index]


def make(adapter, gpu, spot):
    return adapter.create_compute(gpu, adapter.create(gpu, spot))


def test_an_instance_is_made_where_it_was_asked_for_and_read_back(adapter, gpu, tmp_path):
    spot = mig.Spot(9, mig.Placement(4, 4))

    made = make(adapter, gpu, spot)

    there = state_of(tmp_path).gpu_instances[0]
    assert (there.profile_id, there.start, there.size) == (9, 4, 4)
    uuid = there.compute_instances[0].uuid
    assert made == mig.Instance(gi=0, spot=spot, ci=0, uuid=mig.MigUuid(uuid))
    assert adapter.state(gpu) == nvml_mig.MigState(
        enabled=True, pending=True, instances=(made,), minor=0
    )


@pytest.mark.parametrize(
    ("spot", "profile"),
    [
        (SMALL, 0),
        (mig.Spot(14, mig.Placement(2, 2)), 1),
        (mig.Spot(9, mig.Placement(0, 4)), 2),
        (mig.Spot(5, mig.Placement(0, 4)), 3),
        (WHOLE, 4),
        (mig.Spot(15, mig.Placement(6, 2)), 0),
        (mig.Spot(20, mig.Placement(3, 1)), 0),
    ],
)
def test_the_compute_instance_spans_its_gpu_instance(adapter, gpu, tmp_path, spot, profile):
    made = make(adapter, gpu, spot)

    assert state_of(tmp_path).gpu_instances[0].compute_instances[0].profile_id == profile
    assert adapter.state(gpu).instances == (made,)


def test_among_compute_profiles_of_all_slices_the_one_with_most_processors_is_taken(
    adapter, machine, gpu, tmp_path, monkeypatch
):
    real = machine.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def with_a_weak_one(device, profile, engProfile, version=2):  # noqa: N803
        info = real(device, 2 if profile == 0 else profile, engProfile, version)
        if profile == 0:
            info.multiprocessorCount, info.id = 16, 0
        return info

    monkeypatch.setattr(machine, "nvmlGpuInstanceGetComputeInstanceProfileInfo", with_a_weak_one)

    make(adapter, gpu, mig.Spot(9, mig.Placement(0, 4)))

    assert state_of(tmp_path).gpu_instances[0].compute_instances[0].profile_id == 2


def test_uuids_belong_to_their_instances(adapter, gpu, tmp_path):
    made = [make(adapter, gpu, mig.Spot(19, mig.Placement(start, 1))) for start in (3, 0, 5)]

    found = adapter.state(gpu).instances

    assert [one.spot.placement.start for one in found] == [3, 0, 5]
    assert found == tuple(made)
    assert [one.uuid for one in found] == [
        there.compute_instances[0].uuid for there in state_of(tmp_path).gpu_instances
    ]


def test_a_gpu_instance_without_its_compute_instance_is_told(adapter, gpu):
    gi = adapter.create(gpu, SMALL)

    assert adapter.state(gpu).instances == (mig.Instance(gi, SMALL),)


def test_what_was_made_is_removed_and_gone_already_is_no_error(adapter, gpu, tmp_path):
    made = make(adapter, gpu, SMALL)

    assert adapter.destroy_compute(gpu, made.gi, made.ci) is True
    assert adapter.destroy_compute(gpu, made.gi, made.ci) is False
    assert adapter.destroy(gpu, made.gi) is True
    assert adapter.destroy(gpu, made.gi) is False
    assert adapter.destroy_compute(gpu, made.gi, made.ci) is False
    assert state_of(tmp_path).gpu_instances == []


def test_gone_is_gone_where_mig_mode_is_off(adapter, uuids):
    for uuid in uuids[:3]:
        assert adapter.destroy(uuid, 0) is False
        assert adapter.destroy_compute(uuid, 0, 0) is False


@pytest.mark.parametrize("answer", ["NOT_FOUND", "INVALID_ARGUMENT"])
@pytest.mark.parametrize(
    ("function", "undo"),
    [
        (
            "nvmlComputeInstanceDestroy",
            lambda adapter, gpu, gi: adapter.destroy_compute(gpu, gi, 0),
        ),
        ("nvmlGpuInstanceDestroy", lambda adapter, gpu, gi: adapter.destroy(gpu, gi)),
    ],
)
def test_an_instance_that_vanishes_while_it_is_removed_is_gone(
    adapter, machine, gpu, tmp_path, monkeypatch, function, undo, answer
):
    made = make(adapter, gpu, SMALL)

    def vanish(_pointer):
        gpu_operations.destroy_instance(tmp_path, gpu, made.gi)
        raise machine.NVMLError(CODES[f"NVML_ERROR_{answer}"])

    monkeypatch.setattr(machine, function, vanish)

    assert undo(adapter, gpu, made.gi) is False


def test_a_place_that_is_taken_is_no_room(adapter, gpu):
    make(adapter, gpu, SMALL)

    with pytest.raises(nvml_mig.NoRoom, match=rf"{gpu}: .*profile 0 at 0:8.*nvidia-smi mig -lgi"):
        adapter.create(gpu, WHOLE)


def test_a_second_compute_instance_is_no_room(adapter, gpu):
    made = make(adapter, gpu, SMALL)

    with pytest.raises(nvml_mig.NoRoom, match=f"GPU instance {made.gi}"):
        adapter.create_compute(gpu, made.gi)


def test_an_instance_with_a_process_is_in_use(adapter, gpu, tmp_path):
    made = make(adapter, gpu, SMALL)
    gpu_operations.start_process(tmp_path, gpu, 7, gi=made.gi, ci=made.ci)

    with pytest.raises(nvml_mig.InUse, match="compute instance 0 of GPU instance 0"):
        adapter.destroy_compute(gpu, made.gi, made.ci)
    with pytest.raises(nvml_mig.InUse, match="removing GPU instance 0"):
        adapter.destroy(gpu, made.gi)

    gpu_operations.end_process(tmp_path, gpu, 7)
    assert adapter.destroy_compute(gpu, made.gi, made.ci)
    assert adapter.destroy(gpu, made.gi)


@pytest.mark.parametrize("spot", [mig.Spot(14, mig.Placement(1, 2)), mig.Spot(99, SMALL.placement)])
def test_a_place_or_profile_that_does_not_exist_is_rejected(adapter, gpu, spot):
    with pytest.raises(errors.Rejected, match="has this profile at this place"):
        adapter.create(gpu, spot)


def test_creating_with_mig_mode_off_is_rejected(adapter, uuids):
    with pytest.raises(errors.Rejected, match="MIG mode is on"):
        adapter.create(uuids[0], SMALL)


def test_a_gpu_instance_that_is_not_there_gets_no_compute_instance(adapter, gpu):
    with pytest.raises(errors.Retryable, match=r"GPU instance 3.*Not Found.*removed it"):
        adapter.create_compute(gpu, 3)


CALLS = {
    "state": lambda adapter, gpu: adapter.state(gpu),
    "create": lambda adapter, gpu: adapter.create(gpu, SMALL),
    "create_compute": lambda adapter, gpu: adapter.create_compute(gpu, 0),
    "destroy_compute": lambda adapter, gpu: adapter.destroy_compute(gpu, 0, 0),
    "destroy": lambda adapter, gpu: adapter.destroy(gpu, 0),
    "set_mode": lambda adapter, gpu: adapter.set_mode(gpu, enabled=False),
    "users": lambda adapter, gpu: adapter.users(gpu),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_gpu_that_is_not_there_is_gone(adapter, machine, name):
    del machine
    with pytest.raises(nvml_mig.GpuGone, match=r"GPU-00000000.*no such GPU"):
        CALLS[name](adapter, "GPU-00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("name", CALLS)
def test_a_lost_gpu_is_gone(adapter, gpu, tmp_path, name):
    gpu_faults.inject(tmp_path, uuid=gpu, error=CODES["NVML_ERROR_GPU_IS_LOST"])

    with pytest.raises(nvml_mig.GpuGone, match=r"GPU is lost.*Xid"):
        CALLS[name](adapter, gpu)


@pytest.mark.parametrize("name", CALLS)
def test_a_driver_that_is_not_loaded_may_be_there_later(adapter, gpu, tmp_path, name):
    inject(tmp_path, "nvmlInitWithFlags", "DRIVER_NOT_LOADED")

    with pytest.raises(errors.Retryable, match="modprobe nvidia"):
        CALLS[name](adapter, gpu)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("state", "nvmlDeviceGetMigMode"),
        ("create", "nvmlDeviceCreateGpuInstanceWithPlacement"),
        ("create_compute", "nvmlGpuInstanceCreateComputeInstance"),
        ("destroy_compute", "nvmlComputeInstanceDestroy"),
        ("destroy", "nvmlGpuInstanceDestroy"),
        ("set_mode", "nvmlDeviceSetMigMode"),
    ],
)
@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        ("NO_PERMISSION", errors.Rejected, "capabilities/mig/config"),
        ("NOT_SUPPORTED", errors.Rejected, "can do MIG"),
        ("FUNCTION_NOT_FOUND", errors.Rejected, "newer NVIDIA driver"),
        ("RESET_REQUIRED", errors.Rejected, "--gpu-reset"),
        ("IN_USE", nvml_mig.InUse, "stop its processes"),
        ("INSUFFICIENT_RESOURCES", nvml_mig.NoRoom, "nvidia-smi mig -lgi"),
        ("UNKNOWN", errors.Retryable, "Unknown Error"),
        ("TIMEOUT", errors.Retryable, "Timeout"),
        ("INVALID_STATE", errors.Retryable, "NVML error 29"),
    ],
)
def test_errors_say_what_was_done_and_what_to_do(
    adapter, gpu, tmp_path, name, function, error, kind, remedy
):
    if name in {"create_compute", "destroy_compute", "destroy"}:
        adapter.create(gpu, SMALL)
    if name == "destroy_compute":
        adapter.create_compute(gpu, 0)
    inject(tmp_path, function, error)

    with pytest.raises(kind) as caught:
        CALLS[name](adapter, gpu)

    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"{gpu}: ")
    assert f"NVML error {CODES[f'NVML_ERROR_{error}']}" in str(caught.value)
    assert remedy in str(caught.value)


def test_a_gpu_instance_that_cannot_be_read_back_is_removed(adapter, gpu, tmp_path):
    inject(tmp_path, "nvmlGpuInstanceGetInfo", "UNKNOWN", times=1)

    with pytest.raises(errors.Retryable, match="NVML error 999"):
        adapter.create(gpu, SMALL)

    assert state_of(tmp_path).gpu_instances == []


@pytest.mark.parametrize(
    "function",
    ["nvmlComputeInstanceGetInfo", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetUUID"],
)
def test_a_compute_instance_that_cannot_be_read_back_is_removed(adapter, gpu, tmp_path, function):
    gi = adapter.create(gpu, SMALL)
    inject(tmp_path, function, "UNKNOWN", times=1)

    with pytest.raises(errors.Retryable, match="NVML error 999"):
        adapter.create_compute(gpu, gi)

    assert state_of(tmp_path).gpu_instances[0].compute_instances == []
    adapter.create_compute(gpu, gi)


def test_a_compute_instance_without_a_mig_device_is_removed(adapter, gpu, tmp_path):
    gi = adapter.create(gpu, SMALL)
    inject(tmp_path, "nvmlDeviceGetMigDeviceHandleByIndex", "NOT_FOUND")

    with pytest.raises(errors.Retryable, match="no MIG device for compute instance 0"):
        adapter.create_compute(gpu, gi)

    assert state_of(tmp_path).gpu_instances[0].compute_instances == []


def test_a_driver_without_a_spanning_compute_profile_is_told(
    adapter, machine, gpu, tmp_path, monkeypatch
):
    gi = adapter.create(gpu, WHOLE)
    real = machine.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def without_seven_slices(device, profile, engProfile, version=2):  # noqa: N803
        if profile == machine.NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE:
            raise machine.NVMLError(CODES["NVML_ERROR_NOT_SUPPORTED"])
        return real(device, profile, engProfile, version)

    monkeypatch.setattr(
        machine, "nvmlGpuInstanceGetComputeInstanceProfileInfo", without_seven_slices
    )

    with pytest.raises(errors.Rejected, match="no compute instance profile of 7 slices"):
        adapter.create_compute(gpu, gi)
    assert state_of(tmp_path).gpu_instances[0].compute_instances == []


def test_a_slow_change_of_one_gpu_holds_up_neither_another_one_nor_a_look(
    machine, uuids, monkeypatch
):
    library = nvml.Nvml(machine)
    adapter = nvml_mig.MigNvml(library)
    for uuid in uuids[:2]:
        adapter.set_mode(uuid, enabled=True)
    entered, finish, results, others = threading.Event(), threading.Event(), [], []
    real = machine.nvmlDeviceCreateGpuInstanceWithPlacement

    def slow(device, profileId, placement):  # noqa: N803
        if device.uuid == uuids[0]:
            entered.set()
            finish.wait()
        return real(device, profileId, placement)

    def meanwhile():
        others.append(make(adapter, uuids[1], WHOLE))
        others.append(library.discover())

    monkeypatch.setattr(machine, "nvmlDeviceCreateGpuInstanceWithPlacement", slow)
    worker = threading.Thread(target=lambda: results.append(make(adapter, uuids[0], SMALL)))
    witness = threading.Thread(target=meanwhile)
    worker.start()
    assert entered.wait(timeout=60)
    witness.start()
    witness.join(timeout=60)
    seen, finished = list(others), list(results)
    finish.set()
    worker.join()
    witness.join()

    assert finished == []
    assert len(seen) == 2, "the other GPU and the look had to wait"
    assert [gpu.instances for gpu in seen[1].gpus] == [(), (seen[0],), (), ()]
    assert adapter.state(uuids[0]).instances == tuple(results)
