"""What the tests on real GPUs share."""

import pathlib
import subprocess

import gpu_program
import mps_scene
import pytest


@pytest.fixture(scope="module")
def gpu():
    """The UUID of the first GPU."""
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return listed.stdout.split()[0]


@pytest.fixture(scope="module")
def alone(gpu):
    """What a program without MPS sees of it."""
    with gpu_program.Program(gpu, None) as program:
        return program.seen


@pytest.fixture
def scene():
    scene = mps_scene.Scene(pathlib.Path("/"))
    yield scene
    scene.close()
