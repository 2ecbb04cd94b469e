import contextlib
import json
import socket
import ssl
import threading

import http_scene
import pytest
import reserved_port
import trustme

from dra_driver import errors
from dra_driver.adapters.serving import http_server, tls

NAME = "webhook.dra.svc"


@pytest.fixture
def scene():
    made = http_scene.Scene()
    yield made
    made.server.stop()


@pytest.fixture
def hasty():
    """Has no time."""
    made = http_scene.Scene(request_seconds=0.2, idle_seconds=0.2)
    yield made
    made.server.stop()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def secured(authority):
    certificate = tls.Certificate()
    made = http_scene.Scene(certificate=certificate)
    made.certificate = certificate
    yield made
    made.server.stop()


def issue(authority):
    issued = authority.issue_cert(NAME)
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


# Requests


def test_requests_are_answered_one_after_another_on_one_connection(scene):
    connection = scene.http()
    connection.request("POST", "/a?timeout=5s", body=b"12345")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(answer.read()) == {"method": "POST", "path": "/a", "length": 5}
    used = connection.sock
    connection.request("GET", "/b")
    assert json.loads(connection.getresponse().read())["path"] == "/b"
    assert connection.sock is used
    connection.close()


def test_header_names_are_in_lower_case(scene):
    seen = []
    scene.respond = lambda request: seen.append(request.headers) or http_server.Response(200, b"")
    scene.say(b"GET / HTTP/1.1\r\nX-Some-THING: Value\r\nConnection: close\r\n\r\n")
    assert seen == [{"x-some-thing": "Value", "connection": "close"}]


def test_a_body_as_long_as_allowed_is_read(scene):
    connection = scene.http()
    connection.request("POST", "/", body=b"x" * http_server.MAX_BODY)
    answer = connection.getresponse()
    assert json.loads(answer.read())["length"] == http_server.MAX_BODY
    connection.close()


def test_a_body_that_is_longer_is_refused_unread(scene):
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    for length in (http_server.MAX_BODY + 1, 10**30):
        answer = scene.say(head % length)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in answer
        assert answer.endswith(b"the body is longer than the 8388608 bytes that are allowed\n")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            411,
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"BREW / HTTP/1.1\r\n\r\n", 405),
        (b"POST / HTTP/9.9\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(scene, head, status):
    answer = scene.say(head)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in answer
    assert b"<html" not in answer.lower()


def test_a_body_that_breaks_off_is_not_answered(scene):
    asked = []
    scene.respond = asked.append
    assert scene.say(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123", shut=True) == b""
    assert asked == []


def test_a_failure_is_told_and_the_next_request_is_answered(scene):
    def fail(_request):
        raise RuntimeError("secret reason")

    scene.respond = fail
    connection = scene.http()
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (500, b"internal error\n")
    assert [str(error) for error in scene.errors] == ["secret reason"]
    scene.respond = scene.echo
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    connection.close()


# Time


@pytest.mark.parametrize(
    "beginning",
    [b"", b"GET", b"GET / HTTP/1.1\r\nA:", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12"],
)
def test_a_client_that_keeps_the_server_waiting_is_cut_off(hasty, beginning):
    assert hasty.say(beginning) == b""


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(hasty):
    with hasty.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        connection.settimeout(0.02)
        answer = None
        with contextlib.suppress(ConnectionError):
            while answer is None:
                connection.sendall(b"a: b\r\n"[:1])
                with contextlib.suppress(TimeoutError):
                    answer = connection.recv(1)
        assert not answer


def test_a_connection_rests_only_so_long():
    scene = http_scene.Scene(idle_seconds=0.2)
    assert scene.say(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    scene.server.stop()


def ask(scene, connection):
    """The status of one more request; the connection stays open, and rests."""
    connection.request("GET", "/")
    response = connection.getresponse()
    response.read()
    assert scene.server._listener.connections.wait_rest(60)
    return response.status


@pytest.fixture
def narrow():
    """Makes servers that take no more than so many connections."""
    made = []

    def make(connections):
        made.append(http_scene.Scene(connections=connections))
        return made[-1]

    yield make
    for each in made:
        each.server.stop()


def test_who_rests_longest_makes_room_for_one_more_connection(narrow):
    scene = narrow(3)
    with scene.connect() as silent, contextlib.ExitStack() as ends:
        first, second, third, fourth = (
            ends.enter_context(contextlib.closing(scene.http())) for _ in range(4)
        )
        assert [ask(scene, one) for one in (first, second, first)] == [200, 200, 200]
        # One was open without a request, then one rested since before the other's second request.
        assert ask(scene, third) == 200
        assert silent.recv(1) == b""
        assert ask(scene, fourth) == 200
        assert second.sock.recv(1) == b""
        assert [ask(scene, one) for one in (first, third, fourth)] == [200, 200, 200]


def test_no_more_connections_are_taken_than_can_be_answered(narrow):
    scene = narrow(1)
    asked, go_on = threading.Event(), threading.Event()

    def slow(request):
        asked.set()
        assert go_on.wait(60)
        return scene.echo(request)

    scene.respond = slow
    with contextlib.closing(scene.http()) as first:
        first.request("GET", "/")
        assert asked.wait(60)
        assert scene.say(b"GET / HTTP/1.1\r\n\r\n", shut=True) == b""
        go_on.set()
        assert first.getresponse().read()


# Stop


@pytest.fixture
def reserved():
    """A port that nobody else has once the server at it has stopped."""
    made = reserved_port.Reserved()
    yield made
    made.close()


def test_while_it_drains_each_answer_closes_its_connection(scene):
    scene.server.drain()
    answer = scene.say(b"GET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in answer


def test_a_request_in_progress_is_answered_before_it_stops(reserved):
    scene = http_scene.Scene(port=reserved.number)
    asked, go_on = threading.Event(), threading.Event()

    def slow(_request):
        asked.set()
        go_on.wait(60)
        return http_server.Response(200, b"done")

    scene.respond = slow
    with scene.connect() as connection, scene.connect() as idle:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert asked.wait(60)
        stopper = threading.Thread(target=scene.server.stop)
        stopper.start()
        stopper.join(0.3)
        assert stopper.is_alive()
        go_on.set()
        assert http_scene.read_all(connection).endswith(b"done")
        stopper.join(60)
        assert not stopper.is_alive()
        assert http_scene.read_all(idle) == b""
    with pytest.raises(ConnectionError):
        scene.connect()


def test_a_server_that_never_started_can_be_stopped():
    server = http_server.Server("127.0.0.1", 0, http_scene.Scene.echo)
    server.stop()


def test_without_a_host_every_address_is_listened_at():
    scene = http_scene.Scene(host="")
    try:
        addresses = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
        for address in addresses:
            with socket.create_connection((address, scene.server.port), timeout=60) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
                assert http_scene.read_all(connection).startswith(b"HTTP/1.1 200 ")
    finally:
        scene.server.stop()


def test_an_address_that_is_taken_is_told(scene):
    with pytest.raises(
        errors.Fatal, match=rf"cannot listen at 127\.0\.0\.1 port {scene.server.port}"
    ):
        http_server.Server("127.0.0.1", scene.server.port, http_scene.Scene.echo)
    with pytest.raises(errors.Fatal, match=r"cannot listen at 127\.0\.0\.1 port 70000"):
        http_server.Server("127.0.0.1", 70000, http_scene.Scene.echo)


# TLS


def speak(scene, authority, **options):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        scene.connect() as plain,
        context.wrap_socket(plain, server_hostname=options.get("name", NAME)) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
        connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        return http_scene.read_all(connection), certificate


def test_without_a_certificate_connections_are_closed(secured):
    assert secured.say(b"\x16\x03\x01") == b""


def test_a_certificate_can_change_while_a_connection_is_open(secured, authority):
    secured.certificate.use(*issue(authority))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        secured.connect() as plain,
        context.wrap_socket(plain, server_hostname=NAME) as connection,
    ):
        _, before = speak(secured, authority)
        secured.certificate.use(*issue(authority))
        answer, after = speak(secured, authority)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert before != after
        connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert http_scene.read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_who_speaks_no_tls_or_shakes_no_hands_harms_nobody(secured, authority):
    secured.certificate.use(*issue(authority))
    with secured.connect():
        assert b"HTTP/1.1" not in secured.say(b"GET / HTTP/1.1\r\n\r\n")
        assert speak(secured, authority)[0].startswith(b"HTTP/1.1 200 ")
    assert secured.errors == []


def test_who_shakes_no_hands_is_cut_off(authority):
    certificate = tls.Certificate()
    certificate.use(*issue(authority))
    scene = http_scene.Scene(certificate=certificate, request_seconds=0.2)
    assert scene.say(b"") == b""
    scene.server.stop()
    assert scene.errors == []


def test_a_client_that_offers_only_old_versions_is_refused(secured, authority):
    secured.certificate.use(*issue(authority))
    # A ClientHello of TLS 1.1, whose answer is an alert: protocol_version (70).
    suites = bytes.fromhex("0002c013")
    body = b"\x03\x02" + bytes(32) + b"\x00" + suites + b"\x01\x00"
    hello = b"\x01" + len(body).to_bytes(3) + body
    answer = secured.say(b"\x16\x03\x01" + len(hello).to_bytes(2) + hello)
    assert (answer[0], answer[5:7]) == (0x15, bytes([2, 70]))
