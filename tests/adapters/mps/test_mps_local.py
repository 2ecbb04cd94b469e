"""Daemons as processes of this machine: real processes, whose control program is simulated."""

import os
import pathlib
import signal
import subprocess
import sys

import mps_scene
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.system import patience, pids
from dra_driver.model import mps

pytestmark = pytest.mark.sampled(11)

GIB = 1024**3
ABSENT, RUNNING, READY = mps_local.State


@pytest.fixture
def scene():
    scene = mps_scene.Scene()
    yield scene
    scene.close()


def test_a_daemon_is_ready_with_its_limits_and_stopped_leaves_nothing(scene):
    daemon, launcher = scene.daemon(), scene.launcher()
    assert launcher.state(daemon) == ABSENT

    launcher.start(daemon)
    launcher.wait_ready(daemon, patience.Patience(60))

    assert launcher.state(daemon) == READY
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    assert len(mps_scene.processes_of(daemon)) >= 2

    launcher.stop(daemon, 60)

    assert launcher.state(daemon) == ABSENT
    assert mps_scene.runs_nothing(daemon)
    assert not pathlib.Path(daemon.directory).exists()
    assert mps_scene.connect(daemon).server is None


def test_the_program_may_be_beside_a_directory_of_libraries_that_is_given(scene):
    """Where the settings say that the libraries are, the supervisor looks too."""
    there = scene.driver_root / "opt/mine/bin" / scene.program.name
    there.parent.mkdir(parents=True)
    scene.program.rename(there)
    daemon, launcher = scene.daemon(), scene.launcher(library_dirs=("/no/lib", "/opt/mine/lib"))

    launcher.start(daemon)
    launcher.wait_ready(daemon, patience.Patience(60))

    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_starting_and_stopping_twice_is_fine(scene):
    daemon, launcher = scene.started(scene.daemon()), scene.launcher()
    first, process = mps_scene.supervisor(daemon), mps_scene.process(daemon)
    # What ends the driver's session, or its terminal's, does not end the daemon.
    assert os.getsid(first.pid) == first.pid

    launcher.start(daemon)

    assert mps_scene.supervisor(daemon) == first
    assert mps_scene.process(daemon) == process
    launcher.stop(daemon, 60)
    launcher.stop(daemon, 60)


def test_after_a_restart_of_the_driver_the_daemon_is_known_and_can_be_stopped(scene):
    daemon = scene.daemon()
    program = (
        "import pathlib, sys\n"
        "from dra_driver.adapters.mps import mps_local\n"
        "from dra_driver.adapters.system import patience\n"
        "from dra_driver.model import mps\n"
        "launcher = mps_local.LocalLauncher(pathlib.Path(sys.argv[1]), private_shm=False)\n"
        "daemon = mps.decode(sys.argv[2])\n"
        "launcher.start(daemon)\n"
        "launcher.wait_ready(daemon, patience.Patience(60))\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, scene.driver_root, mps.encode(daemon)],
        check=True,
        timeout=60,
    )

    launcher = scene.launcher()
    assert launcher.state(daemon) == READY
    before = mps_scene.supervisor(daemon)
    launcher.start(daemon)
    assert mps_scene.supervisor(daemon) == before

    launcher.stop(daemon, 60)
    assert mps_scene.runs_nothing(daemon)


def test_other_limits_reach_clients_that_connect_once_it_is_ready(scene):
    daemon, launcher = scene.started(scene.daemon()), scene.launcher()
    client = mps_scene.connect(daemon)
    other = daemon.limited(mps.Limits(60, None))
    assert launcher.state(other) == RUNNING

    launcher.reload(other)
    launcher.wait_ready(other, patience.Patience(60))

    assert mps_scene.caps(daemon) == (60, None)
    assert launcher.state(daemon) == RUNNING
    assert client.is_usable()
    client.close()


def test_who_waits_for_limits_that_another_claim_has_raised_meanwhile_waits_no_longer(scene):
    low, high = scene.daemon(limits=mps.Limits(30, None)), scene.daemon(limits=mps.Limits(50, None))
    launcher = scene.launcher()
    launcher.start(low)
    launcher.start(high)
    waiting = patience.Patience(60)
    launcher.wait_ready(low, waiting)
    assert launcher.is_changed(low)
    launcher.wait_ready(high, waiting)
    assert not launcher.is_changed(high)
    assert launcher.state(high) == mps_local.State.READY


@pytest.mark.parametrize("text", [None, "damaged"])
def test_a_daemon_of_which_nothing_says_what_is_wanted_is_not_wanted_otherwise(scene, text):
    daemon, description = scene.daemon(), mps_scene.domain(scene.daemon()).description
    if text is not None:
        description.parent.mkdir(parents=True)
        description.write_text(text)
    assert not scene.launcher().is_changed(daemon)


def test_limits_that_were_written_by_a_driver_that_died_then_are_applied_too(scene):
    daemon, launcher = scene.started(scene.daemon()), scene.launcher()
    other = daemon.limited(mps.Limits(60, None))
    mps_scene.domain(daemon).describe(other)
    assert launcher.state(other) == RUNNING

    launcher.start(other)

    launcher.wait_ready(other, patience.Patience(60))
    assert mps_scene.caps(daemon) == (60, None)


def test_a_daemon_for_another_device_is_not_taken_for_this_one(scene):
    daemon = scene.started(scene.daemon())
    other = scene.daemon(device="GPU-ffffffff-0000-4000-8000-000000000002")

    with pytest.raises(errors.Rejected, match=r"GPU-5b6e.*GPU-ffff.*stop it first"):
        scene.launcher().start(other)

    assert scene.launcher().state(daemon) == READY


def test_what_does_not_run_cannot_be_given_other_limits(scene):
    with pytest.raises(errors.Retryable, match="does not run"):
        scene.launcher().reload(scene.daemon())


def test_two_daemons_know_nothing_of_each_other(scene):
    one = scene.started(scene.daemon(1, mps.Limits(30, 4 * GIB)))
    two = scene.started(scene.daemon(2, mps.Limits(70, 8 * GIB)))
    client = mps_scene.connect(two)

    assert mps_scene.caps(one) == (30, 4 * GIB)
    assert mps_scene.caps(two) == (70, 8 * GIB)

    scene.launcher().stop(one, 60)

    assert scene.launcher().state(two) == READY
    assert client.is_usable()
    assert mps_scene.caps(two) == (70, 8 * GIB)
    client.close()


def test_a_supervisor_that_is_killed_leaves_no_daemon_and_is_started_again(scene):
    daemon, launcher = scene.started(scene.daemon()), scene.launcher()
    client, process = mps_scene.connect(daemon), mps_scene.process(daemon)

    mps_scene.kill(mps_scene.supervisor(daemon))

    assert pids.wait(process, 60)
    assert client.wait_unusable(60)
    assert launcher.state(daemon) == ABSENT
    assert mps_scene.runs_nothing(daemon)

    launcher.start(daemon)
    launcher.wait_ready(daemon, patience.Patience(60))
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    client.close()


def test_a_daemon_that_is_dead_is_not_ready_even_if_nobody_has_noticed(scene):
    daemon, launcher = scene.started(scene.daemon()), scene.launcher()
    supervisor = mps_scene.supervisor(daemon)
    assert pids.send(supervisor, signal.SIGSTOP)

    mps_scene.kill(mps_scene.process(daemon))

    assert launcher.state(daemon) == RUNNING
    assert pids.send(supervisor, signal.SIGCONT)
    launcher.wait_ready(daemon, patience.Patience(60))


def test_a_supervisor_that_does_not_end_is_killed_with_its_daemon(scene):
    daemon = scene.started(scene.daemon())
    assert pids.send(mps_scene.supervisor(daemon), signal.SIGSTOP)

    scene.launcher().stop(daemon, 0.1)

    assert mps_scene.runs_nothing(daemon)
    assert not pathlib.Path(daemon.directory).exists()


def test_a_process_that_got_the_number_of_a_supervisor_is_left_alone(scene):
    daemon = scene.daemon()
    domain = mps_scene.domain(daemon)
    domain.create(daemon, shm=False)
    stranger = subprocess.Popen(["sleep", "600"])
    found = pids.find(stranger.pid)
    text = f'{{"pid": {stranger.pid}, "start_time": {found.start_time - 1}}}'
    (pathlib.Path(daemon.directory) / "supervisor.json").write_text(text, encoding="utf-8")
    domain.say_ready(pids.Process(stranger.pid, found.start_time - 1), daemon.limits)

    launcher = scene.launcher()
    assert launcher.state(daemon) == ABSENT
    launcher.stop(daemon, 5)

    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_supervisor_that_cannot_work_says_why(scene):
    daemon = scene.daemon()
    scene.program.unlink()

    launcher = scene.launcher()
    launcher.start(daemon)

    with pytest.raises(
        errors.Retryable, match=r"it has ended, and its supervisor ended with 1: .*no nvidia"
    ):
        launcher.wait_ready(daemon, patience.Patience(60))


def test_a_daemon_that_dies_at_once_is_never_ready_and_says_why(scene):
    daemon, launcher = scene.daemon(), scene.launcher()
    scene.program.write_text("#!/bin/sh\necho out of order\nexit 3\n", encoding="utf-8")
    launcher.start(daemon)
    polling.until(lambda: "status 3" in mps_local.last_words(daemon))

    with pytest.raises(errors.Retryable, match=r": not ready within 0.5 s: .*status 3.*"):
        launcher.wait_ready(daemon, patience.Patience(0.5))

    launcher.stop(daemon, 60)
    assert mps_scene.runs_nothing(daemon)


def test_the_reason_that_a_daemon_logs_before_it_ends_is_told_whole(scene):
    daemon, launcher = scene.daemon(), scene.launcher()
    lines = "echo first; echo no such device; echo see the manual; echo goodbye"
    mps_scene.replace(scene.program, f"#!/bin/sh\n{lines}\nexit 3\n")
    launcher.start(daemon)
    polling.until(lambda: mps_scene.domain(daemon).problem())

    reason = r"exit status 3; its log ends with: no such device \| see the manual \| goodbye$"
    with pytest.raises(errors.Retryable, match=reason):
        launcher.wait_ready(daemon, patience.Patience(0.01))


def test_what_a_daemon_that_neither_answers_nor_ends_has_logged_is_told(scene):
    daemon, launcher = scene.daemon(), scene.launcher()
    mps_scene.replace(
        scene.program,
        '#!/bin/sh\n[ "$#" = 0 ] && exit 1\necho waits for the device\nexec sleep 600\n',
    )
    launcher.start(daemon)
    log = pathlib.Path(daemon.control_log)
    polling.until(lambda: log.exists() and log.read_text() != "")

    with pytest.raises(errors.Retryable, match=r"its log ends with: waits for the device$"):
        launcher.wait_ready(daemon, patience.Patience(0.01))


def test_a_reason_is_told_no_more_once_the_daemon_is_ready(scene):
    daemon, launcher = scene.daemon(), scene.launcher()
    good = scene.program.read_text(encoding="utf-8")
    mps_scene.replace(scene.program, "#!/bin/sh\necho out of order\nexit 3\n")
    launcher.start(daemon)
    polling.until(lambda: "out of order" in mps_scene.domain(daemon).problem())

    mps_scene.replace(scene.program, good)
    launcher.wait_ready(daemon, patience.Patience(60))

    assert mps_scene.domain(daemon).problem() == ""


def test_a_supervisor_whose_description_was_taken_away_does_not_start(scene):
    daemon = scene.daemon()
    domain = mps_scene.domain(daemon)
    domain.create(daemon, shm=False)
    domain.retire()

    done = subprocess.run(
        [
            *(sys.executable, "-m", "dra_driver", "mps-daemon"),
            *("--file", domain.description, "--driver-root", scene.driver_root),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert "no MPS daemon wanted" in done.stderr


def test_a_supervisor_that_outlives_the_removal_of_its_daemon_leaves_no_zombie(scene, monkeypatch):
    daemon, gate = scene.daemon(), scene.root / "gate"
    late = subprocess.Popen(["/bin/sh", "-c", f"until test -e {gate}; do sleep 0.01; done"])
    monkeypatch.setattr(mps_local, "_children", {daemon.directory: late})
    launcher = scene.launcher()

    try:
        launcher.remove(daemon)
        assert late in mps_local._leaving

        gate.touch()
        polling.until(lambda: launcher.state(daemon) is ABSENT and late not in mps_local._leaving)
        assert late.returncode == 0
    finally:
        late.kill()
        late.wait()


def test_a_supervisor_that_could_not_yet_say_who_it_is_stays_the_only_one(scene, monkeypatch):
    daemon = scene.daemon()
    gate = scene.root / "gate"
    script = f'touch {gate}.$$; until test -e {gate}; do sleep 0.01; done; exec "$@"'
    command = ("/bin/sh", "-c", script, "sh")
    command += (sys.executable, "-m", "dra_driver", "mps-daemon")
    before, after = (scene.launcher(command=command) for _ in range(2))
    # As when the driver is killed after it started a supervisor, and comes back at once.
    children = [{}, {}]
    for number, launcher in enumerate((before, after), start=1):
        monkeypatch.setattr(mps_local, "_children", children[number - 1])
        launcher.start(daemon)
        launcher.start(daemon)
        polling.until(lambda number=number: len([*scene.root.glob("gate.*")]) == number)

    gate.touch()

    after.wait_ready(daemon, patience.Patience(60))
    assert [launcher.state(daemon) for launcher in (before, after)] == [READY, READY]
    # The one that came too late may be about to end.
    polling.until(lambda: len(mps_scene.processes_of(daemon)) == 2)
    started = [child for of_one in children for child in of_one.values()]
    after.stop(daemon)
    assert sorted(child.wait(60) for child in started) == [0, 1]


def test_who_waits_for_the_end_of_a_daemon_lets_one_live_that_is_wanted_again(scene):
    """Another claim may start it as soon as the earlier one has ended."""
    daemon, launcher = scene.started(scene.daemon()), scene.launcher()
    earlier = mps_scene.supervisor(daemon)
    launcher.retire(daemon)
    polling.until(lambda: not pids.is_alive(earlier))
    scene.started(daemon)
    wanted = mps_scene.supervisor(daemon)

    launcher.wait_ended(daemon, patience.Patience(60), kindly=0)

    assert mps_scene.supervisor(daemon) == wanted
    assert launcher.state(daemon) == READY
