"""What a part serves of itself, over real connections."""

import contextlib
import http.client
import socket
import threading

import http_scene
import pytest

from dra_driver import errors, telemetry
from dra_driver.apps import pages

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@pytest.fixture
def serving():
    """Starts servers of a health page and of metrics."""
    failed = []
    with contextlib.ExitStack() as ends:

        def start(address="127.0.0.1:0", **options):
            served = {
                "/healthz": lambda: pages.text(503, "not yet"),
                "/metrics": pages.metrics(telemetry.ControllerMetrics("gpu.nvidia.com")),
            } | options
            server = pages.server(address, served, failed.append)
            ends.callback(server.stop)
            server.start()
            return server

        yield start
    assert failed == []


def ask(server, method, path, host="127.0.0.1"):
    with contextlib.closing(http.client.HTTPConnection(host, server.port, timeout=60)) as client:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def test_pages_are_answered_by_their_paths(serving):
    server = serving()
    assert ask(server, "GET", "/healthz")[::2] == (503, b"not yet\n")
    status, headers, body = ask(server, "GET", "/metrics?name[]=x")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert b'dra_driver_controller_leader{driver="gpu.nvidia.com"} 0.0\n' in body


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics2", "/favicon.ico"])
def test_any_other_path_is_not_found_whatever_the_method(serving, path):
    server = serving()
    assert ask(server, "GET", path)[::2] == (404, b"served: /healthz, /metrics\n")
    assert ask(server, "POST", path)[::2] == (404, b"served: /healthz, /metrics\n")


def test_head_is_answered_with_the_head_of_the_page_alone(serving):
    server = serving()
    for path in ("/healthz", "/metrics", "/none"):
        status, headers, body = ask(server, "GET", path)
        assert ask(server, "HEAD", path)[::2] == (status, b"")
        assert int(headers["Content-Length"]) == len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        head, _, rest = http_scene.read_all(connection).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in head
    assert rest == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_told_which_are_allowed(serving, method):
    status, headers, _ = ask(serving(), method, "/metrics")
    assert status == 405
    assert "GET, HEAD" in headers["Allow"]


def test_a_body_that_nobody_asked_for_is_no_next_request(serving):
    with socket.create_connection(("127.0.0.1", serving().port), timeout=60) as connection:
        inner = b"GET /metrics HTTP/1.1\r\n\r\n"
        connection.sendall(b"GET /healthz HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(inner))
        connection.sendall(inner)
        answer = http_scene.read_all(connection)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer


@needs_ipv6
@pytest.mark.parametrize("address", [":0", "[::]:0"])
def test_without_a_host_both_families_are_answered(serving, address):
    server = serving(address)
    for host in ("127.0.0.1", "::1"):
        assert ask(server, "GET", "/metrics", host)[0] == 200


def test_an_address_that_cannot_be_had_is_told(serving):
    taken = serving()
    with pytest.raises(errors.Fatal, match=f"cannot listen at 127.0.0.1 port {taken.port}"):
        pages.server(f"127.0.0.1:{taken.port}", {}, lambda _: None)


def test_who_holds_connections_open_takes_no_more_threads_than_there_are_connections(serving):
    server = serving()
    before = threading.active_count()
    with contextlib.ExitStack() as ends:
        for _ in range(4 * pages.CONNECTIONS):
            ends.enter_context(
                socket.create_connection(("127.0.0.1", server.port), timeout=60)
            ).sendall(b"GET /met")
        assert ask(server, "GET", "/metrics")[0] == 200
        assert threading.active_count() - before <= pages.CONNECTIONS


def test_after_a_stop_nobody_is_answered_and_no_thread_goes_on(serving):
    before = set(threading.enumerate())
    server = serving()
    assert ask(server, "GET", "/metrics")[0] == 200
    server.stop()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionError):
        ask(server, "GET", "/metrics")
