"""A port that stays ours while the server that uses it is away."""

import socket


class Reserved:
    """A port of 127.0.0.1. Until it is closed nobody is given it who asks for any.

    A socket is bound to it that does not listen: connections are refused, and a server that sets
    SO_REUSEADDR, as `socket.create_server` does, can be bound beside it.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()
