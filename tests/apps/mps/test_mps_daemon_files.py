"""What becomes of a daemon when something is wrong with the files beside it."""

import os
import pathlib
import signal

import mps_scene
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.system import patience, pids
from dra_driver.model import mps

pytestmark = pytest.mark.sampled(11)

GIB = 1024**3


@pytest.fixture
def daemon(place):
    """One that is ready."""
    return place.started(place.daemon())


def log(daemon):
    return pathlib.Path(daemon.log_dir) / "control.log"


def supervisor_log(daemon):
    return (pathlib.Path(daemon.log_dir) / "supervisor.log").read_text()


def is_directory_now(path):
    """Put a directory where a file may be; False if the daemon was quicker to write it again."""
    path.unlink(missing_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def limit(place, daemon, percent):
    """Have its supervisor, which then looks at the log as well, give it other limits."""
    changed = daemon.limited(mps.Limits(percent, GIB))
    place.launcher().start(changed)
    place.launcher().wait_ready(changed, patience.Patience(60))


def test_a_description_that_says_the_same_again_does_not_make_a_daemon_unready(daemon):
    said = pathlib.Path(daemon.directory) / "ready"
    before = (said.stat().st_ino, said.stat().st_mtime_ns)
    asked = log(daemon).read_text().count("get_server_list")
    pids.send(mps_scene.supervisor(daemon), signal.SIGHUP)
    # A look at the description comes first.
    polling.until(lambda: log(daemon).read_text().count("get_server_list") > asked)

    assert (said.stat().st_ino, said.stat().st_mtime_ns) == before


def test_a_log_that_somebody_removes_ends_no_daemon(place, daemon):
    client, process, supervisor = (
        mps_scene.connect(daemon), mps_scene.process(daemon), mps_scene.supervisor(daemon)
    )  # fmt: skip
    log(daemon).unlink()
    limit(place, daemon, 40)
    limit(place, daemon, 50)
    assert client.is_usable()
    client.close()
    assert mps_scene.process(daemon) == process

    mps_scene.kill(process)
    mps_scene.ready_after(daemon, process)
    assert mps_scene.supervisor(daemon) == supervisor
    assert mps_scene.caps(daemon) == (50, GIB)


@pytest.mark.parametrize("name", ["control.log", "control.log.1"])
def test_a_log_that_cannot_be_written_or_put_aside_ends_no_daemon(place, daemon, name):
    client, process = mps_scene.connect(daemon), mps_scene.process(daemon)
    polling.until(lambda: is_directory_now(log(daemon).with_name(name)))
    limit(place, daemon, 40)
    limit(place, daemon, 50)
    assert client.is_usable()
    client.close()
    assert mps_scene.process(daemon) == process
    assert mps_scene.caps(daemon) == (50, GIB)


def test_what_a_supervisor_logs_itself_is_bounded_as_well(place):
    program, good = place.program, place.program.read_text()
    mps_scene.replace(program, "#!/bin/sh\nexit 3\n")
    daemon, launcher = place.daemon(), place.launcher()
    launcher.start(daemon)
    own = pathlib.Path(daemon.log_dir) / "supervisor.log"
    polling.until(lambda: "does not run" in own.read_text())
    with own.open("ab") as file:
        file.write(b"x" * 2 * mps.MIB)

    mps_scene.replace(program, good)
    launcher.wait_ready(daemon, patience.Patience(60))
    polling.until(own.with_name("supervisor.log.1").exists)
    limit(place, daemon, 40)

    polling.until(lambda: own.exists() and "MPS daemon has other limits" in own.read_text())
    assert own.stat().st_size < mps.MIB


def test_a_daemon_that_dies_while_no_file_can_be_made_is_back_when_one_can(place, daemon):
    process, supervisor = mps_scene.process(daemon), mps_scene.supervisor(daemon)
    hindrance = pathlib.Path(daemon.pipe_dir) / ".new"
    hindrance.mkdir()
    mps_scene.kill(process)
    polling.until(
        lambda: supervisor_log(daemon).count("does not run") > 1, what="more than one attempt"
    )
    hindrance.rmdir()

    mps_scene.ready_after(daemon, process)
    assert mps_scene.supervisor(daemon) == supervisor
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


# A directory in place of what is written aside, or of what is taken back: neither can be, then.
@pytest.mark.parametrize("name", [".ready.new", "ready"])
def test_limits_that_cannot_be_told_of_now_are_told_of_later_without_harm_to_clients(
    place, daemon, name
):
    client, process = mps_scene.connect(daemon), mps_scene.process(daemon)
    hindrance = pathlib.Path(daemon.directory) / name
    polling.until(lambda: is_directory_now(hindrance))
    changed = daemon.limited(mps.Limits(40, GIB))
    mps_scene.domain(daemon).describe(changed)
    pids.send(mps_scene.supervisor(daemon), signal.SIGHUP)
    polling.until(lambda: "could not be changed" in supervisor_log(daemon))
    hindrance.rmdir()
    place.launcher().wait_ready(changed, patience.Patience(60))
    assert mps_scene.process(daemon) == process
    assert client.is_usable()
    client.close()
    assert mps_scene.caps(daemon) == (40, GIB)


def test_a_file_that_goes_while_its_directory_is_removed_is_no_reason_to_leave_the_rest(
    place, daemon, monkeypatch
):
    unlink = os.unlink

    def as_another_does(path, **options):
        unlink(path, **options)
        if path == "control.log":
            raise FileNotFoundError(path)

    monkeypatch.setattr(os, "unlink", as_another_does)
    place.launcher().stop(daemon, 60)
    assert not pathlib.Path(daemon.directory).exists()


def test_a_directory_that_cannot_be_removed_now_is_an_error_that_may_pass(
    place, daemon, monkeypatch
):
    rmdir = os.rmdir

    def refusing(path, **options):
        if path == "log":
            raise OSError(39, "Directory not empty", path)
        rmdir(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refusing)
        with pytest.raises(errors.Retryable, match=rf"{daemon.id} cannot be removed: .*not empty"):
            place.launcher().stop(daemon, 60)
    place.launcher().stop(daemon, 60)
    assert not pathlib.Path(daemon.directory).exists()
