"""Clients that connect to a daemon and say nothing: real processes, sockets and supervisors."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys

import mps_scene
import mps_supervisor
import polling
import pytest

from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.system import pids
from dra_driver.model import mps

pytestmark = pytest.mark.sampled(11)

GIB = 1024**3
FOREVER = 1000.0
QUICK = {
    "between": 0.05, "strict_between": 0.05, "late": 0.1, "slow": FOREVER, "silent": 0.3,
    "strict_silent": 0.05, "strict": FOREVER, "patience": FOREVER,
}  # fmt: skip
HASTY = pathlib.Path(__file__).parents[2] / "hasty_supervisor.py"
UNANSWERED, CUT = (
    "MPS daemon does not answer",
    "clients of the MPS daemon that said nothing were cut off",
)


@pytest.fixture
def hasty(supervise):
    """Starts a supervisor that waits for less, for as long as `times` say."""

    def start(daemon, **times):
        told = json.dumps(QUICK | times)
        return supervise(daemon, command=[sys.executable, str(HASTY), told]).wait_ready()

    return start


@contextlib.contextmanager
def silent_client(daemon):
    """One that the daemon has accepted, and waits for."""
    with silently_connected(daemon) as client:
        assert client.recv(64) == b"OUTBHELL\0"
        yield client


@contextlib.contextmanager
def silently_connected(daemon):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(60)
        client.connect(f"{daemon.pipe_dir}/control")
        yield client


def is_cut(client):
    """Waits until it is."""
    while said := client.recv(64):
        assert said == b"OUTBHELL\0"
    return True


def me():
    return f"process {os.getpid()} of user {os.getuid()}"


def test_a_silent_client_is_told_of_with_who_it_is_and_the_daemon_is_not_ready_meanwhile(
    place, hasty
):
    supervisor = hasty(place.daemon(), silent=FOREVER)
    daemon, process = supervisor.daemon, mps_scene.process(supervisor.daemon)
    with silent_client(daemon):
        polling.until(supervisor.domain.problem)
        expected = f"it does not answer: {me()} has connected, and says nothing"
        assert supervisor.domain.problem() == expected
        assert supervisor.domain.ready() is None
        assert place.launcher().state(daemon) is mps_local.State.RUNNING
        assert expected in mps_local.why(daemon)
        # So neither a restart nor a queue of silent ones costs who comes now its limits.
        assert mps_scene.has_clients_wait(daemon)
    supervisor.wait_log("MPS daemon answers again")
    assert mps_scene.process(daemon) == process
    assert supervisor.domain.problem() == ""
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    assert supervisor.log(CUT) == []


def test_a_silent_client_is_cut_off_and_all_others_go_on(place, hasty):
    supervisor = hasty(place.daemon())
    daemon, process = supervisor.daemon, mps_scene.process(supervisor.daemon)
    at_work = mps_scene.connect(daemon)
    with silent_client(daemon) as silent:
        starting = mps_scene.waiting_client(daemon)
        assert is_cut(silent)
        assert starting() == (30, 4 * GIB)
    supervisor.wait_log("MPS daemon answers again")
    assert mps_scene.process(daemon) == process
    assert at_work.is_usable()
    at_work.close()
    assert [line["reason"] for line in supervisor.log(UNANSWERED)] == [
        f"it does not answer: {me()} has connected, and says nothing"
    ]
    [line] = supervisor.log(CUT)
    assert (line["count"], line["last_pid"], line["last_uid"]) == (1, os.getpid(), os.getuid())


def test_a_queue_of_silent_clients_passes_and_an_honest_one_gets_its_turn(place, hasty):
    supervisor = hasty(place.daemon())
    daemon, process = supervisor.daemon, mps_scene.process(supervisor.daemon)
    with contextlib.ExitStack() as stack:
        queue = [stack.enter_context(silently_connected(daemon)) for _ in range(40)]
        honest = mps_scene.waiting_client(daemon)
        assert all(map(is_cut, queue))
        assert honest() == (30, 4 * GIB)
    supervisor.wait_log("MPS daemon answers again")
    assert mps_scene.process(daemon) == process
    # A line for some, and not one for each.
    assert len(supervisor.log(CUT)) < len(queue) / 2


def test_where_nobody_can_be_cut_off_the_daemon_is_started_again(place, hasty):
    supervisor = hasty(place.daemon(), blind=True, slow=0.1, patience=3.0)
    daemon, process = supervisor.daemon, mps_scene.process(supervisor.daemon)
    with silent_client(daemon) as silent:
        supervisor.wait_log(UNANSWERED)
        assert polling.until(lambda: mps_scene.has_clients_wait(daemon))
        starting = mps_scene.waiting_client(daemon)
        assert mps_scene.ready_after(daemon, process)
        assert is_cut(silent)
        assert starting() == (30, 4 * GIB)
    assert "pidfd_getfd" in supervisor.log(CANNOT)[0]["reason"]
    line, *_ = supervisor.log("MPS daemon does not run; it is started again")
    assert line["reason"].startswith("no answer within 3 s; it has not answered for 0.1 s")
    assert not pids.is_alive(process)


CANNOT = (
    "silent clients of the MPS daemon cannot be cut off here; if it does not answer, it is started "
    "again"
)


def test_a_daemon_that_is_slow_is_told_of_and_left_alone(place, hasty):
    supervisor = hasty(place.daemon(), slow=0.2)
    daemon, process = supervisor.daemon, mps_scene.process(supervisor.daemon)
    client = mps_scene.connect(daemon)
    assert pids.send(process, signal.SIGSTOP)
    polling.until(lambda: supervisor.domain.problem() == "it has not answered for 0.2 s")
    assert supervisor.domain.ready() is None

    assert pids.send(process, signal.SIGCONT)

    supervisor.wait_log("MPS daemon answers again")
    assert mps_scene.process(daemon) == process
    assert client.is_usable()
    client.close()


def test_the_connections_of_a_daemons_own_processes_are_never_cut(place, hasty):
    gate, result = place.root / "gate", place.root / "result"
    server = (
        "import os, pathlib, socket, sys, time\n"
        "with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:\n"
        f"    while not pathlib.Path('{place.root}/begin').exists(): time.sleep(0.01)\n"
        "    own.connect(os.environ['CUDA_MPS_PIPE_DIRECTORY'] + '/control')\n"
        f"    while not pathlib.Path('{gate}').exists(): time.sleep(0.01)\n"
        "    own.recv(64)\n"
        "    own.setblocking(False)\n"
        "    try: left = own.recv(64)\n"
        "    except BlockingIOError: left = None\n"
        f"pathlib.Path('{result}').write_text(repr(left))\n"
    )
    script = place.root / "server.py"
    script.write_text(server)
    mps_supervisor.wrap(
        place, f'case "$*" in *-f*) {sys.executable} -I -S {script} & esac\nexec "$real" "$@"'
    )
    supervisor = hasty(place.daemon(), silent=0.05, slow=0.3)
    process = mps_scene.process(supervisor.daemon)
    (place.root / "begin").touch()
    # It was looked at for much longer than anybody else may be silent.
    [line] = supervisor.wait_log(UNANSWERED)
    assert line["reason"] == "it has not answered for 0.3 s"

    gate.touch()

    supervisor.wait_log("MPS daemon answers again")
    assert polling.until(lambda: result.exists() and result.read_text()) == "None"
    assert mps_scene.process(supervisor.daemon) == process
    assert supervisor.log(CUT) == []


def test_told_to_end_under_a_silent_client_it_does_not_wait_for_it(place, hasty):
    supervisor = hasty(place.daemon(), between=FOREVER, late=FOREVER, silent=FOREVER)
    with silent_client(supervisor.daemon) as silent:
        assert supervisor.stop() == 0
        assert is_cut(silent)
    [line] = supervisor.log("MPS daemon does not end; it is killed")
    assert line["error"] == "a client that says nothing keeps it from hearing of it"
    assert mps_scene.runs_nothing(supervisor.daemon)


def test_told_to_end_while_it_asks_in_vain_it_ends(place, hasty):
    supervisor = hasty(place.daemon(), silent=FOREVER)
    with silent_client(supervisor.daemon):
        supervisor.wait_log(UNANSWERED)
        assert supervisor.stop() == 0
    assert supervisor.log("MPS daemon does not end; it is killed")
    assert mps_scene.runs_nothing(supervisor.daemon)


def test_limits_that_change_under_a_silent_client_hold_once_it_is_cut_off(place, hasty):
    supervisor = hasty(place.daemon())
    daemon, process = supervisor.daemon, mps_scene.process(supervisor.daemon)
    # Its server runs, and is to have them too.
    at_work = mps_scene.connect(daemon)
    with silent_client(daemon):
        supervisor.domain.describe(daemon.limited(mps.Limits(60, 6 * GIB)))
        supervisor.process.send_signal(signal.SIGHUP)
        supervisor.wait_log("MPS daemon has other limits")
    assert mps_scene.caps(daemon) == (60, 6 * GIB)
    assert at_work.is_usable()
    at_work.close()
    assert mps_scene.process(daemon) == process
    polling.until(
        lambda: supervisor.domain.ready() and supervisor.domain.ready().limits.thread_percentage
    )
    assert supervisor.domain.ready().limits == mps.Limits(60, 6 * GIB)
