"""On a real GPU: the limits of a daemon hold for CUDA programs. Its compute mode is left alone.

Each program is `mps_client.py`, which allocates until it is refused, and at most 8 GiB.
"""

import json
import os
import pathlib
import subprocess
import sys

import mps_client
import mps_scene
import polling
import pytest

from dra_driver.adapters import mps_local, patience, pids
from dra_driver.model import mps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.geteuid() != 0, reason="a daemon for all users needs root"),
]
GIB = 1024**3
PERCENT_TO_SPARE = 4
"""A share of the multiprocessors is rounded to pairs of them."""
MAY_MOUNT = (
    subprocess.run(
        [sys.executable, "-c", "from dra_driver.adapters import mounts; mounts.leave_namespace()"],
        capture_output=True,
        check=False,
    ).returncode
    == 0
)


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
    with Program(gpu, None) as program:
        return program.seen


@pytest.fixture
def scene():
    scene = mps_scene.Scene(pathlib.Path("/"))
    yield scene
    scene.close()


class Program:
    """A CUDA program that holds what it got until the end of the block."""

    def __init__(self, gpu, daemon, *flags, **environment):
        place = {} if daemon is None else {"CUDA_MPS_PIPE_DIRECTORY": daemon.pipe_dir}
        kept = {name: value for name, value in os.environ.items() if "CUDA" not in name}
        self.process = subprocess.Popen(
            [sys.executable, mps_client.__file__, "--hold", *flags],
            env={**kept, "CUDA_VISIBLE_DEVICES": gpu, **place, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seen = json.loads(self.process.stdout.readline())

    def usable(self):
        """Whether its context is usable to the end, which this is."""
        said, _ = self.process.communicate(timeout=60)
        return json.loads(said)["usable"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)


def seen(gpu, daemon, *flags, **environment):
    with Program(gpu, daemon, *flags, **environment) as program:
        return program.seen


def assert_capped(seen, alone, limits):
    if limits.memory_bytes is not None:
        # The context itself takes up to half a GiB of it.
        assert limits.memory_bytes - GIB <= seen["allocated"] <= limits.memory_bytes
    share = 100 * seen["sms"] / alone["sms"]
    wanted = limits.thread_percentage or 100
    assert wanted - PERCENT_TO_SPARE <= share <= wanted + PERCENT_TO_SPARE


def test_without_mps_a_program_has_the_whole_card(alone):
    assert alone["allocated"] == 8 * GIB
    assert alone["sms"] > 100


def test_a_program_is_refused_above_the_cap_and_sees_its_share(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))

    assert_capped(seen(gpu, daemon), alone, mps.Limits(30, 4 * GIB))


def test_a_program_cannot_raise_its_limits_and_can_lower_them(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))

    for memory in ("0=6G", f"{gpu}=6G"):
        raised = seen(
            gpu,
            daemon,
            CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100",
            CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=memory,
        )
        assert_capped(raised, alone, mps.Limits(30, 4 * GIB))
    lowered = seen(gpu, daemon, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G")
    assert_capped(lowered, alone, mps.Limits(30, 2 * GIB))


def test_a_cap_that_is_not_whole_gib_holds_to_the_mib(scene, gpu):
    daemon = scene.started(scene.daemon(device=gpu, limits=mps.Limits(None, 2560 * mps.MIB)))

    found = seen(gpu, daemon)

    # Told as 2G by the daemon. Of 2 GiB a program would have at most 1.6, after its context.
    assert 1900 * mps.MIB <= found["free"] <= 2560 * mps.MIB
    assert found["allocated"] <= 2560 * mps.MIB


def test_two_daemons_on_a_card_have_caps_of_their_own_at_once(scene, gpu, alone):
    small, large = mps.Limits(20, 2 * GIB), mps.Limits(60, 6 * GIB)
    one = scene.started(scene.daemon(1, small, device=gpu))
    two = scene.started(scene.daemon(2, large, device=gpu))

    with Program(gpu, one) as first, Program(gpu, two) as second:
        assert_capped(first.seen, alone, small)
        assert_capped(second.seen, alone, large)
        scene.launcher().stop(one, 15)
        assert second.usable()


def test_programs_of_different_users_run_at_once(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))

    # Each holds its context while the other starts: one that waited would never be served.
    with Program(gpu, daemon) as root, Program(gpu, daemon, "--uid", "1000") as user:
        assert_capped(root.seen, alone, mps.Limits(30, 4 * GIB))
        assert_capped(user.seen, alone, mps.Limits(30, 4 * GIB))
        assert len(scene.control(daemon).servers()) == 1
        assert root.usable()
        assert user.usable()


def test_after_the_death_of_a_daemon_its_limits_hold_again(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))
    with Program(gpu, daemon) as program:
        [server] = scene.control(daemon).servers()
        process, server_process = mps_scene.process(daemon), pids.find(server)

        mps_scene.kill(process)

        mps_scene.ready_after(daemon, process)
        assert pids.wait(server_process, 60)
        assert not program.usable()
    assert_capped(seen(gpu, daemon), alone, mps.Limits(30, 4 * GIB))
    assert_capped(seen(gpu, daemon, "--uid", "1000"), alone, mps.Limits(30, 4 * GIB))


def test_a_program_that_starts_while_its_daemon_is_away_waits_and_gets_the_limits(
    scene, gpu, alone
):
    daemon = scene.started(scene.daemon(device=gpu))
    # The first two times it is back at once, then after a second, which is time to start programs.
    for _ in range(2):
        process = mps_scene.process(daemon)
        mps_scene.kill(process)
        mps_scene.ready_after(daemon, process)
    mps_scene.kill(mps_scene.process(daemon))
    polling.until(lambda: mps_scene.has_clients_wait(daemon))

    with Program(gpu, daemon, "--uid", "1000") as user, Program(gpu, daemon) as root:
        assert_capped(user.seen, alone, mps.Limits(30, 4 * GIB))
        assert_capped(root.seen, alone, mps.Limits(30, 4 * GIB))


def test_other_limits_hold_for_programs_that_start_later(scene, gpu, alone):
    daemon, launcher = scene.started(scene.daemon(device=gpu)), scene.launcher()
    with Program(gpu, daemon) as before:
        other = daemon.limited(mps.Limits(60, 6 * GIB))
        launcher.reload(other)
        launcher.wait_ready(other, patience.Patience(60))
        assert_capped(seen(gpu, daemon), alone, other.limits)

        free = daemon.limited(mps.Limits())
        launcher.reload(free)
        launcher.wait_ready(free, patience.Patience(60))
        assert seen(gpu, daemon)["allocated"] == 8 * GIB
        assert before.usable()


def test_a_killed_supervisor_leaves_nothing_on_the_card(scene, gpu):
    daemon = scene.started(scene.daemon(device=gpu))
    with Program(gpu, daemon) as program:
        mps_scene.kill(mps_scene.supervisor(daemon))

        polling.until(lambda: mps_scene.processes_of(daemon) in ([], [program.process.pid]))
        assert not program.usable()


def test_nothing_is_left_after_a_stop_even_under_a_program(scene, gpu):
    daemon = scene.started(scene.daemon(device=gpu))
    with Program(gpu, daemon) as program:
        scene.launcher().stop(daemon, 15)

        assert not program.usable()
    assert mps_scene.runs_nothing(daemon)
    assert not pathlib.Path(daemon.directory).exists()
    assert scene.launcher().state(daemon) == mps_local.State.ABSENT


@pytest.mark.skipif(not MAY_MOUNT, reason="CAP_SYS_ADMIN is needed")
def test_with_a_shared_memory_of_its_own_a_daemon_works_and_leaves_no_mount(scene, gpu, alone):
    daemon = scene.daemon(device=gpu, shm_bytes=64 * mps.MIB)
    launcher = scene.launcher(private_shm=True)
    launcher.start(daemon)
    launcher.wait_ready(daemon, patience.Patience(60))

    assert_capped(seen(gpu, daemon), alone, mps.Limits(30, 4 * GIB))

    launcher.stop(daemon, 15)
    assert daemon.directory not in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
