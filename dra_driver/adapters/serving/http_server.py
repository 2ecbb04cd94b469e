"""A small HTTP/1.1 server, with TLS or without: requests in threads, answers from a function.

The standard library's, made fit for a network: a deadline for each request as a whole, limits on
bodies and connections, TLS handshakes off the thread that accepts.
"""

import dataclasses
import http.server
import io
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.serving import http_bodies, http_connections, tls

MAX_BODY = 8 * 2**20
"""Bytes. An API server takes objects of 3 MiB, and a review can have two."""
_LARGE_BODY = 256 * 2**10
"""Bytes. Larger ones are answered one at a time: what JSON becomes in memory is 30 times as big."""
_LARGE_ROOM, _SMALL_ROOM = 2 * MAX_BODY, MAX_BODY
"""Bytes of all large bodies, and of all small ones, that are in memory at once."""
MAX_CONNECTIONS = 256
REQUEST_SECONDS = 10.0
"""For a handshake, and for a request from its first line to the end of its answer."""
IDLE_SECONDS = 120.0
"""How long a connection may rest between requests. Go's clients, the API server among them, close
theirs after 90 s; the one that closes later never cuts off a request that is on its way."""
STOP_SECONDS = 15.0
_ACCEPT_PAUSE = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What came. `path` is without its query; header names are in lower case.

    The method is GET or POST. HEAD comes as GET: only the head of the answer goes back.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """What goes back."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    allow: str = ""
    """The methods that are allowed, where another one was used: `GET, HEAD`."""


_METHODS = "GET, HEAD, POST"
_BUSY = "other requests as large are being answered: try again"
Respond = Callable[[Request], Response]
OnError = Callable[[BaseException], None]


class Server:
    """Serves at an address until it is stopped. With a `certificate` only TLS is spoken."""

    def __init__(
        self,
        host: str,
        port: int,
        respond: Respond,
        *,
        certificate: tls.Certificate | None = None,
        on_error: OnError = lambda _error: None,
        idle_seconds: float = IDLE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        """Listen at once; connections wait for `start`. Port 0 is any that is free, an empty host
        every address of the machine.

        `on_error` hears of an exception that `respond` raised; the client is answered 500.

        Raises:
            errors.Fatal: the address cannot be had.
        """
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - asked for
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        limits = _Limits(idle_seconds, request_seconds, connections)
        try:
            self._listener = _Listener(family, (host, port), respond, certificate, on_error, limits)
        except (OSError, OverflowError) as error:
            reason = str(error).rstrip(".")
            raise errors.Fatal(
                f"cannot listen at {host} port {port}: {reason}. Choose another address, or end "
                "who has it"
            ) from error
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.1,), name=f"http-{self.port}", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return int(self._listener.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def drain(self) -> None:
        """From now on each answer says that its connection closes: clients go elsewhere."""
        self._listener.draining = True

    def stop(self) -> None:
        """Take no more connections, end the requests in progress, close."""
        self.drain()
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
        self._listener.connections.close(STOP_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class _Limits:
    idle: float
    request: float
    connections: int


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        respond: Respond,
        certificate: tls.Certificate | None,
        on_error: OnError,
        limits: _Limits,
    ) -> None:
        self.address_family = family
        self.respond = respond
        self.certificate = certificate
        self.on_error = on_error
        self.limits = limits
        self.draining = False
        self.connections = http_connections.Connections(limits.connections)
        self.large_body = threading.Lock()
        self.large_room = http_bodies.Room(_LARGE_ROOM, http_connections.cut)
        self.small_room = http_bodies.Room(_SMALL_ROOM, http_connections.cut)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Without the look-up of the host's name that the library does."""
        if self.address_family == socket.AF_INET6:
            # `[::]` is for both families, whatever the machine's default.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> Any:
        """The next connection."""
        try:
            return super().get_request()
        except OSError:
            # There are no descriptors for it: it waits, and this thread does not spin.
            time.sleep(_ACCEPT_PAUSE)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether one more connection is taken."""
        del client_address
        return self.connections.take(request)

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection, whatever became of it."""
        super().shutdown_request(request)
        self.connections.release(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak with a client, after the handshake where there is one."""
        if self.certificate is None:
            _Handler(request, client_address, self)
            return
        context = self.certificate.context
        if context is None:
            return
        # Of a handshake this is the time in all, however many pieces it comes in.
        request.settimeout(self.limits.request)
        with (
            context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ) as secured,
            self.connections.secured(request, secured),
        ):
            secured.do_handshake()
            _Handler(secured, client_address, self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or speaks no TLS, is no error of ours."""


class _Timed(io.RawIOBase):
    """Reads of a connection until a moment, however many there are."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.left()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def left(self) -> float:
        """Seconds until that moment."""
        return max(0.0, self.until - time.monotonic())


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        super().setup()
        self._timed = _Timed(self.connection)
        self.rfile = io.BufferedReader(self._timed)
        # Nobody rests who has asked for nothing yet.
        self._allow(self.server.limits.request)

    def parse_request(self) -> bool:
        self._allow(self.server.limits.request)
        return super().parse_request()

    def _allow(self, seconds: float) -> None:
        self._timed.until = time.monotonic() + seconds

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # Nobody reads it, and it is no next request.
            self.close_connection = True
        self._answer(b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not length:
            self.send_error(411, "Content-Length is missing: send the body in one piece")
        elif not (length.isascii() and length.isdecimal()):
            self.send_error(400, "Content-Length is not allowed: send a whole number")
        elif len(length) > 15 or int(length) > MAX_BODY:
            self.send_error(413, f"the body is longer than the {MAX_BODY} bytes that are allowed")
        else:
            self._take(int(length))

    def _take(self, length: int) -> None:
        is_large = length > _LARGE_BODY
        room = self.server.large_room if is_large else self.server.small_room
        try:
            with room.body(self.connection, self._read, length, self._timed.until) as body:
                if body is None:
                    self.close_connection = True
                elif is_large:
                    self._answer_in_turn(body)
                else:
                    self._answer(body)
        except http_bodies.NoRoom:
            self.send_error(503, _BUSY)

    def _read(self, most: int) -> bytes:
        return self.rfile.read1(most)

    def _answer_in_turn(self, body: bytes) -> None:
        # Nobody else's connection takes the place of one whose request is there.
        with self.server.connections.working(self.connection):
            if not self.server.large_body.acquire(timeout=self._timed.left()):
                self.send_error(503, _BUSY)
                return
            try:
                if http_connections.is_left(self.connection):
                    # The time is for those who still wait.
                    self.close_connection = True
                else:
                    self._answer(body)
            finally:
                self.server.large_body.release()

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        method = "GET" if self.command == "HEAD" else self.command
        request = Request(method, self.path.partition("?")[0], headers, body)
        with self.server.connections.working(self.connection):
            try:
                response = self.server.respond(request)
            except Exception as error:  # noqa: BLE001 - the next request may be a better one
                self.server.on_error(error)
                response = Response(500, b"internal error\n")
            self._send(response)
        self._allow(self.server.limits.idle)

    def _send(self, response: Response) -> None:
        self.connection.settimeout(self.server.limits.request)
        self.close_connection = self.close_connection or self.server.draining
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if response.allow:
            self.send_header("Allow", response.allow)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses, or the body; the rest of the request is not read."""
        del explain
        self.close_connection = True
        # A request line that cannot be read counts as HTTP/0.9, which has no status to answer with.
        self.request_version = self.protocol_version
        text, allow = message or http.HTTPStatus(code).phrase, ""
        if code == http.HTTPStatus.NOT_IMPLEMENTED:
            # The library's word for a method that is not here.
            code, text, allow = http.HTTPStatus.METHOD_NOT_ALLOWED, "method not allowed", _METHODS
        body = f"{text}\n".encode(errors="backslashreplace")
        self._send(Response(code, body, allow=allow))

    def version_string(self) -> str:
        return "dra-driver"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's
        """Nothing: what was asked and answered is the app's to tell."""
