"""Large bodies, of which a server takes one at a time."""

import concurrent.futures
import contextlib
import http.client
import threading

import http_scene
import polling
import pytest

LARGE = 300_000


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


def test_a_large_body_whose_turn_does_not_come_in_time_is_refused_unread(new_scene, pool):
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
    assert polling.until(lambda: post(scene, LARGE, b"")) == 503
    go_on.set()

    assert first.result(60) == 200


def test_a_large_body_that_breaks_off_does_not_keep_the_next_one_waiting(new_scene):
    scene = new_scene()
    scene.say(b"POST / HTTP/1.1\r\nContent-Length: 300000\r\n\r\nx", shut=True)

    assert post(scene, LARGE, b"x" * LARGE) == 200
