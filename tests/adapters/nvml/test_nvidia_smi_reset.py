"""Resets through nvidia-smi: what it says is understood, and one that hangs is ended."""

import pathlib

import pytest

from dra_driver import errors
from dra_driver.adapters.driver import driver_programs
from dra_driver.adapters.nvml import nvidia_smi, nvml_errors
from dra_driver.adapters.system import processes

UUID = "GPU-10b7c986-0704-56e9-9209-63ac03ea852f"
OTHER = "GPU-f782d9f9-31c7-5ce6-89fb-155715ce6fc9"
DONE = "GPU 00000000:04:00.0 was successfully reset.\nAll done.\n"
IN_USE = """\
The following GPUs could not be reset:
  GPU 00000000:1A:00.0: In use by another client

1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA
application, graphics application such as an X server, or a monitoring application such as another
instance of nvidia-smi). Please first kill all processes using this device and all compute
applications running in the system.
"""
OLDER = "GPU 00000000:C1:00.0 is currently in use by another process.\n"
PRIMARY = "GPU Reset couldn't run because GPU 00000000:01:00.0 is the primary GPU.\n"
TOGETHER = (
    "GPU Reset couldn't progress because the specified devices do not meet the reset criterion "
    "(e.g. NVLink connected GPUs must be reset together). Please append the following device "
    "indexes to the command line and retry.\n1\n"
)
UNSTABLE = """\
Error encountered during reset of GPU 00000000:04:00.0: Unknown Error
1 device did not complete reset successfully, and may be in an unstable state. Please reboot your
system.
"""
LINKED = "The following GPUs could not be reset:\n  GPU 00000000:8B:00.0: Not Supported\n"


@pytest.fixture
def program(tmp_path):
    """Makes an nvidia-smi that says something, and gives what it is run with."""

    def make(text, status, *, seconds=60.0, before=""):
        path = tmp_path / "nvidia-smi"
        path.write_text(
            f'#!/bin/sh\necho "$@" >{tmp_path}/run\n{before}\n'
            f'cat <<"END"\n{text}END\nexit {status}\n'
        )
        path.chmod(0o755)
        found = driver_programs.Program(path, {"PATH": "/usr/bin:/bin"})
        return nvidia_smi.NvidiaSmi(lambda: found, reset_seconds=seconds)

    return make


def test_a_reset_names_the_cards_by_their_uuids(program, tmp_path):
    program(DONE, 0).reset([UUID])
    assert (tmp_path / "run").read_text() == f"--gpu-reset -i {UUID}\n"


def test_several_are_reset_at_once(program, tmp_path):
    program(DONE + DONE, 0).reset([UUID, OTHER])
    assert (tmp_path / "run").read_text() == f"--gpu-reset -i {UUID},{OTHER}\n"


def test_one_of_two_is_not_enough(program):
    with pytest.raises(errors.Rejected, match="ended with 0 and said: GPU 0"):
        program(DONE, 0).reset([UUID, OTHER])


@pytest.mark.parametrize("text", [IN_USE, OLDER])
def test_one_that_somebody_has_open_is_in_use(program, text):
    with pytest.raises(nvml_errors.InUse, match=r"in use by|In use by"):
        program(text, 255).reset([UUID])


def test_where_one_of_two_was_reset_something_was_done(program):
    with pytest.raises(errors.Rejected, match="ended with 255"):
        program(DONE + IN_USE, 255).reset([UUID, OTHER])


@pytest.mark.parametrize(
    ("text", "status"),
    [(PRIMARY, 3), (PRIMARY, 0), (LINKED, 255), (TOGETHER, 255), (UNSTABLE, 255)],
)
def test_one_that_cannot_be_reset_is_refused_with_what_it_said(program, text, status):
    said = text.splitlines()[0][:30]
    with pytest.raises(errors.Rejected, match=said):
        program(text, status).reset([UUID])


def test_one_that_is_lost_is_gone(program):
    with pytest.raises(nvml_errors.GpuGone, match="reboot the node"):
        program("Unable to determine the device handle: GPU is lost.\n", 15).reset([UUID])


def test_one_that_hangs_is_killed_and_told(program):
    smi = program(DONE, 0, seconds=0.2, before="sleep 3600")
    with pytest.raises(nvidia_smi.Hung, match=r"did not end within 0\.2 s"):
        smi.reset([UUID])
    assert processes.Processes(pathlib.Path("/proc")).running(*smi.traces(UUID)) == []


def test_what_is_no_uuid_of_a_gpu_is_never_reset(program, tmp_path):
    for name in ("0", "", "MIG-1", "GPU-1 -r", "--all", "all"):
        with pytest.raises(errors.Rejected, match="expected the UUID of a whole GPU"):
            program(DONE, 0).reset([name])
    assert not (tmp_path / "run").exists()
