"""GPUs of which NVML does not tell what it tells of others."""

import pytest

from dra_driver.adapters.nvml import nvml
from dra_driver.model import devices
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_operations, gpu_state, gpus

CODES = gpu_errors.CODES
FACTS = {
    "nvmlDeviceGetMinorNumber": "minor number",
    "nvmlDeviceGetUUID": "UUID",
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetPciInfo": "PCI address",
}


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2")


def uuid(tmp_path, number=0):
    return gpu_state.open_file(tmp_path).read().gpus[number].uuid


def lack(tmp_path, *functions, error="NOT_SUPPORTED"):
    for function in functions:
        code = CODES[f"NVML_ERROR_{error}"]
        gpu_faults.inject(tmp_path, function=function, uuid=uuid(tmp_path), error=code)


def discover(machine):
    return nvml.Nvml(machine).discover()


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
@pytest.mark.parametrize("function", FACTS)
def test_what_a_gpu_cannot_do_without_is_named(machine, tmp_path, function, error):
    lack(tmp_path, function, error=error)
    found = discover(machine)
    assert [gpu.index for gpu in found.gpus] == [1]
    [failure] = found.failures
    assert failure.missing == (FACTS[function],)
    assert failure.reason == (
        f"NVML does not support telling its {FACTS[function]}, so it cannot be handed out"
    )


def test_all_that_is_missing_is_named(machine, tmp_path):
    lack(tmp_path, *FACTS)
    [failure] = discover(machine).failures
    assert failure.missing == tuple(FACTS.values())
    assert str(failure) == (
        "GPU 0: NVML does not support telling its minor number, UUID, name, PCI address, so it "
        "cannot be handed out"
    )


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "UNKNOWN", "TIMEOUT"])
def test_a_gpu_that_fails_lacks_nothing(machine, tmp_path, error):
    lack(tmp_path, "nvmlDeviceGetPciInfo", error=error)
    [failure] = discover(machine).failures
    assert failure.missing == ()
    assert failure.reason.startswith(f"NVML error {CODES[f'NVML_ERROR_{error}']} ")


def test_no_memory_at_all_is_memory_that_is_not_known(machine, monkeypatch):
    real = machine.nvmlDeviceGetMemoryInfo

    def told(handle, version=None):
        answer = real(handle, version)
        answer.total = 0
        return answer

    monkeypatch.setattr(machine, "nvmlDeviceGetMemoryInfo", told)
    assert [gpu.memory_bytes for gpu in discover(machine).gpus] == [None, None]


@pytest.mark.parametrize("mode", devices.Virtualization)
def test_what_a_gpu_is_to_a_hypervisor_is_read(machine, tmp_path, mode):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].virtualization = mode.value
    assert discover(machine).gpus[0].virtualization is mode


def test_a_vgpu_is_one(machine, tmp_path):
    gpu_operations.virtualize(tmp_path, uuid(tmp_path))
    assert [gpu.virtualization for gpu in discover(machine).gpus] == [
        devices.Virtualization.VGPU,
        devices.Virtualization.NONE,
    ]


def test_persistence_mode_and_compute_mode_are_read(machine, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].persistence_mode = False
        state.gpus[1].compute_mode = 3
    found = discover(machine).gpus
    assert [gpu.persistence_mode for gpu in found] == [False, True]
    assert [gpu.compute_mode for gpu in found] == [0, 3]
