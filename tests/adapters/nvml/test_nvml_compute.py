"""Compute modes over the simulated NVML."""

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_compute, nvml_errors, nvml_mig
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_operations, gpu_state, gpus

CODES = gpu_errors.CODES
ComputeMode = nvml_compute.ComputeMode


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2")


@pytest.fixture
def modes(machine):
    return nvml_compute.ComputeModes(nvml.Nvml(machine))


@pytest.fixture
def uuid(machine, tmp_path):
    return state_of(tmp_path).uuid


def state_of(tmp_path, index=0):
    return gpu_state.open_file(tmp_path).read().gpus[index]


def inject(tmp_path, function, error):
    gpu_faults.inject(tmp_path, function=function, error=CODES[f"NVML_ERROR_{error}"])


@pytest.mark.parametrize("mode", ComputeMode)
def test_a_mode_is_set_on_that_gpu_alone(modes, uuid, tmp_path, mode):
    modes.set(uuid, mode)

    assert modes.get(uuid) == mode
    assert state_of(tmp_path).compute_mode == mode
    assert state_of(tmp_path, 1).compute_mode == 0


def test_the_numbers_are_those_of_nvml(machine):
    assert machine.NVML_COMPUTEMODE_DEFAULT == ComputeMode.DEFAULT
    assert machine.NVML_COMPUTEMODE_PROHIBITED == ComputeMode.PROHIBITED
    assert machine.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS == ComputeMode.EXCLUSIVE_PROCESS


def test_a_mode_can_be_set_back(modes, uuid):
    modes.set(uuid, ComputeMode.EXCLUSIVE_PROCESS)
    modes.set(uuid, ComputeMode.DEFAULT)

    assert modes.get(uuid) == ComputeMode.DEFAULT


def test_a_mode_that_is_there_needs_no_permission(modes, uuid, tmp_path):
    inject(tmp_path, "nvmlDeviceSetComputeMode", "NO_PERMISSION")

    modes.set(uuid, ComputeMode.DEFAULT)

    with pytest.raises(errors.Rejected, match=f"{uuid}: .*EXCLUSIVE_PROCESS.*as root"):
        modes.set(uuid, ComputeMode.EXCLUSIVE_PROCESS)


@pytest.mark.parametrize("mode", [1, 4, -1])
def test_other_numbers_are_no_modes(modes, uuid, mode):
    with pytest.raises(errors.Rejected, match=rf"{uuid}: compute mode {mode}: .*0 \(DEFAULT\)"):
        modes.set(uuid, mode)


def test_a_mig_device_has_no_compute_mode_to_set(modes, uuid, tmp_path):
    made = gpu_operations.create_instance(tmp_path, uuid, "1g.10gb", 0)

    with pytest.raises(errors.Rejected, match="only a whole GPU has a compute mode"):
        modes.set(made.compute_instances[0].uuid, ComputeMode.EXCLUSIVE_PROCESS)


CALLS = {
    "nvmlDeviceGetComputeMode": lambda modes, uuid: modes.get(uuid),
    "nvmlDeviceSetComputeMode": lambda modes, uuid: modes.set(uuid, ComputeMode.PROHIBITED),
}


@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        ("NO_PERMISSION", errors.Rejected, "as root"),
        ("NOT_SUPPORTED", errors.Rejected, "nvidia-smi -q -d COMPUTE"),
        ("INVALID_ARGUMENT", errors.Rejected, "a whole GPU"),
        ("FUNCTION_NOT_FOUND", errors.Rejected, "newer NVIDIA driver"),
        ("RESET_REQUIRED", errors.Rejected, "--gpu-reset"),
        ("GPU_IS_LOST", nvml_errors.GpuGone, "Xid"),
        ("IN_USE", nvml_errors.InUse, "stop its processes"),
        ("TIMEOUT", errors.Retryable, "Timeout"),
        ("UNKNOWN", errors.Retryable, "Unknown Error"),
    ],
)
def test_errors_say_what_was_done_and_what_to_do(
    modes, uuid, tmp_path, function, error, kind, remedy
):
    inject(tmp_path, function, error)

    with pytest.raises(kind) as caught:
        CALLS[function](modes, uuid)

    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"{uuid}: ")
    assert remedy in str(caught.value)


@pytest.mark.parametrize("function", CALLS)
def test_a_gpu_that_is_not_there_is_gone(modes, function):
    with pytest.raises(nvml_errors.GpuGone, match=r"GPU-0000: .*no such GPU"):
        CALLS[function](modes, "GPU-0000")


@pytest.mark.parametrize("function", CALLS)
def test_a_driver_that_is_not_loaded_may_be_there_later(modes, uuid, tmp_path, function):
    inject(tmp_path, "nvmlInitWithFlags", "DRIVER_NOT_LOADED")

    with pytest.raises(errors.Retryable, match="modprobe nvidia"):
        CALLS[function](modes, uuid)


def test_a_gpu_that_is_gone_is_the_same_error_for_modes_and_for_mig():
    assert nvml_mig.GpuGone is nvml_errors.GpuGone
    assert nvml_mig.InUse is nvml_errors.InUse


def forgets(tmp_path):
    """The kernel's driver lets go of GPUs that nobody has open."""
    with gpu_state.open_file(tmp_path).edit() as state:
        for gpu in state.gpus:
            gpu.persistence_mode = False


def test_a_mode_that_stays_passes_the_check(modes, uuid):
    modes.set(uuid, ComputeMode.EXCLUSIVE_PROCESS)
    modes.check(uuid, ComputeMode.EXCLUSIVE_PROCESS)


def test_a_mode_that_does_not_stay_is_told_with_what_was_wanted_and_what_is_there(
    modes, uuid, tmp_path
):
    forgets(tmp_path)
    modes.set(uuid, ComputeMode.EXCLUSIVE_PROCESS)
    with pytest.raises(errors.Retryable) as caught:
        modes.check(uuid, ComputeMode.EXCLUSIVE_PROCESS)
    assert str(caught.value).startswith(
        f"{uuid}: compute mode EXCLUSIVE_PROCESS was set, and now it is DEFAULT: "
    )
    assert "nvidia-persistenced" in str(caught.value)


def test_no_mode_is_forgotten_while_modes_are_kept(modes, uuid, tmp_path):
    forgets(tmp_path)
    with modes.kept():
        modes.set(uuid, ComputeMode.EXCLUSIVE_PROCESS)
        assert modes.get(uuid) == ComputeMode.EXCLUSIVE_PROCESS
    assert modes.get(uuid) == ComputeMode.DEFAULT


def test_a_mode_has_its_name_and_one_that_is_not_known_its_number():
    assert nvml_compute.name(0) == "DEFAULT"
    assert nvml_compute.name(1) == "1"
