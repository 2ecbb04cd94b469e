"""Bodies: in bounded memory, of which large ones are answered one at a time."""

import concurrent.futures
import contextlib
import http.client
import math
import queue
import socket
import threading
import time

import http_scene
import polling
import pytest

from dra_driver.adapters.serving import http_bodies, http_connections, http_server

LARGE = 300_000
LATE = math.inf


@pytest.fixture
def new_scene():
    made = []

    def make(**options):
        made.append(http_scene.Scene(**options))
        return made[-1]

    yield make
    for scene in made:
        scene.server.stop()


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        yield pool


def post(scene, length, body):
    """The status of the answer to a request of this length; None: the server hung up."""
    with contextlib.closing(scene.http()) as connection:
        try:
            connection.putrequest("POST", "/")
            connection.putheader("Content-Length", str(length))
            connection.endheaders(body)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None


def test_large_bodies_are_answered_one_at_a_time_and_small_ones_beside_them(new_scene, pool):
    scene = new_scene()
    began, go_on, running, together = threading.Event(), threading.Event(), [], []

    def respond(request):
        if len(request.body) == LARGE:
            running.append(request)
            together.append(len(running))
            began.set()
            assert go_on.wait(60)
            running.remove(request)
        return scene.echo(request)

    scene.respond = respond
    large = [pool.submit(post, scene, LARGE, b"x" * LARGE) for _ in range(3)]
    assert began.wait(60)
    assert post(scene, 1, b"x") == 200
    go_on.set()

    assert [each.result(60) for each in large] == [200] * 3
    assert together == [1, 1, 1]


def test_a_large_body_is_not_answered_once_its_sender_has_left(new_scene, pool):
    scene = new_scene()
    began, go_on, heard = threading.Event(), threading.Event(), []

    def respond(request):
        heard.append(request.body[:1])
        began.set()
        assert go_on.wait(60)
        return scene.echo(request)

    scene.respond = respond
    first = pool.submit(post, scene, LARGE, b"1" * LARGE)
    assert began.wait(60)
    with scene.connect() as left:
        left.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % LARGE + b"2" * LARGE)
        # It goes, and what is here of it hears what is said to it all the same.
        left.shutdown(socket.SHUT_WR)
        waiting = scene.server._listener.connections._busy
        polling.until(lambda: any(map(http_connections.is_left, tuple(waiting))))
        go_on.set()
        assert first.result(60) == 200
        assert http_scene.read_all(left) == b""
    assert heard == [b"1"]


def test_a_large_body_whose_turn_does_not_come_in_time_is_refused(new_scene, pool):
    scene = new_scene(request_seconds=0.2)
    began, go_on = threading.Event(), threading.Event()

    def respond(request):
        began.set()
        assert go_on.wait(60)
        return scene.echo(request)

    scene.respond = respond
    # On a slow machine 0.2 s may not be enough to be heard at all.
    first = pool.submit(polling.until, lambda: post(scene, LARGE, b"x" * LARGE))
    assert began.wait(60)
    assert polling.until(lambda: post(scene, LARGE, b"x" * LARGE)) == 503
    go_on.set()

    assert first.result(60) == 200


def test_a_large_body_that_breaks_off_does_not_keep_the_next_one_waiting(new_scene):
    scene = new_scene()
    scene.say(b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n\r\nx", shut=True)

    assert post(scene, LARGE, b"x" * LARGE) == 200


@contextlib.contextmanager
def trickling(scene, length, sent):
    """A connection that has sent so much of a body, and goes on by a byte now and then."""
    with scene.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length)
        connection.sendall(b"x" * sent)
        enough = threading.Event()

        def trickle():
            with contextlib.suppress(OSError):
                while not enough.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            yield connection
        finally:
            enough.set()
            thread.join(60)


@pytest.mark.parametrize("sent", [0, 1, LARGE // 2])
def test_who_trickles_a_large_body_keeps_no_other_large_one_out(new_scene, sent):
    scene = new_scene()
    with trickling(scene, LARGE, sent), trickling(scene, http_server.MAX_BODY, sent):
        assert post(scene, LARGE, b"x" * LARGE) == 200


@pytest.mark.parametrize("length", [LARGE // 2, http_server.MAX_BODY], ids=["small", "large"])
def test_bodies_that_stand_still_make_room_for_one_that_comes(new_scene, length):
    scene = new_scene()
    with contextlib.ExitStack() as ends:
        # More than there is room for: of those that are there first, some are gone already.
        count = 3 * http_server.MAX_BODY // length
        idle = []
        for _ in range(count):
            connection = ends.enter_context(scene.connect())
            idle.append(connection)
            with contextlib.suppress(OSError):
                head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length
                connection.sendall(head + b"x" * (length - 1))
        for _ in range(3):
            assert post(scene, length, b"x" * length) == 200
        # Those that have stood still for the longest time were cut.
        assert http_scene.read_all(idle[0]) == b""


def test_a_body_for_which_there_is_no_room_in_time_is_refused():
    room = http_bodies.Room(10, lambda _: None)
    whole, other = socket.socketpair()
    with whole, other, room.body(whole, lambda most: b"x" * most, 8, time.monotonic() + 60) as body:
        assert body == b"x" * 8
        with (
            pytest.raises(http_bodies.NoRoom),
            room.body(other, lambda most: b"x" * most, 8, time.monotonic()),
        ):
            pytest.fail("there is no room")
        # What is small enough has room beside it.
        with room.body(other, lambda most: b"x" * most, 2, time.monotonic()) as second:
            assert second == b"xx"


def test_what_has_been_answered_makes_room():
    room = http_bodies.Room(10, lambda _: None)
    for _ in range(3):
        with room.body(None, lambda most: b"x" * most, 10, time.monotonic()) as body:
            assert body == b"x" * 10


def test_who_has_not_grown_for_the_longest_time_is_cut_first():
    cut = []
    room = http_bodies.Room(10, cut.append)
    pieces = {name: queue.SimpleQueue() for name in "abc"}
    grown = {name: threading.Semaphore(0) for name in "abc"}

    def read(name):
        def next_piece(_most):
            grown[name].release()
            return pieces[name].get(timeout=60)

        return next_piece

    def body(name):
        with contextlib.suppress(ConnectionError), room.body(name, read(name), 8, LATE) as whole:
            return whole
        return "cut"

    def feed(name, size):
        pieces[name].put(b"x" * size)
        # It asks for the next piece once this one is counted.
        grown[name].acquire()

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        running = {name: pool.submit(body, name) for name in "abc"}
        for name in "abc":
            grown[name].acquire()
        for name in ("a", "b", "a", "c"):
            feed(name, 2)
        assert cut == []
        pieces["c"].put(b"x" * 6)
        # Of b there are 2 and of a 4: without b there are still too many.
        assert running["c"].result(60) == b"x" * 8
        assert cut == ["b", "a"]
        for name in "ab":
            pieces[name].put(b"x")
            assert running[name].result(60) == "cut"
