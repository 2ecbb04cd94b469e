"""The MIG adapter over the simulated NVML: modes, and who uses a GPU."""

import types

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_mig
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_operations, gpu_state, gpus

CODES = gpu_errors.CODES


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:1,a100-40gb-sxm4:1,t4:1")


@pytest.fixture
def adapter(machine):
    return nvml_mig.MigNvml(nvml.Nvml(machine))


@pytest.fixture
def uuids(machine, tmp_path):
    return [gpu.uuid for gpu in gpu_state.open_file(tmp_path).read().gpus]


def modes(tmp_path, index=0):
    gpu = gpu_state.open_file(tmp_path).read().gpus[index]
    return gpu.mig_enabled, gpu.mig_pending


def test_hopper_is_switched_on_and_off(adapter, uuids, tmp_path):
    adapter.set_mode(uuids[0], enabled=True)
    assert modes(tmp_path) == (True, True)
    assert adapter.state(uuids[0]) == nvml_mig.MigState(
        enabled=True, pending=True, instances=(), minor=0
    )

    adapter.set_mode(uuids[0], enabled=False)
    assert modes(tmp_path) == (False, False)
    assert adapter.state(uuids[0]) == nvml_mig.MigState(
        enabled=False, pending=False, instances=(), minor=0
    )


def test_a_mode_that_is_there_is_not_set_again(adapter, uuids, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceSetMigMode", error=CODES["NVML_ERROR_UNKNOWN"])

    adapter.set_mode(uuids[0], enabled=False)


def test_a_mode_that_is_pending_from_others_is_settled(adapter, uuids, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].mig_pending = True

    assert adapter.state(uuids[0]) == nvml_mig.MigState(
        enabled=False, pending=True, instances=(), minor=0
    )
    adapter.set_mode(uuids[0], enabled=False)
    assert modes(tmp_path) == (False, False)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_gpu_in_use_keeps_its_mode_and_none_stays_pending(adapter, uuids, tmp_path, enabled):
    adapter.set_mode(uuids[0], not enabled)
    gpu_operations.start_process(tmp_path, uuids[0], 7)

    with pytest.raises(nvml_mig.InUse, match=f"switching MIG mode {'on' if enabled else 'off'}"):
        adapter.set_mode(uuids[0], enabled)
    assert modes(tmp_path) == (not enabled, not enabled)

    gpu_operations.end_process(tmp_path, uuids[0], 7)
    adapter.set_mode(uuids[0], enabled)
    assert modes(tmp_path) == (enabled, enabled)


def test_a_gpu_with_an_instance_keeps_its_mode(adapter, uuids, tmp_path):
    gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 0)

    with pytest.raises(nvml_mig.InUse, match="remove its instances"):
        adapter.set_mode(uuids[0], enabled=False)
    assert modes(tmp_path) == (True, True)


def test_a_mode_that_needs_a_reset_is_rejected_with_the_commands(adapter, uuids, tmp_path):
    with pytest.raises(errors.Rejected) as caught:
        adapter.set_mode(uuids[1], enabled=True)

    assert f"nvidia-smi -i {uuids[1]} -mig 1" in str(caught.value)
    assert "--gpu-reset" in str(caught.value)
    assert modes(tmp_path, 1) == (False, False)


def test_a_mode_that_stays_the_old_one_without_a_reason_is_rejected(
    adapter, machine, uuids, monkeypatch
):
    monkeypatch.setattr(machine, "nvmlDeviceSetMigMode", lambda _device, _mode: 0)

    with pytest.raises(errors.Rejected, match="reset"):
        adapter.set_mode(uuids[0], enabled=True)


def test_the_reason_counts_when_the_pending_mode_cannot_be_taken_back(
    adapter, machine, uuids, tmp_path, monkeypatch
):
    gpu_operations.start_process(tmp_path, uuids[0], 7)
    real, asked = machine.nvmlDeviceSetMigMode, []

    def once(device, mode):
        asked.append(mode)
        if len(asked) > 1:
            raise machine.NVMLError(CODES["NVML_ERROR_UNKNOWN"])
        return real(device, mode)

    monkeypatch.setattr(machine, "nvmlDeviceSetMigMode", once)

    with pytest.raises(nvml_mig.InUse):
        adapter.set_mode(uuids[0], enabled=True)
    assert asked == [1, 0]


def test_a_gpu_that_cannot_do_mig_is_rejected(adapter, uuids):
    for call in (
        lambda: adapter.state(uuids[2]),
        lambda: adapter.set_mode(uuids[2], enabled=True),
    ):
        with pytest.raises(errors.Rejected, match="Not Supported"):
            call()


def test_with_mig_mode_off_nobody_is_asked_for_instances(adapter, uuids, tmp_path):
    gpu_faults.inject(
        tmp_path, function="nvmlDeviceGetGpuInstances", error=CODES["NVML_ERROR_NOT_SUPPORTED"]
    )

    assert adapter.state(uuids[0]).instances == ()


def test_users_are_told_with_their_instances(adapter, uuids, tmp_path):
    made = gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 0)
    gpu_operations.start_process(tmp_path, uuids[0], 9, gi=made.id, ci=0)
    gpu_operations.start_process(tmp_path, uuids[1], 7)

    assert adapter.users(uuids[0]) == (nvml_mig.GpuProcess(9, made.id),)
    assert adapter.users(uuids[1]) == (nvml_mig.GpuProcess(7, None),)
    assert adapter.users(uuids[2]) == ()


def test_users_of_all_kinds_are_told_once(adapter, machine, uuids, tmp_path, monkeypatch):
    gpu_operations.start_process(tmp_path, uuids[0], 9)

    def listing(*pids):
        return lambda _handle: [
            types.SimpleNamespace(pid=pid, gpuInstanceId=0xFFFFFFFF) for pid in pids
        ]

    for function, pids in (
        ("nvmlDeviceGetGraphicsRunningProcesses", (9, 12)),
        ("nvmlDeviceGetMPSComputeRunningProcesses", (3,)),
    ):
        monkeypatch.setattr(machine, function, listing(*pids), raising=False)

    assert [user.pid for user in adapter.users(uuids[0])] == [3, 9, 12]


@pytest.mark.parametrize(
    ("kind", "code", "is_told"),
    [
        ("Compute", "NOT_SUPPORTED", False),
        ("Compute", "NO_PERMISSION", False),
        ("Compute", "UNKNOWN", False),
        ("Graphics", "NOT_SUPPORTED", True),
        ("Graphics", "UNKNOWN", False),
        ("MPSCompute", "FUNCTION_NOT_FOUND", True),
        ("MPSCompute", "NO_PERMISSION", False),
    ],
)
def test_users_are_surely_told_or_not_at_all(
    adapter, machine, uuids, tmp_path, monkeypatch, kind, code, is_told
):
    gpu_operations.start_process(tmp_path, uuids[0], 9)

    def refused(_handle):
        raise machine.NVMLError(CODES[f"NVML_ERROR_{code}"])

    monkeypatch.setattr(machine, f"nvmlDeviceGet{kind}RunningProcesses", refused, raising=False)
    if is_told:
        assert adapter.users(uuids[0], surely=True) == (nvml_mig.GpuProcess(9, None),)
        return
    with pytest.raises(errors.DriverError, match="listing its processes"):
        adapter.users(uuids[0], surely=True)


def test_a_kind_of_user_that_nvml_does_not_tell_is_left_out(adapter, uuids, tmp_path):
    gpu_faults.inject(
        tmp_path,
        function="nvmlDeviceGetComputeRunningProcesses",
        error=CODES["NVML_ERROR_NOT_SUPPORTED"],
    )

    assert adapter.users(uuids[0]) == ()


class Relapsing(gpus.SimulatedNvml):
    """Something else switches the mode back once NVML is closed."""

    def nvmlShutdown(self):  # noqa: N802 - as pynvml calls it
        super().nvmlShutdown()
        with gpu_state.open_file(self._state_dir).edit() as state:
            state.gpus[0].mig_enabled = state.gpus[0].mig_pending = False


def test_a_mode_is_read_back_with_nvml_closed_in_between(machine, uuids, tmp_path):
    adapter = nvml_mig.MigNvml(nvml.Nvml(Relapsing(tmp_path)))
    with pytest.raises(errors.Retryable) as caught:
        adapter.set_mode(uuids[0], enabled=True)
    assert str(caught.value) == (
        f"{uuids[0]}: MIG mode was switched on, and now it is off: see whether something else "
        "switches it (nvidia-smi -mig)"
    )


def test_the_minor_number_is_that_of_this_moment(adapter, uuids, tmp_path):
    assert adapter.minor(uuids[0]) == 0
    gpu_faults.renumber(tmp_path, uuids[0], 2)
    assert adapter.set_mode(uuids[0], enabled=True) == 2
    assert [adapter.minor(uuid) for uuid in uuids] == [2, 1, 0]
    assert adapter.state(uuids[0]).minor == 2
    assert adapter.set_mode(uuids[0], enabled=True) == 2


def test_a_guest_does_not_change_the_mode_of_its_vgpu(adapter, uuids, tmp_path):
    gpu_operations.virtualize(tmp_path, uuids[0])
    with pytest.raises(errors.Rejected, match="Not Supported"):
        adapter.set_mode(uuids[0], enabled=True)
