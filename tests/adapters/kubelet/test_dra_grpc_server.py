"""The socket of a server: how it appears, and how calls and socket end."""

import concurrent.futures
import contextlib
import os
import pathlib
import stat
import threading

import dra_grpc_scene as scene
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.kubelet import dra_client, dra_grpc, unix_sockets


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


# The socket


def test_the_socket_appears_by_rename_when_it_answers_already(socket_path, monkeypatch):
    rename, seen = pathlib.Path.rename, []

    def noted(self, target):
        with dra_client.Client(str(self)) as kubelet:
            seen.append((self.name, target, target.exists(), kubelet.get_info(60)))
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", noted)
    with scene.serving(dra_grpc.registration_server(socket_path, scene.INFO, lambda *_: None)):
        assert seen == [(".dra.sock", socket_path, False, scene.INFO)]
        assert names(socket_path.parent) == ["dra.sock"]
        assert stat.S_ISSOCK(socket_path.stat().st_mode)
        assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600


def test_stop_takes_the_socket_away(socket_path):
    server = dra_grpc.dra_server(socket_path, scene.Handler())
    server.start()
    server.stop(0)
    assert names(socket_path.parent) == []


def test_what_a_killed_server_left_is_replaced(socket_path):
    socket_path.touch()
    socket_path.with_name(".dra.sock").touch()
    with (
        scene.serving(dra_grpc.dra_server(socket_path, scene.Handler())),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        assert kubelet.prepare([scene.REF]).keys() == {"0a1b"}
    assert names(socket_path.parent) == []


def test_a_server_that_took_the_path_over_keeps_its_socket(socket_path):
    old = dra_grpc.dra_server(socket_path, scene.Handler(scene.device("old")))
    old.start()
    with scene.serving(dra_grpc.dra_server(socket_path, scene.Handler(scene.device("new")))):
        old.stop(0)
        assert names(socket_path.parent) == ["dra.sock"]
        with dra_client.Client(str(socket_path)) as kubelet:
            assert kubelet.prepare([scene.REF])[scene.REF.uid].devices == (scene.device("new"),)
    assert names(socket_path.parent) == []


def test_a_socket_that_is_gone_already_is_fine(socket_path):
    server = dra_grpc.dra_server(socket_path, scene.Handler())
    server.start()
    socket_path.unlink()
    server.stop(0)
    assert names(socket_path.parent) == []


def test_a_client_finds_the_server_that_takes_over(socket_path):
    with dra_client.Client(str(socket_path)) as kubelet:
        with scene.serving(dra_grpc.dra_server(socket_path, scene.Handler(scene.device("old")))):
            assert kubelet.prepare([scene.REF])[scene.REF.uid].devices == (scene.device("old"),)
        with scene.serving(dra_grpc.dra_server(socket_path, scene.Handler(scene.device("new")))):

            def answer():
                with contextlib.suppress(errors.Retryable):
                    return kubelet.prepare([scene.REF])[scene.REF.uid].devices

            assert polling.until(answer) == (scene.device("new"),)


def test_a_directory_that_is_not_there_is_told_with_what_to_check(socket_path):
    path = socket_path.parent / "absent" / "dra.sock"
    with pytest.raises(errors.Fatal) as caught:
        dra_grpc.dra_server(path, scene.Handler()).start()
    assert str(caught.value).startswith(f"socket {path} cannot be bound: ")
    assert str(caught.value).endswith(
        ". Does its directory exist, and may this process write to it?"
    )


def of_length(directory, count):
    return directory / "x".ljust(count - len(os.fsencode(directory)) - 1, "x")


def test_the_longest_path_that_is_let_pass_works(socket_path):
    path = of_length(socket_path.parent, 106)
    assert len(os.fsencode(path)) == 106
    unix_sockets.check_path(path, setting="--plugin-dir")
    with (
        scene.serving(dra_grpc.dra_server(path, scene.Handler())),
        dra_client.Client(str(path)) as kubelet,
    ):
        assert kubelet.prepare([scene.REF]).keys() == {"0a1b"}


def test_a_longer_path_is_refused_with_the_setting_that_shortens_it(socket_path):
    path = of_length(socket_path.parent, 107)
    with pytest.raises(errors.Fatal) as caught:
        unix_sockets.check_path(path, setting="--plugin-dir")
    assert str(caught.value) == (
        f"socket path {path} has 107 bytes; at most 106 are possible for a unix socket that is "
        "bound under a hidden name first. Choose a shorter --plugin-dir"
    )
    with pytest.raises(errors.Fatal, match="cannot be bound"):
        dra_grpc.dra_server(path, scene.Handler()).start()


def test_the_length_of_a_path_is_counted_in_bytes():
    unix_sockets.check_path(pathlib.Path("/" + "ä" * 52 + "x"), setting="--plugin-dir")
    with pytest.raises(errors.Fatal, match="has 107 bytes"):
        unix_sockets.check_path(pathlib.Path("/" + "ä" * 53), setting="--plugin-dir")


# Stop


def is_refused(kubelet):
    try:
        kubelet.unprepare([scene.REF], timeout=60)
    except errors.Retryable:
        return True
    return False


def test_a_call_in_flight_finishes_within_the_grace(socket_path):
    handler = scene.Blocking()
    server = dra_grpc.dra_server(socket_path, handler)
    server.start()
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        dra_client.Client(str(socket_path)) as kubelet,
        dra_client.Client(str(socket_path)) as late,
    ):
        assert late.unprepare([scene.REF]) == {"0a1b": dra_grpc.Answer()}
        call = pool.submit(kubelet.prepare, [scene.REF])
        assert handler.entered.acquire(timeout=60)
        stopped = pool.submit(server.stop, 60)
        polling.until(lambda: not socket_path.exists())
        polling.until(lambda: is_refused(late))
        assert not call.done()
        assert not stopped.done()
        handler.go.set()
        assert call.result(60) == {"0a1b": dra_grpc.Answer((scene.device("gpu-0"),))}
        stopped.result(60)


def test_a_call_that_outlives_the_grace_is_given_up(socket_path):
    handler = scene.Blocking()
    server = dra_grpc.dra_server(socket_path, handler)
    server.start()
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        call = pool.submit(kubelet.prepare, [scene.REF])
        assert handler.entered.acquire(timeout=60)
        server.stop(0.05)
        with pytest.raises(errors.Retryable):
            call.result(60)
        handler.go.set()
        polling.until(lambda: handler.asked)


def test_no_thread_outlives_its_server(socket_path):
    before = set(threading.enumerate())
    with (
        scene.serving(dra_grpc.dra_server(socket_path, scene.Handler())),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        kubelet.prepare([scene.REF])
    polling.until(lambda: set(threading.enumerate()) <= before)


# Start, once more after one that failed


@pytest.fixture
def server(socket_path):
    made = dra_grpc.registration_server(socket_path, scene.INFO, lambda *_: None)
    yield made
    made.stop(0)


def test_a_socket_that_could_not_get_its_name_gets_it_at_the_next_start(server, socket_path):
    socket_path.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            server.start()
    socket_path.rmdir()
    server.start()
    with dra_client.Client(str(socket_path)) as client:
        assert client.get_info(60).name == scene.INFO.name
    assert [entry.name for entry in socket_path.parent.iterdir()] == [socket_path.name]


def test_a_server_that_never_started_does_not_look_at_what_others_have_there(server, monkeypatch):
    def stat(*_, **__):
        raise PermissionError("the directory is another user's")

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "stat", stat)
        server.stop(0)


def test_a_server_that_never_got_its_name_can_be_stopped(server, socket_path):
    socket_path.mkdir()
    with pytest.raises(IsADirectoryError):
        server.start()
    server.stop(0)
    assert list(socket_path.parent.iterdir()) == [socket_path]
