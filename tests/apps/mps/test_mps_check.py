"""What the kubelet runs to see whether a daemon is ready, as a process."""

import subprocess
import sys

import mps_scene
import pytest

from dra_driver.model import mps

pytestmark = pytest.mark.sampled(9)


def check(daemon):
    command = [sys.executable, "-m", "dra_driver", "mps-daemon", "--check"]
    return subprocess.run(
        [*command, "--file", mps_scene.domain(daemon).description],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_daemon_that_is_ready_passes(place):
    done = check(place.started(place.daemon()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_daemon_without_the_limits_that_are_wanted_does_not(place):
    daemon = place.started(place.daemon())
    mps_scene.domain(daemon).describe(daemon.limited(mps.Limits(60)))
    done = check(daemon)
    assert done.returncode == 1
    assert f"MPS daemon {daemon.id}: running" in done.stderr


def test_a_daemon_that_does_not_run_does_not(place):
    daemon = place.daemon()
    mps_scene.domain(daemon).create(daemon, shm=False)
    done = check(daemon)
    assert done.returncode == 1
    assert f"MPS daemon {daemon.id}: absent" in done.stderr


def test_where_no_daemon_is_wanted_none_is_ready(place):
    done = check(place.daemon())
    assert done.returncode == 1
    assert "daemon.json: no such file: no MPS daemon is wanted there" in done.stderr
