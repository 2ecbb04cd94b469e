"""The stand-in answers as the real control program was seen to, and its daemon as the real one."""

import json
import os
import signal
import socket
import subprocess

import mps_scene
import polling
import pytest

from dra_driver.adapters.system import pids
from dra_driver.sim.gpus import cuda_program, mps_program

pytestmark = pytest.mark.sampled(9)

GIB = 1024**3


@pytest.fixture
def scene():
    scene = mps_scene.Scene()
    yield scene
    scene.close()


@pytest.fixture
def place(scene):
    """Variables of a program, with directories that exist."""
    for name in ("pipe", "log"):
        (scene.root / name).mkdir()
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(scene.root / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(scene.root / "log"),
    }


def run(scene, place, *flags, told=""):
    return subprocess.run(
        [scene.program, *flags],
        input=told,
        capture_output=True,
        text=True,
        env=place,
        timeout=60,
        check=False,
    )


def ask(scene, place, *commands):
    done = run(scene, place, told="".join(f"{command}\n" for command in commands))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def daemon(scene, place):
    own = {**place, "CUDA_VISIBLE_DEVICES": "GPU-1"}
    process = subprocess.Popen(
        [scene.program, "-M", "-f"], env=own, stdout=subprocess.PIPE, text=True
    )
    assert "Starting control daemon using socket" in process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    ("commands", "answer"),
    [
        (["get_server_list"], ""),
        (["get_default_active_thread_percentage"], "100.0\n"),
        (["get_default_device_pinned_mem_limit 0"], ""),
        (["set_default_active_thread_percentage 30"], "30.0\n"),
        (["set_default_device_pinned_mem_limit 0 4096M"], ""),
        (
            [
                "set_default_device_pinned_mem_limit 0 4096M",
                "set_default_active_thread_percentage 30",
                "get_default_device_pinned_mem_limit 0",
            ],
            "30.0\n4G\n",
        ),
        (
            [
                "set_default_device_pinned_mem_limit 0 1500M",
                "get_default_device_pinned_mem_limit 0",
            ],
            "1G\n",
        ),
        (
            ["set_default_device_pinned_mem_limit 0 1M", "get_default_device_pinned_mem_limit 0"],
            "1M\n",
        ),
        (
            [
                "set_default_device_pinned_mem_limit 0 2G",
                "set_default_device_pinned_mem_limit 0 0M",
                "get_default_device_pinned_mem_limit 0",
            ],
            "",
        ),
        (["set_default_device_pinned_mem_limit 0 abc"], ""),
        (["get_default_device_pinned_mem_limit"], ""),
        (["set_default_active_thread_percentage 0"], "100.0\n"),
        (["set_default_active_thread_percentage 101"], "100.0\n"),
        (["set_default_active_thread_percentage x"], "100.0\n"),
        (
            ["nonsense 1", "get_default_active_thread_percentage"],
            'Unknown command "nonsense"\n100.0\n',
        ),
        (["set_active_thread_percentage 1 60"], "Server 1 not found\n"),
        (["set_device_pinned_mem_limit 1 0 6144M"], "Server 1 not found\n"),
    ],
)
def test_it_answers_as_the_real_one(scene, place, daemon, commands, answer):
    assert ask(scene, place, *commands) == answer


def test_without_a_flag_to_start_one_it_asks_the_daemon_that_is_there(scene, place, daemon):
    done = run(scene, place, "-M", told="get_default_active_thread_percentage\n")
    assert (done.returncode, done.stdout) == (0, "100.0\n")
    daemon.kill()
    daemon.wait()
    done = run(scene, place, "-M", told="get_server_list\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Cannot find MPS control daemon process\n"


@pytest.mark.parametrize("said", [b"PERSON\n\xff", b"\xff", b"{"])
def test_what_is_no_text_ends_its_connection_and_not_the_daemon(scene, place, daemon, said):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rude:
        rude.connect(f"{place['CUDA_MPS_PIPE_DIRECTORY']}/control")
        rude.recv(64)
        rude.send(said)
        assert rude.recv(64) == b""
    assert ask(scene, place, "get_default_active_thread_percentage") == "100.0\n"


def test_a_question_to_something_that_is_no_daemon_is_answered_at_once(scene, place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{place['CUDA_MPS_PIPE_DIRECTORY']}/control")
        listener.listen(1)
        asking = subprocess.Popen(
            [scene.program], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=place
        )
        connection, _ = listener.accept()
        with connection:
            connection.send(b"another greeting")
            assert asking.communicate(timeout=30)[1] == b"Cannot find MPS control daemon process\n"
    assert asking.returncode == 1


def test_a_client_that_says_nothing_keeps_all_others_waiting_until_it_goes(scene, place, daemon):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(f"{place['CUDA_MPS_PIPE_DIRECTORY']}/control")
        assert silent.recv(64) == b"OUTBHELL\0"
        asking = subprocess.Popen([scene.program], stdin=subprocess.DEVNULL, env=place)
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(f"{place['CUDA_MPS_PIPE_DIRECTORY']}/control")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(64)
        assert asking.poll() is None
    client.settimeout(60)
    assert client.recv(64) == b"OUTBHELL\0"
    client.close()
    assert asking.wait(60) == 0


def test_without_a_daemon_it_says_so_and_fails(scene, place):
    done = run(scene, place, told="get_server_list\n")

    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "Cannot find MPS control daemon process\n")


def test_without_its_directory_it_fails(scene):
    done = run(scene, {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}, "-M", "-f")

    assert done.returncode == 1
    assert done.stderr == "Cannot access CUDA_MPS_PIPE_DIRECTORY=/nowhere\n"


def test_a_second_daemon_in_a_directory_gives_up(scene, place, daemon):
    done = run(scene, place, "-M", "-f")

    assert (done.returncode, done.stdout) == (1, "An instance of this daemon is already running\n")


def test_a_daemon_starts_where_a_killed_one_left_its_socket_and_has_no_limits(scene, place, daemon):
    ask(scene, place, "set_default_active_thread_percentage 30")
    daemon.kill()
    daemon.wait()
    assert (scene.root / "pipe/control").is_socket()
    assert run(scene, place, told="get_server_list\n").returncode == 1

    assert run(scene, place, "-M", "-d").returncode == 0

    def default():
        done = run(scene, place, told="get_default_active_thread_percentage\n")
        return done.returncode == 0 and done.stdout

    assert polling.until(default) == "100.0\n"
    ask(scene, place, "quit")


def test_in_the_background_it_logs_to_a_file_and_leaves_its_pid(scene, place):
    assert run(scene, place, "-M", "-d").returncode == 0
    polling.until(lambda: run(scene, place, told="get_server_list\n").returncode == 0)

    pid = int((scene.root / f"pipe/{mps_program.NAME}.pid").read_text(encoding="utf-8"))
    assert pids.find(pid) is not None
    assert "get_server_list" in (scene.root / "log/control.log").read_text(encoding="utf-8")

    ask(scene, place, "quit")
    polling.until(lambda: pids.find(pid) is None)


def test_clients_share_a_server_which_is_a_process(scene, place, daemon):
    first, second = cuda_program.connect(place), cuda_program.connect(place)

    assert first.server == second.server
    assert ask(scene, place, "get_server_list") == f"{first.server}\n"
    assert pids.find(first.server) is not None
    first.close()
    second.close()


def test_a_client_can_lower_its_limits_and_not_raise_them(scene, place, daemon):
    ask(
        scene,
        place,
        "set_default_active_thread_percentage 30",
        "set_default_device_pinned_mem_limit 0 4096M",
    )

    def caps(percentage, memory):
        client = cuda_program.connect(
            {
                **place,
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage,
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory,
            }
        )
        client.close()
        return client.caps

    assert caps("100", "0=6G") == mps_program.Caps(30, 4 * GIB)
    assert caps("10", "0=2G") == mps_program.Caps(10, 2 * GIB)
    assert caps("10", "GPU-1=512M") == mps_program.Caps(10, GIB // 2)


@pytest.fixture
def two_cards(scene, place):
    """A daemon of two cards, the second in PCI order first; GPU-c is not one of them."""
    own = {**place, "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}
    process = subprocess.Popen(
        [scene.program, "-M", "-f"], env=own, stdout=subprocess.PIPE, text=True
    )
    assert "Starting control daemon using socket" in process.stdout.readline()
    yield
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    ("variables", "held"),
    [
        ({}, {"GPU-a": 2, "GPU-b": 4}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}, {"GPU-b": 2, "GPU-a": 4}),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, {"GPU-b": 2, "GPU-a": 4}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, {"GPU-b": 2}),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "GPU-b=1G"}, {"GPU-a": 2, "GPU-b": 1}),
        (
            {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "1=1G", "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"},
            {"GPU-b": 2, "GPU-a": 1},
        ),
    ],
    ids=["as they are", "turned", "turned by number", "one hidden", "by UUID", "by number"],
)
def test_a_number_is_that_of_a_card_in_the_order_of_the_client(
    scene, place, two_cards, variables, held
):
    ask(
        scene,
        place,
        "set_default_device_pinned_mem_limit 0 2G",
        "set_default_device_pinned_mem_limit 1 4G",
    )
    client = cuda_program.connect({**place, **variables}, ["GPU-a", "GPU-b", "GPU-c"])
    client.close()
    first, *others = held.values()
    assert client.caps.memory == first * GIB
    assert client.caps.others == {
        name: gib * GIB for name, gib in zip(list(held)[1:], others, strict=True)
    }


@pytest.mark.parametrize("memory", ["GPU-b=1G", "GPU-a=1G,GPU-b=1G", "1=1G", "GPU-unknown=1G"])
def test_a_variable_for_a_card_that_the_client_does_not_see_takes_every_memory_limit_away(
    scene, place, two_cards, memory
):
    ask(scene, place, "set_default_device_pinned_mem_limit 0 2G")
    own = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory, "CUDA_VISIBLE_DEVICES": "GPU-a"}
    client = cuda_program.connect({**place, **own}, ["GPU-a", "GPU-b"])
    client.close()
    assert client.server is not None
    assert client.caps == mps_program.Caps(100, None)


def test_a_client_without_a_daemon_runs_without_limits(place):
    client = cuda_program.connect(place)

    assert (client.server, client.caps) == (None, mps_program.Caps(100, None))
    assert client.is_usable()
    client.close()


def test_the_limits_outlive_a_server_and_its_clients_do_not(scene, place, daemon):
    ask(scene, place, "set_default_active_thread_percentage 30")
    client = cuda_program.connect(place)
    assert client.is_usable()

    os.kill(client.server, signal.SIGKILL)

    assert client.wait_unusable(60)
    polling.until(lambda: ask(scene, place, "get_server_list") == "")
    again = cuda_program.connect(place)
    assert again.server != client.server
    assert again.caps == mps_program.Caps(30, None)
    again.close()
    client.close()


def test_a_client_that_ends_in_the_same_moment_as_its_server_does_no_harm(scene, place, daemon):
    client = cuda_program.connect(place)
    daemon.send_signal(signal.SIGSTOP)
    os.kill(client.server, signal.SIGKILL)
    polling.until(lambda: pids.find(client.server) is None)
    client.close()
    daemon.send_signal(signal.SIGCONT)

    assert ask(scene, place, "get_server_list") == ""


@pytest.mark.parametrize("asked", [{"commands": ["get_server_list"]}, {"client": {}}])
def test_who_does_not_wait_for_an_answer_does_no_harm(scene, place, daemon, asked):
    daemon.send_signal(signal.SIGSTOP)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hasty:
        hasty.connect(str(scene.root / "pipe/control"))
        hasty.send(json.dumps(asked).encode())
    daemon.send_signal(signal.SIGCONT)

    assert ask(scene, place, "set_default_active_thread_percentage 30") == "30.0\n"


def test_quit_with_a_time_ends_clients_that_do_not_end(scene, place, daemon):
    client = cuda_program.connect(place)

    assert ask(scene, place, "quit -t 0") == ""

    assert daemon.wait(60) == 0
    assert client.wait_unusable(60)
    client.close()


def test_quit_waits_for_clients_that_end_by_themselves(scene, place, daemon):
    client = cuda_program.connect(place)
    quitting = subprocess.Popen([scene.program], stdin=subprocess.PIPE, env=place, text=True)
    quitting.stdin.write("quit\n")
    quitting.stdin.close()
    assert "Cmd: quit" in read_until(daemon.stdout, "Cmd: quit")
    assert client.is_usable()
    assert daemon.poll() is None

    client.close()

    assert daemon.wait(60) == 0
    assert quitting.wait(60) == 0


def test_a_program_that_says_nothing_keeps_nobody_from_being_served(scene, place, daemon):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(scene.root / "pipe/control"))
        silent.shutdown(socket.SHUT_WR)

        assert ask(scene, place, "get_server_list") == ""


def read_until(stream, text):
    while text not in (line := stream.readline()):
        assert line, f"it ended without {text!r}"
    return line
