"""Bodies of requests, read into bounded memory: who sends slowly keeps nobody else waiting."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

_PIECE = 16 * 2**10
"""Bytes that are read at once, at most."""


class NoRoom(Exception):  # noqa: N818 - an answer to the client, and no failure
    """In all the time that there was, other bodies left no room for this one."""


class Room:
    """Memory for bodies that many connections send at once.

    What has come of a body counts, not what is to come. Where the room ends, bodies that are whole
    are waited for: they are being answered. Without any, the one makes room that has not grown for
    the longest time: its connection ends. So one that is sent at full speed is read, whatever other
    connections hold back.
    """

    def __init__(self, most: int, cut: Callable[[socket.socket], None]) -> None:
        """`most` bytes, for one body of the longest that is allowed at least. `cut` ends a
        connection.
        """
        self._most = most
        self._cut = cut
        self._changed = threading.Condition()
        # Of bodies that are still being sent: who has not grown for the longest time comes first.
        self._growing: dict[socket.socket, int] = {}
        self._whole: dict[socket.socket, int] = {}

    @contextlib.contextmanager
    def body(
        self, connection: socket.socket, read: Callable[[int], bytes], length: int, until: float
    ) -> Iterator[bytes | None]:
        """The body of a request, in memory until the block ends; None if it breaks off.

        `read` gives the bytes that are there, at most as many as it is asked for; none at the end.
        `until` is by the monotonic clock.

        Raises:
            NoRoom: there was none until then.
            OSError: the connection failed, or was cut to make room.
        """
        with self._changed:
            self._growing[connection] = 0
        try:
            yield self._read(connection, read, length, until)
        finally:
            with self._changed:
                self._growing.pop(connection, None)
                self._whole.pop(connection, None)
                self._changed.notify_all()

    def _read(
        self, connection: socket.socket, read: Callable[[int], bytes], length: int, until: float
    ) -> bytes | None:
        body = bytearray()
        while len(body) < length:
            piece = read(min(length - len(body), _PIECE))
            if not piece:
                return None
            self._grow(connection, len(piece), until)
            body += piece
        with self._changed:
            self._whole[connection] = self._growing.pop(connection, length)
        return bytes(body)

    def _grow(self, connection: socket.socket, count: int, until: float) -> None:
        with self._changed:
            if connection in self._growing:
                self._growing[connection] = self._growing.pop(connection) + count
            while connection in self._growing and self._taken() > self._most:
                if not self._whole:
                    idle = next(one for one in self._growing if one is not connection)
                    del self._growing[idle]
                    self._cut(idle)
                elif not self._changed.wait(until - time.monotonic()):
                    raise NoRoom
            if connection not in self._growing:
                raise ConnectionAbortedError("cut: other bodies needed the room")

    def _taken(self) -> int:
        return sum(self._growing.values()) + sum(self._whole.values())
