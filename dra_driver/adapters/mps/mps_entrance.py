"""The socket by which clients find an MPS daemon; while there is none, it has them wait.

A CUDA program that cannot connect to `control` runs without MPS, without any limit and without a
word: whether there is no socket, nobody listens, or what listens hangs up (seen with driver 580).
So a daemon that is not there, or has no limits yet, needs somebody in its place who does neither.

On a socket with a full queue the kernel has `connect` wait. When that socket is closed, it looks up
the path once more (`unix_stream_connect` in `net/unix/af_unix.c`): who waited is then connected to
whatever has been put there. Clients need no other file of the daemon's directory.
"""

import contextlib
import pathlib
import socket


class Entrance:
    """The path of the socket that clients connect to."""

    def __init__(self, path: pathlib.Path) -> None:
        """Its directory must exist, on the file system of the daemon's socket."""
        self._path = path
        self._waiting_room: list[socket.socket] = []

    def close(self) -> None:
        """From now on, clients wait. This process must go on, or they run without MPS.

        Raises:
            OSError: it could not be closed, by a full disk for one; it is as it was.
        """
        if self._waiting_room:
            return
        try:
            self._close()
        except OSError:
            self._leave_waiting_room()
            raise

    def _close(self) -> None:
        aside = self._aside()
        listener = _socket()
        self._waiting_room.append(listener)
        listener.bind(str(aside))
        aside.chmod(0o666)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                occupant = _socket()
                self._waiting_room.append(occupant)
                occupant.settimeout(0)
                occupant.connect(str(aside))
        aside.rename(self._path)

    def open(self, control: pathlib.Path) -> None:
        """Let clients in to the daemon with this socket, those first who wait."""
        aside = self._aside()
        aside.hardlink_to(control)
        aside.rename(self._path)
        self._leave_waiting_room()

    def remove(self) -> None:
        """Leave nothing; who waits runs without MPS."""
        self._path.unlink(missing_ok=True)
        self._leave_waiting_room()

    def _aside(self) -> pathlib.Path:
        path = self._path.with_name(".new")
        path.unlink(missing_ok=True)
        return path

    def _leave_waiting_room(self) -> None:
        for each in self._waiting_room:
            each.close()
        self._waiting_room = []


def _socket() -> socket.socket:
    """Of the daemon's kind: one of another kind would refuse clients."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
