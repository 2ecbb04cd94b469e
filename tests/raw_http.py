"""An HTTP server that says, byte for byte, what it is told to."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import IO


class RawServer:
    """Answers each connection with the next script: bytes to send, one piece after another.

    A connection is cut after its script; `requests` has what came, as text.
    """

    def __init__(self, scripts: list[list[bytes]], context: ssl.SSLContext | None = None) -> None:
        self._scripts = list(scripts)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.requests: list[str] = []
        self._thread = threading.Thread(target=self._serve, name="raw-http")

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                self._talk(connection, script)

    def _talk(self, connection: socket.socket, script: list[bytes]) -> None:
        connection.settimeout(60)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        with connection:
            with connection.makefile("rb") as stream:
                self.requests.append(_read(stream).decode())
            for piece in script:
                connection.sendall(piece)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)


def _read(stream: IO[bytes]) -> bytes:
    head, length = b"", 0
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        name, _, value = line.partition(b": ")
        if name.lower() == b"content-length":
            length = int(value)
        head += line
    return head + stream.read(length)


@contextlib.contextmanager
def serving(*scripts: list[bytes], context: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    server = RawServer(list(scripts), context)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def response(body: bytes, status: str = "200 OK", kind: str = "application/json") -> list[bytes]:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return [head.encode() + body]


def chunked(*pieces: bytes, end: bool = True) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return [head, *chunks, *([b"0\r\n\r\n"] if end else [])]
