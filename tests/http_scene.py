"""A server of `http_server`, and bytes from its clients."""

import contextlib
import http.client
import json
import socket

from dra_driver.adapters.serving import http_server


class Scene:
    """A server whose answers are what it was asked, and a client of it."""

    def __init__(self, *, host="127.0.0.1", port=0, request_seconds=60.0, **options):
        self.errors = []
        self.respond = self.echo
        self.server = http_server.Server(
            host,
            port,
            self._respond,
            on_error=self.errors.append,
            request_seconds=request_seconds,
            **options,
        )
        self.server.start()

    def _respond(self, request):
        return self.respond(request)

    @staticmethod
    def echo(request):
        shown = {"method": request.method, "path": request.path, "length": len(request.body)}
        return http_server.Response(200, json.dumps(shown).encode(), "application/json")

    def connect(self, *, until=60):
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=until)

    def http(self):
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)

    def say(self, text, *, shut=False):
        """All that comes back to these bytes until the server closes the connection."""
        with self.connect() as connection:
            with contextlib.suppress(OSError):
                # The server may have hung up before.
                connection.sendall(text)
                if shut:
                    connection.shutdown(socket.SHUT_WR)
            return read_all(connection)


def read_all(connection):
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found
