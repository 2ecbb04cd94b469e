"""Talking to a control daemon, which here is the simulated one, in processes of its own."""

import pathlib
import signal
import subprocess
import sys

import mps_scene
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.mps import mps_control
from dra_driver.adapters.system import pids
from dra_driver.model import mps

pytestmark = pytest.mark.sampled(9)

GIB = 1024**3


@pytest.fixture
def scene():
    scene = mps_scene.Scene()
    yield scene
    scene.close()


@pytest.fixture
def daemon(scene):
    """A daemon with its directory; nothing runs."""
    daemon = scene.daemon()
    mps_scene.domain(daemon).create(daemon, shm=False)
    return daemon


@pytest.fixture
def control(scene, daemon):
    """Of a daemon whose own directory is that of its clients."""
    pipe_dir, log_dir = pathlib.Path(daemon.pipe_dir), pathlib.Path(daemon.log_dir)
    return mps_control.Control(scene.program, pipe_dir, log_dir, seconds=60)


@pytest.fixture
def running(control, daemon, tmp_path):
    """The process of a daemon that answers."""
    with (tmp_path / "output").open("wb") as output:
        process = control.start(daemon.device, output)
    try:
        polling.until(control.answers)
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_daemon_that_was_just_started_limits_nobody(running, control, daemon):
    assert control.answers()
    assert control.defaults() == mps.Limits()
    assert control.servers() == ()
    assert mps_scene.caps(daemon) == (100, None)


def test_defaults_hold_for_clients_that_come_later(running, control, daemon):
    control.set_defaults(mps.Limits(30, 4 * GIB))

    assert control.defaults() == mps.Limits(30, 4 * GIB)
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_a_default_does_not_reach_a_server_that_runs_but_its_own_limit_does(
    running, control, daemon
):
    control.set_defaults(mps.Limits(30, 4 * GIB))
    first = mps_scene.connect(daemon)
    [server] = control.servers()
    assert server == first.server

    control.set_defaults(mps.Limits(60, 6 * GIB))
    assert mps_scene.caps(daemon) == (30, 4 * GIB)

    assert control.set_server_limits(server, mps.Limits(60, 6 * GIB))
    assert mps_scene.caps(daemon) == (60, 6 * GIB)
    assert (first.caps.percentage, first.caps.memory) == (30, 4 * GIB)
    first.close()


def test_limits_can_be_taken_away(running, control, daemon):
    control.set_defaults(mps.Limits(30, 4 * GIB))
    client = mps_scene.connect(daemon)

    control.set_defaults(mps.Limits())
    assert control.set_server_limits(client.server, mps.Limits())

    assert control.defaults() == mps.Limits()
    assert mps_scene.caps(daemon) == (100, None)
    client.close()


def test_a_server_that_is_gone_takes_no_limits(running, control):
    assert not control.set_server_limits(1, mps.Limits(30, GIB))


def test_memory_that_the_daemon_tells_in_whole_gib_counts_as_held(running, control, daemon):
    limits = mps.Limits(None, 1500 * mps.MIB)

    control.set_defaults(limits)

    assert control.defaults() == mps.Limits(None, GIB) == mps_control.shown(limits)
    assert mps_scene.caps(daemon) == (100, 1500 * mps.MIB)


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        (mps.Limits(), mps.Limits()),
        (mps.Limits(100, 1023 * mps.MIB), mps.Limits(None, 1023 * mps.MIB)),
        (mps.Limits(99, 4095 * mps.MIB), mps.Limits(99, 3 * GIB)),
        (mps.Limits(1, GIB + 5), mps.Limits(1, GIB)),
    ],
)
def test_limits_are_shown_as_the_daemon_tells_them(limits, shown):
    assert mps_control.shown(limits) == shown


def scripted(tmp_path, script, seconds=60.0):
    """A control program that says what a shell script says."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return mps_control.Control(program, tmp_path, tmp_path, seconds=seconds)


def test_defaults_that_the_daemon_does_not_take_are_an_error(tmp_path):
    control = scripted(tmp_path, 'read line; case "$line" in *percentage*) echo 25.0;; esac')

    with pytest.raises(errors.Retryable, match=r"given .*=30.* and has .*=25"):
        control.set_defaults(mps.Limits(30, None))


def test_an_answer_that_nobody_understands_is_rejected(tmp_path):
    control = scripted(tmp_path, "echo surprise")

    with pytest.raises(errors.Rejected, match="'surprise'"):
        control.defaults()


def test_a_daemon_that_hangs_is_given_up(tmp_path):
    control = scripted(tmp_path, "exec sleep 600", seconds=0.5)

    with pytest.raises(errors.Retryable, match=r"no answer within 0.5 s to get_server_list"):
        control.servers()
    assert not control.answers()


def test_what_the_daemon_does_not_know_is_rejected_with_its_words(running, control):
    with pytest.raises(errors.Rejected, match=r'list; nonsense 1: Unknown .*"nonsense"'):
        control.ask("get_server_list", "nonsense 1")


def test_where_no_daemon_is_nobody_answers(control, daemon):
    assert not control.answers()
    with pytest.raises(errors.Retryable, match="Cannot find MPS control daemon process"):
        control.defaults()
    with pytest.raises(errors.Retryable, match="Cannot find MPS control daemon process"):
        control.quit(1)


def test_quitting_ends_the_daemon_and_its_clients(running, control, daemon):
    client = mps_scene.connect(daemon)

    control.quit(1)

    assert running.wait(60) == 0
    assert client.wait_unusable(60)
    assert not control.answers()
    client.close()


def test_the_servers_of_a_killed_daemon_end_with_it(running, control, daemon):
    client = mps_scene.connect(daemon)
    server = pids.find(client.server)

    running.kill()

    assert pids.wait(server, 60)
    assert client.wait_unusable(60)
    client.close()


def test_a_daemon_does_not_outlive_who_started_it(scene, daemon, tmp_path):
    program = (
        "import pathlib, sys, time\n"
        "from dra_driver.adapters.mps import mps_control\n"
        "program, pipe, device = sys.argv[1:]\n"
        "control = mps_control.Control(pathlib.Path(program), pathlib.Path(pipe),"
        " pathlib.Path(pipe))\n"
        "print(control.start(device, sys.stderr.buffer).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, scene.program, daemon.pipe_dir, daemon.device],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    child = pids.find(int(parent.stdout.readline()))
    assert child is not None

    parent.send_signal(signal.SIGKILL)

    assert pids.wait(child, 60)
    parent.wait()
    parent.stdout.close()


def layout(root):
    return driver_root.Layout(driver_root.Root(str(root), root))


def test_the_program_is_found_under_the_driver_root(scene):
    assert mps_control.find(scene.layout).path == scene.program


def test_under_another_root_the_libraries_are_looked_for_there(scene, tmp_path):
    lib = scene.driver_root / "usr/lib64"
    lib.mkdir(parents=True)
    (lib / "libcuda.so.1").touch()

    assert mps_control.find(scene.layout).environment["LD_LIBRARY_PATH"] == str(lib)


def test_the_servers_program_is_in_the_path_wherever_it_is(tmp_path):
    """The daemon looks for it there; with links the two need not be side by side."""
    for path in ("opt/bin/nvidia-cuda-mps-control", "usr/lib/nvidia/nvidia-cuda-mps-server"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-cuda-mps-server").symlink_to(
        "/usr/lib/nvidia/nvidia-cuda-mps-server"
    )

    assert mps_control.find(layout(tmp_path)).environment == {
        "PATH": f"{tmp_path}/opt/bin:{tmp_path}/usr/lib/nvidia:/usr/bin:/bin"
    }


def test_a_link_in_a_driver_root_is_followed_inside_it(tmp_path):
    real = tmp_path / "opt/driver"
    real.mkdir(parents=True)
    (real / "control").touch()
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin" / mps_control.PROGRAM).symlink_to("/opt/driver/control")

    assert mps_control.find(layout(tmp_path)).path == real / "control"


def test_a_driver_root_without_the_program_may_get_it(tmp_path):
    with pytest.raises(errors.Retryable, match=rf"driver root '{tmp_path}': no nvidia-cuda-mps"):
        mps_control.find(layout(tmp_path))


def test_a_program_that_cannot_be_run_is_named(tmp_path):
    control = mps_control.Control(tmp_path / "absent", tmp_path, tmp_path)

    with pytest.raises(errors.Rejected, match=r"absent cannot be run"):
        control.servers()
    with (
        pathlib.Path("/dev/null").open("wb") as output,
        pytest.raises(errors.Rejected, match=r"absent cannot be run"),
    ):
        control.start("GPU-1", output)
