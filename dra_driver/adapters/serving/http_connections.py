"""Connections of a server: no more than it can have, and who makes room for one more."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

_CUT_SECONDS = 1.0
"""For the end of a connection that was cut."""


class Connections:
    """At most `most` connections. For one more the one ends that has asked for nothing for longest:
    who holds them open must not keep a kubelet's probes out.
    """

    def __init__(self, most: int) -> None:
        """None is open."""
        self._most = most
        # Those whose last request is the oldest come first.
        self._open: dict[socket.socket, None] = {}
        self._busy: set[socket.socket] = set()
        # With those that have been cut, and whose threads are about to close them.
        self._held: set[socket.socket] = set()
        self._changed = threading.Condition()

    def take(self, connection: socket.socket) -> bool:
        """Whether one more connection is taken; `release` it then."""
        with self._changed:
            if len(self._open) >= self._most:
                oldest = next((one for one in self._open if one not in self._busy), None)
                if oldest is None:
                    return False
                del self._open[oldest]
                cut(oldest)
            # Who is cut lets go of its descriptor in a moment, and more are not to be had.
            if not self._changed.wait_for(lambda: len(self._held) < self._most, _CUT_SECONDS):
                return False
            self._held.add(connection)
            self._open[connection] = None
            return True

    def release(self, connection: socket.socket) -> None:
        """It has been closed."""
        with self._changed:
            self._open.pop(connection, None)
            self._held.discard(connection)
            self._changed.notify_all()

    @contextlib.contextmanager
    def secured(self, plain: socket.socket, secured: socket.socket) -> Iterator[None]:
        """In the block a connection is spoken on through another one, with TLS."""
        with self._changed:
            self._open.pop(plain, None)
            self._open[secured] = None
        try:
            yield
        finally:
            with self._changed:
                self._open.pop(secured, None)

    @contextlib.contextmanager
    def working(self, connection: socket.socket) -> Iterator[None]:
        """In the block a request is being answered: the connection is not cut."""
        with self._changed:
            is_inside = connection in self._busy
            self._busy.add(connection)
        try:
            yield
        finally:
            if not is_inside:
                self._rest(connection)

    def close(self, seconds: float) -> None:
        """Let the requests in progress end, then cut what is open."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, seconds)
            left = tuple(self._open)
        for connection in left:
            cut(connection)

    def wait_rest(self, seconds: float) -> bool:
        """Whether no request is being answered within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, seconds)

    def _rest(self, connection: socket.socket) -> None:
        with self._changed:
            self._busy.remove(connection)
            if connection in self._open:
                del self._open[connection]
                self._open[connection] = None
            self._changed.notify_all()


def cut(connection: socket.socket) -> None:
    """End a connection that another thread may be waiting at."""
    with contextlib.suppress(OSError):
        # Of the socket below TLS: a farewell would need that other thread's lock.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def is_left(connection: socket.socket) -> bool:
    """Whether the other side has closed it: nobody waits for an answer.

    As Go's server has it, who ends the sending alone has left as well.
    """
    poller = select.poll()
    # Errors, and an end of both directions, are told without being asked for.
    poller.register(connection, select.POLLRDHUP)
    return bool(poller.poll(0))
