"""A server whose first start failed: what was in the way is gone, and it is started once more."""

import pathlib
import tempfile

import pytest

from dra_driver.adapters import dra_grpc

INFO = dra_grpc.PluginInfo("gpu.nvidia.com", "/p/dra.sock")


@pytest.fixture
def path():
    # Directories of pytest may be longer than the path of a socket.
    with tempfile.TemporaryDirectory(prefix="dra-") as directory:
        yield pathlib.Path(directory) / "gpu-reg.sock"


@pytest.fixture
def server(path):
    made = dra_grpc.registration_server(path, INFO, lambda *_: None)
    yield made
    made.stop(0)


def test_a_socket_that_could_not_get_its_name_gets_it_at_the_next_start(server, path):
    path.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            server.start()
    path.rmdir()
    server.start()
    with dra_grpc.Client(str(path)) as client:
        assert client.get_info(60).name == INFO.name
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_server_that_never_started_does_not_look_at_what_others_have_there(server, monkeypatch):
    def stat(*_, **__):
        raise PermissionError("the directory is another user's")

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "stat", stat)
        server.stop(0)


def test_a_server_that_never_got_its_name_can_be_stopped(server, path):
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        server.start()
    server.stop(0)
    assert list(path.parent.iterdir()) == [path]
