"""No more connections than there may be, and who makes room."""

import contextlib
import socket
import threading

import pytest

from dra_driver.adapters.serving import http_connections


@pytest.fixture
def pairs():
    """Makes connections: the server's end, and the client's."""
    with contextlib.ExitStack() as ends:

        def make():
            pair = socket.socketpair()
            for each in pair:
                ends.enter_context(each)
                each.settimeout(60)
            return pair

        yield make


def test_who_is_cut_counts_until_it_has_let_go(pairs, monkeypatch):
    known = http_connections.Connections(1)
    (first, its_client), (second, _) = pairs(), pairs()
    assert known.take(first)
    monkeypatch.setattr(http_connections, "_CUT_SECONDS", 0.0)
    assert not known.take(second)
    assert its_client.recv(1) == b""
    known.release(first)
    assert known.take(second)


def test_one_more_is_taken_as_soon_as_the_one_that_was_cut_has_let_go(pairs, monkeypatch):
    known = http_connections.Connections(1)
    (first, its_client), (second, _) = pairs(), pairs()
    assert known.take(first)
    monkeypatch.setattr(http_connections, "_CUT_SECONDS", 60.0)

    def let_go():
        assert its_client.recv(1) == b""
        known.release(first)

    thread = threading.Thread(target=let_go)
    thread.start()
    assert known.take(second)
    thread.join(60)


def test_who_is_being_answered_is_not_cut_however_deep(pairs, monkeypatch):
    monkeypatch.setattr(http_connections, "_CUT_SECONDS", 0.0)
    known = http_connections.Connections(1)
    (first, its_client), (second, _) = pairs(), pairs()
    assert known.take(first)
    with known.working(first):
        with known.working(first):
            assert not known.take(second)
        assert not known.take(second)
        assert not known.wait_rest(0)
    its_client.settimeout(0)
    with pytest.raises(BlockingIOError):
        its_client.recv(1)
    assert known.wait_rest(0)
    assert not known.take(second)
    its_client.settimeout(60)
    assert its_client.recv(1) == b""


def test_who_has_closed_its_end_has_left_whatever_it_had_said(pairs):
    (silent, its_client), (eager, who_spoke), (half, who_listens) = pairs(), pairs(), pairs()
    who_spoke.sendall(b"x")
    assert [http_connections.is_left(one) for one in (silent, eager, half)] == [False] * 3
    its_client.close()
    who_spoke.close()
    who_listens.shutdown(socket.SHUT_WR)
    assert [http_connections.is_left(one) for one in (silent, eager, half)] == [True] * 3
