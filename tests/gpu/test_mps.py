"""On a real GPU: the limits of a daemon hold for CUDA programs. Its compute mode is left alone.

Each program is `mps_client.py`, which allocates until it is refused, and at most 8 GiB.
"""

import os
import pathlib
import subprocess
import sys

import gpu_program
import mps_scene
import polling
import pytest

from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.system import patience, pids
from dra_driver.model import mps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.geteuid() != 0, reason="a daemon for all users needs root"),
]
GIB = 1024**3
MAY_MOUNT = (
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from dra_driver.adapters.system import mounts; mounts.leave_namespace()",
        ],
        capture_output=True,
        check=False,
    ).returncode
    == 0
)


def test_without_mps_a_program_has_the_whole_card(alone):
    assert alone["allocated"] == 8 * GIB
    assert alone["sms"] > 100


def test_a_program_is_refused_above_the_cap_and_sees_its_share(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))

    gpu_program.assert_capped(gpu_program.seen(gpu, daemon), alone, mps.Limits(30, 4 * GIB))


def test_a_program_cannot_raise_its_limits_and_can_lower_them(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))

    for memory in ("0=6G", f"{gpu}=6G"):
        raised = gpu_program.seen(
            gpu,
            daemon,
            CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100",
            CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=memory,
        )
        gpu_program.assert_capped(raised, alone, mps.Limits(30, 4 * GIB))
    lowered = gpu_program.seen(gpu, daemon, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G")
    gpu_program.assert_capped(lowered, alone, mps.Limits(30, 2 * GIB))


def test_a_cap_that_is_not_whole_gib_holds_to_the_mib(scene, gpu):
    daemon = scene.started(scene.daemon(device=gpu, limits=mps.Limits(None, 2560 * mps.MIB)))

    found = gpu_program.seen(gpu, daemon)

    # Told as 2G by the daemon. Of 2 GiB a program would have at most 1.6, after its context.
    assert 1900 * mps.MIB <= found["free"] <= 2560 * mps.MIB
    assert found["allocated"] <= 2560 * mps.MIB


def test_two_daemons_on_a_card_have_caps_of_their_own_at_once(scene, gpu, alone):
    small, large = mps.Limits(20, 2 * GIB), mps.Limits(60, 6 * GIB)
    one = scene.started(scene.daemon(1, small, device=gpu))
    two = scene.started(scene.daemon(2, large, device=gpu))

    with gpu_program.Program(gpu, one) as first, gpu_program.Program(gpu, two) as second:
        gpu_program.assert_capped(first.seen, alone, small)
        gpu_program.assert_capped(second.seen, alone, large)
        scene.launcher().stop(one, 15)
        assert second.usable()


def test_programs_of_different_users_run_at_once(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))

    # Each holds its context while the other starts: one that waited would never be served.
    with (
        gpu_program.Program(gpu, daemon) as root,
        gpu_program.Program(gpu, daemon, "--uid", "1000") as user,
    ):
        gpu_program.assert_capped(root.seen, alone, mps.Limits(30, 4 * GIB))
        gpu_program.assert_capped(user.seen, alone, mps.Limits(30, 4 * GIB))
        assert len(scene.control(daemon).servers()) == 1
        assert root.usable()
        assert user.usable()


def test_after_the_death_of_a_daemon_its_limits_hold_again(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu))
    with gpu_program.Program(gpu, daemon) as program:
        [server] = scene.control(daemon).servers()
        process, server_process = mps_scene.process(daemon), pids.find(server)

        mps_scene.kill(process)

        mps_scene.ready_after(daemon, process)
        assert pids.wait(server_process, 60)
        assert not program.usable()
    gpu_program.assert_capped(gpu_program.seen(gpu, daemon), alone, mps.Limits(30, 4 * GIB))
    gpu_program.assert_capped(
        gpu_program.seen(gpu, daemon, "--uid", "1000"), alone, mps.Limits(30, 4 * GIB)
    )


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

    with (
        gpu_program.Program(gpu, daemon, "--uid", "1000") as user,
        gpu_program.Program(gpu, daemon) as root,
    ):
        gpu_program.assert_capped(user.seen, alone, mps.Limits(30, 4 * GIB))
        gpu_program.assert_capped(root.seen, alone, mps.Limits(30, 4 * GIB))


def test_other_limits_hold_for_programs_that_start_later(scene, gpu, alone):
    daemon, launcher = scene.started(scene.daemon(device=gpu)), scene.launcher()
    with gpu_program.Program(gpu, daemon) as before:
        other = daemon.limited(mps.Limits(60, 6 * GIB))
        launcher.reload(other)
        launcher.wait_ready(other, patience.Patience(60))
        gpu_program.assert_capped(gpu_program.seen(gpu, daemon), alone, other.limits)

        free = daemon.limited(mps.Limits())
        launcher.reload(free)
        launcher.wait_ready(free, patience.Patience(60))
        assert gpu_program.seen(gpu, daemon)["allocated"] == 8 * GIB
        assert before.usable()


def test_a_killed_supervisor_leaves_nothing_on_the_card(scene, gpu):
    daemon = scene.started(scene.daemon(device=gpu))
    with gpu_program.Program(gpu, daemon) as program:
        mps_scene.kill(mps_scene.supervisor(daemon))

        polling.until(lambda: mps_scene.processes_of(daemon) in ([], [program.process.pid]))
        assert not program.usable()


def test_nothing_is_left_after_a_stop_even_under_a_program(scene, gpu):
    daemon = scene.started(scene.daemon(device=gpu))
    with gpu_program.Program(gpu, daemon) as program:
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

    gpu_program.assert_capped(gpu_program.seen(gpu, daemon), alone, mps.Limits(30, 4 * GIB))

    launcher.stop(daemon, 15)
    assert daemon.directory not in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
