"""The pages that a part serves of itself, without TLS: metrics, and health where there is any."""

import functools
from collections.abc import Callable, Mapping
from typing import Protocol

from dra_driver.adapters.serving import http_server

Page = Callable[[], http_server.Response]

CONNECTIONS = 64
"""Those of probes and scrapers are few; whoever holds more open makes room for them."""
_METHODS = "GET, HEAD"


class Measured(Protocol):
    """What has metrics."""

    def text(self) -> tuple[bytes, str]:
        """All of them in Prometheus' text format, and its content type."""


def server(
    address: str, pages: Mapping[str, Page], on_error: http_server.OnError
) -> http_server.Server:
    """A server of pages by path at HOST:PORT, which listens at once and answers after `start`.

    Without a host it is every address of the machine, of IPv4 and of IPv6.

    Raises:
        errors.Fatal: the address cannot be had.
    """
    host, _, port = address.rpartition(":")
    return http_server.Server(
        host.strip("[]"),
        int(port),
        functools.partial(_respond, pages),
        on_error=on_error,
        connections=CONNECTIONS,
    )


def metrics(measured: Measured) -> Page:
    """The page of these metrics, as they are when it is asked for."""
    return lambda: http_server.Response(200, *measured.text())


def text(status: int, told: str) -> http_server.Response:
    """A page of one line."""
    return http_server.Response(status, f"{told}\n".encode(errors="backslashreplace"))


def not_allowed(allowed: str) -> http_server.Response:
    """The answer to another method than these."""
    body = f"allowed: {allowed}\n".encode()
    return http_server.Response(405, body, allow=allowed)


def _respond(pages: Mapping[str, Page], request: http_server.Request) -> http_server.Response:
    page = pages.get(request.path)
    if page is None:
        return text(404, f"served: {', '.join(pages)}")
    if request.method != "GET":
        return not_allowed(_METHODS)
    return page()
