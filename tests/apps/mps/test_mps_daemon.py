"""The supervisor of a daemon, as a process of its own; its control program is simulated."""

import os
import pathlib
import re
import signal
import sys

import mps_scene
import mps_supervisor
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.mps import mps_domain
from dra_driver.adapters.system import mounts, pids
from dra_driver.model import mps

pytestmark = pytest.mark.sampled(13)

GIB = 1024**3
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def gate(place):
    """Nobody sets defaults before this file is there; `asked` is there when somebody wants to."""
    gate = place.root / "gate"
    mps_supervisor.wrap(
        place,
        'case "$*" in *-f*) exec "$real" "$@";; esac\n'
        "commands=$(cat)\n"
        f'case "$commands" in set_default*) touch {place.root}/asked\n'
        f"while test -d {place.root} && ! test -e {gate}; do sleep 0.01; done;; esac\n"
        'echo "$commands" | "$real"',
    )
    return gate


def test_it_is_not_ready_and_has_clients_wait_before_the_limits_hold(place, supervise, gate):
    daemon = place.daemon()
    supervisor = supervise(daemon)
    polling.until((place.root / "asked").exists)
    clients = [mps_scene.waiting_client(daemon) for _ in range(3)]

    assert supervisor.domain.ready() is None
    assert mps_scene.has_clients_wait(daemon)
    assert pathlib.Path(daemon.control_dir).stat().st_mode & 0o777 == 0o700

    gate.touch()

    assert [caps() for caps in clients] == [(30, 4 * GIB)] * 3
    supervisor.wait_ready()
    assert supervisor.domain.ready().limits == mps_scene.LIMITS
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_clients_that_start_while_their_daemon_is_dead_wait_and_get_the_limits(
    place, supervise, gate
):
    gate.touch()
    daemon = place.daemon()
    supervisor = supervise(daemon).wait_ready()
    gate.unlink()
    (place.root / "asked").unlink()

    mps_scene.kill(mps_scene.process(daemon))
    polling.until((place.root / "asked").exists)
    assert supervisor.domain.ready() is None
    assert mps_scene.has_clients_wait(daemon)
    clients = [mps_scene.waiting_client(daemon) for _ in range(3)]
    gate.touch()

    assert [caps() for caps in clients] == [(30, 4 * GIB)] * 3


def test_a_hangup_during_the_start_is_not_lost(place, supervise, gate):
    daemon = place.daemon()
    supervisor = supervise(daemon)
    polling.until((place.root / "asked").exists)

    supervisor.domain.describe(daemon.limited(mps.Limits(60, None)))
    supervisor.process.send_signal(signal.SIGHUP)
    gate.touch()

    supervisor.wait_log("MPS daemon has other limits")
    assert supervisor.domain.ready().limits == mps.Limits(60, None)
    assert mps_scene.caps(daemon) == (60, None)


def blocked_signals(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("SigBlk:")[2].split()[0], 16)


def test_a_daemon_that_dies_comes_back_with_the_same_limits_every_time(place, supervise):
    supervisor = supervise(place.daemon()).wait_ready()
    daemon = supervisor.daemon

    for _ in range(3):
        client, old = mps_scene.connect(daemon), mps_scene.process(daemon)
        mps_scene.kill(old)
        new = mps_scene.ready_after(daemon, old)

        assert client.wait_unusable(60)
        assert mps_scene.caps(daemon) == (30, 4 * GIB)
        assert pids.is_alive(new)
        assert blocked_signals(new) == 0
        client.close()

    died = [
        line["mps"]
        for line in supervisor.log("MPS daemon does not run; it is started again")
        if line["reason"].startswith("exit status -9; its log ends with: [")
    ]
    assert died == [daemon.id] * 3


def test_a_server_that_dies_does_not_take_the_daemon_with_it(place, supervise):
    supervisor = supervise(place.daemon()).wait_ready()
    client, process = mps_scene.connect(supervisor.daemon), mps_scene.process(supervisor.daemon)

    os.kill(client.server, signal.SIGKILL)

    assert client.wait_unusable(60)
    polling.until(lambda: place.control(supervisor.daemon).servers() == ())
    assert mps_scene.caps(supervisor.daemon) == (30, 4 * GIB)
    assert mps_scene.process(supervisor.daemon) == process
    client.close()


def test_as_the_first_process_of_a_container_it_leaves_no_zombies(place, supervise):
    first = (
        "import ctypes, os, sys\n"
        f"ctypes.CDLL(None).prctl({PR_SET_CHILD_SUBREAPER}, 1)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    command = [sys.executable, "-c", first, "-m", "dra_driver"]
    supervisor = supervise(place.daemon(), command=command).wait_ready()
    client, process = mps_scene.connect(supervisor.daemon), mps_scene.process(supervisor.daemon)

    mps_scene.kill(process)
    new = mps_scene.ready_after(supervisor.daemon, process)

    pid = supervisor.process.pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    polling.until(lambda: children.read_text(encoding="utf-8").split() == [str(new.pid)])
    assert not pathlib.Path(f"/proc/{client.server}").exists()
    client.close()


def test_killed_it_leaves_no_daemon_behind(place, supervise):
    supervisor = supervise(place.daemon()).wait_ready()
    client, process = mps_scene.connect(supervisor.daemon), mps_scene.process(supervisor.daemon)
    server = pids.find(client.server)

    supervisor.process.kill()
    supervisor.process.wait()

    assert pids.wait(process, 60)
    assert pids.wait(server, 60)
    client.close()


def test_told_to_end_it_ends_the_daemon_even_under_a_client(place, supervise):
    supervisor = supervise(place.daemon()).wait_ready()
    client = mps_scene.connect(supervisor.daemon)

    assert supervisor.stop() == 0

    assert client.wait_unusable(60)
    assert supervisor.domain.ready() is None
    assert mps_scene.runs_nothing(supervisor.daemon)
    client.close()


def test_a_daemon_that_does_not_quit_is_killed(place, supervise):
    mps_supervisor.wrap(
        place,
        'case "$*" in *-f*) exec "$real" "$@";; esac\n'
        'commands=$(cat)\ncase "$commands" in quit*) exit 0;; esac\necho "$commands" | "$real"',
    )
    supervisor = supervise(place.daemon()).wait_ready()

    assert supervisor.stop() == 0

    assert supervisor.log("MPS daemon does not end; it is killed")
    assert mps_scene.runs_nothing(supervisor.daemon)


def test_told_to_end_before_it_is_ready_it_ends(place, supervise):
    place.program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    supervisor = supervise(place.daemon())
    supervisor.wait_log("MPS daemon does not run; it is started again", 3)

    assert supervisor.stop() == 0


def test_a_hangup_gives_other_limits_to_clients_that_connect_then(place, supervise):
    daemon = place.daemon()
    supervisor = supervise(daemon).wait_ready()
    client, process = mps_scene.connect(daemon), mps_scene.process(daemon)

    supervisor.domain.describe(daemon.limited(mps.Limits(None, 6 * GIB)))
    supervisor.process.send_signal(signal.SIGHUP)
    supervisor.wait_log("MPS daemon has other limits")

    assert mps_scene.caps(daemon) == (100, 6 * GIB)
    assert client.is_usable()
    mps_scene.kill(process)
    mps_scene.ready_after(daemon, process)
    assert mps_scene.caps(daemon) == (100, 6 * GIB)
    client.close()


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("damaged", "description not used; the limits stay"),
        (
            lambda daemon: mps.encode(
                mps.daemon(
                    root=str(pathlib.Path(daemon.directory).parent),
                    daemon_id=daemon.id,
                    device="GPU-2",
                    shm_bytes=1,
                )
            ),
            "of a daemon that runs only limits can change",
        ),
    ],
)
def test_a_description_that_cannot_be_used_changes_nothing(place, supervise, text, event):
    supervisor = supervise(place.daemon()).wait_ready()
    process = mps_scene.process(supervisor.daemon)
    written = text if isinstance(text, str) else text(supervisor.daemon)
    supervisor.domain.description.write_text(written, encoding="utf-8")

    supervisor.process.send_signal(signal.SIGHUP)
    supervisor.wait_log(event)

    assert mps_scene.process(supervisor.daemon) == process
    assert mps_scene.caps(supervisor.daemon) == (30, 4 * GIB)


def test_limits_that_cannot_be_changed_now_are_changed_later_without_harm_to_clients(
    place, supervise
):
    daemon = place.daemon()
    broken = place.root / "broken"
    mps_supervisor.wrap(
        place,
        'case "$*" in *-f*) exec "$real" "$@";; esac\n'
        f'commands=$(cat)\ncase "$commands" in set_default*) test -e {broken} && exit 1;; esac\n'
        'echo "$commands" | "$real"',
    )
    supervisor = supervise(daemon).wait_ready()
    client = mps_scene.connect(daemon)
    broken.touch()
    supervisor.domain.describe(daemon.limited(mps.Limits(60, None)))
    supervisor.process.send_signal(signal.SIGHUP)
    supervisor.wait_log("limits could not be changed; tried again")
    assert supervisor.domain.ready() is None

    broken.unlink()

    supervisor.wait_log("MPS daemon has other limits")
    assert mps_scene.caps(daemon) == (60, None)
    assert client.is_usable()
    client.close()


def test_there_is_one_supervisor_of_a_daemon(place, supervise):
    daemon = place.daemon()
    first = supervise(daemon).wait_ready()
    second = supervise(daemon)

    assert second.process.wait(60) == 1
    assert mps_scene.supervisor(daemon).pid == first.process.pid
    text = (pathlib.Path(daemon.log_dir) / "supervisor.log").read_text(encoding="utf-8")
    assert f"MPS daemon in {daemon.directory}: another process supervises it" in text


def test_the_log_of_a_daemon_cannot_fill_the_disk_and_says_what_it_lacks(place, supervise):
    much = 30 * mps.MIB
    flood = f'head -c {much} /dev/zero | tr "\\000" x; echo'
    mps_supervisor.wrap(place, f'case "$*" in *-f*) {flood}; esac\nexec "$real" "$@"')
    supervisor = supervise(place.daemon()).wait_ready()
    log = pathlib.Path(supervisor.daemon.control_log)

    polling.until(lambda: "get_default_device" in log.read_text(encoding="utf-8"))

    kept = log.read_text(encoding="utf-8")
    found = re.search(r"\[\.\.\. (\d+) bytes were too much, and are not kept \.\.\.\]\n", kept)
    assert kept.count("x") + int(found[1]) >= much
    assert len(kept) < 2 * mps.MIB
    assert mps_scene.caps(supervisor.daemon) == (30, 4 * GIB)


def can_mount(path):
    try:
        mounts.mount_tmpfs(path, 4096)
    except Exception:  # noqa: BLE001 - whatever keeps this process from it
        return False
    mounts.unmount(path)
    return True


def test_with_a_private_memory_the_daemon_has_that_of_its_directory(place, supervise, tmp_path):
    if not can_mount(tmp_path):
        pytest.skip("root with CAP_SYS_ADMIN is needed")
    daemon = place.daemon(shm_bytes=2 * mps.MIB)
    supervisor = supervise(daemon, "--private-shm", shm=True).wait_ready()
    (pathlib.Path(daemon.shm_dir) / "mark").touch()

    seen = pathlib.Path(f"/proc/{mps_scene.process(daemon).pid}/root/dev/shm")
    assert [entry.name for entry in seen.iterdir()] == ["mark"]
    assert not pathlib.Path("/dev/shm/mark").exists()
    facts = os.statvfs(seen)
    assert facts.f_blocks * facts.f_frsize == 2 * mps.MIB

    assert supervisor.stop() == 0
    supervisor.domain.remove()
    assert not pathlib.Path(daemon.directory).exists()


def test_a_description_that_was_copied_from_another_directory_is_not_used(place):
    one, two = place.daemon(1), place.daemon(2)
    mps_scene.domain(one).create(one, shm=False)
    mps_scene.domain(two).create(two, shm=False)
    mps_scene.domain(two).describe(one)

    assert mps_scene.domain(one).read() == one
    with pytest.raises(errors.Rejected, match=rf"{two.id}/daemon.json: .* of {one.id}"):
        mps_scene.domain(two).read()


def test_a_directory_says_nothing_of_a_daemon_when_its_files_are_damaged(place):
    domain = mps_domain.Domain(place.root / "mps" / "x")
    domain.directory.mkdir(parents=True)
    for name in ("ready", "supervisor.json"):
        (domain.directory / name).write_text("{", encoding="utf-8")

    assert domain.ready() is None
    assert domain.supervisor() is None
