"""What simulated cards forget when nobody has them open any more, as the kernel's driver does."""

import subprocess
import sys

import mps_scene
import pytest

from dra_driver.sim.gpus import gpu_clients, gpu_operations, gpu_state, gpus, mps_program

pytestmark = pytest.mark.sampled(7)

EXCLUSIVE, DEFAULT = 3, 0
_OTHER_PROCESS = """
import sys
from dra_driver.sim.gpus import gpus
library = gpus.SimulatedNvml(__import__("pathlib").Path(sys.argv[1]))
library.nvmlInit()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def machine(tmp_path):
    made = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2")
    set_cards(tmp_path, persistence_mode=False)
    return made


@pytest.fixture
def other(machine, tmp_path):
    """Another program on that machine."""
    return gpus.SimulatedNvml(tmp_path)


def set_cards(directory, **fields):
    with gpu_state.open_file(directory).edit() as state:
        for gpu in state.gpus:
            for name, value in fields.items():
                setattr(gpu, name, value)


def cards(directory):
    return gpu_state.open_file(directory).read().gpus


def uuid(directory, number=0):
    return cards(directory)[number].uuid


def open_handle(library, directory, number=0):
    library.nvmlInit()
    return library.nvmlDeviceGetHandleByUUID(uuid(directory, number))


def set_mode(library, directory, number=0):
    handle = open_handle(library, directory, number)
    library.nvmlDeviceSetComputeMode(handle, EXCLUSIVE)


def mode(directory, number=0):
    """As a program of its own finds it."""
    library = gpus.SimulatedNvml(directory)
    handle = open_handle(library, directory, number)
    try:
        return library.nvmlDeviceGetComputeMode(handle)
    finally:
        library.nvmlShutdown()


def test_a_compute_mode_is_forgotten_with_the_last_client(machine, tmp_path):
    set_mode(machine, tmp_path)
    assert cards(tmp_path)[0].compute_mode == EXCLUSIVE
    machine.nvmlShutdown()
    assert cards(tmp_path)[0].compute_mode == DEFAULT
    assert mode(tmp_path) == DEFAULT


def test_with_persistence_mode_it_is_not(machine, tmp_path):
    set_cards(tmp_path, persistence_mode=True)
    set_mode(machine, tmp_path)
    machine.nvmlShutdown()
    assert mode(tmp_path) == EXCLUSIVE


def test_nvml_that_was_opened_twice_is_a_client_until_it_was_closed_twice(machine, tmp_path):
    machine.nvmlInit()
    set_mode(machine, tmp_path)
    machine.nvmlShutdown()
    assert mode(tmp_path) == EXCLUSIVE
    machine.nvmlShutdown()
    assert mode(tmp_path) == DEFAULT


def test_nvml_is_a_client_of_every_card_whichever_it_was_asked_for(machine, other, tmp_path):
    open_handle(other, tmp_path, 1)
    set_mode(machine, tmp_path, 0)
    machine.nvmlShutdown()
    assert mode(tmp_path, 0) == EXCLUSIVE
    other.nvmlShutdown()
    assert mode(tmp_path, 0) == DEFAULT


def test_a_process_on_the_card_is_a_client(machine, tmp_path):
    gpu_operations.start_process(tmp_path, uuid(tmp_path), 4711)
    set_mode(machine, tmp_path)
    machine.nvmlShutdown()
    assert mode(tmp_path) == EXCLUSIVE
    gpu_operations.end_process(tmp_path, uuid(tmp_path), 4711)
    assert mode(tmp_path) == DEFAULT


def test_another_process_with_nvml_open_is_a_client_until_it_is_killed(machine, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER_PROCESS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"open\n"
        set_mode(machine, tmp_path)
        machine.nvmlShutdown()
        assert mode(tmp_path) == EXCLUSIVE
        process.kill()
    assert mode(tmp_path) == DEFAULT


def test_mig_mode_and_time_slices_are_not_forgotten(machine, tmp_path):
    handle = open_handle(machine, tmp_path)
    machine.nvmlDeviceSetMigMode(handle, 1)
    set_cards(tmp_path, time_slice=2)
    machine.nvmlShutdown()
    mode(tmp_path)
    assert (cards(tmp_path)[0].mig_enabled, cards(tmp_path)[0].time_slice) == (True, 2)


@pytest.fixture
def place(machine, tmp_path):
    made = mps_scene.Scene()
    mps_program.install(made.driver_root, tmp_path)
    yield made
    made.close()


def test_an_mps_daemon_is_a_client_of_its_card_alone_before_any_program_connects(
    machine, tmp_path, place
):
    machine.nvmlInit()
    daemon = place.started(place.daemon(device=uuid(tmp_path, 1)))
    for number in (0, 1):
        set_mode(machine, tmp_path, number)
    for _ in range(3):
        machine.nvmlShutdown()
    assert [mode(tmp_path, number) for number in (0, 1)] == [DEFAULT, EXCLUSIVE]
    place.launcher().stop(daemon, 10)
    assert mode(tmp_path, 1) == DEFAULT


def test_a_daemon_that_is_killed_and_started_again_finds_the_mode_forgotten(
    machine, tmp_path, place
):
    machine.nvmlInit()
    daemon = place.started(place.daemon(device=uuid(tmp_path)))
    set_mode(machine, tmp_path)
    for _ in range(2):
        machine.nvmlShutdown()
    process = mps_scene.process(daemon)
    mps_scene.kill(process)
    mps_scene.ready_after(daemon, process)
    assert mode(tmp_path) == DEFAULT


def test_a_daemon_of_a_partition_is_a_client_of_the_card(machine, tmp_path):
    made = gpu_operations.create_instance(tmp_path, uuid(tmp_path, 1), "1g.10gb", 0)
    part = made.compute_instances[0].uuid
    assert gpu_clients.cards_of(tmp_path, [part]) == [uuid(tmp_path, 1)]
    assert gpu_clients.cards_of(tmp_path, ["GPU-0"]) == []
