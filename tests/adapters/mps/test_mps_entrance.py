"""Clients that come while the entrance is closed wait, and get to what is then put there."""

import concurrent.futures
import errno
import pathlib
import socket
import tempfile

import pytest

from dra_driver.adapters.mps import mps_entrance


@pytest.fixture
def place():
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="door-", dir="/tmp") as directory:
        (pathlib.Path(directory) / "pipe").mkdir()
        yield pathlib.Path(directory)


@pytest.fixture
def entrance(place):
    entrance = mps_entrance.Entrance(place / "pipe/control")
    yield entrance
    entrance.remove()


class Listener:
    """A daemon's socket, which tells clients a name."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(str(path))
        self.socket.listen(64)
        self.socket.settimeout(60)

    def serve(self, name):
        connection, _ = self.socket.accept()
        with connection:
            connection.send(name)


def visit(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(place / "pipe/control"))
        return client.recv(100)


def knock(place):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(0)
        return client.connect_ex(str(place / "pipe/control"))


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        yield pool


def test_who_comes_to_a_closed_entrance_is_let_in_when_it_opens(place, entrance, pool):
    entrance.close()
    assert knock(place) == errno.EAGAIN
    visitors = [pool.submit(visit, place) for _ in range(5)]
    listener = Listener(place / "real")

    entrance.open(listener.path)

    for _ in visitors:
        listener.serve(b"served")
    assert [visitor.result(60) for visitor in visitors] == [b"served"] * 5
    listener.socket.close()


def test_an_open_entrance_lets_in_at_once_and_can_be_closed_again(place, entrance, pool):
    first, second = Listener(place / "first"), Listener(place / "second")
    entrance.close()
    entrance.open(first.path)
    visitor = pool.submit(visit, place)
    first.serve(b"first")
    assert visitor.result(60) == b"first"

    first.socket.close()
    assert knock(place) == errno.ECONNREFUSED
    entrance.close()
    assert knock(place) == errno.EAGAIN
    entrance.close()
    late = pool.submit(visit, place)
    entrance.open(second.path)

    second.serve(b"second")
    assert late.result(60) == b"second"
    second.socket.close()


def test_clients_of_any_user_may_connect(place, entrance):
    entrance.close()

    assert (place / "pipe/control").stat().st_mode & 0o777 == 0o666


def test_nothing_is_left_of_an_entrance_that_is_removed(place, entrance, pool):
    entrance.close()
    visitor = pool.submit(visit, place)

    entrance.remove()

    with pytest.raises(OSError, match=r"No such file|refused"):
        visitor.result(60)
    assert list((place / "pipe").iterdir()) == []
    entrance.remove()


def test_what_a_killed_process_left_is_no_hindrance(place, entrance):
    for name in ("control", ".new"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(str(place / "pipe" / name))

    entrance.close()

    assert knock(place) == errno.EAGAIN
    assert [path.name for path in (place / "pipe").iterdir()] == ["control"]


def test_an_entrance_that_cannot_be_closed_now_is_closed_later(place, entrance):
    hindrance = place / "pipe/control"
    hindrance.mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        entrance.close()
    hindrance.rmdir()

    entrance.close()

    assert knock(place) == errno.EAGAIN
