"""What is told of what the driver waits for, and when the API server is asked."""

import threading
import types

import api_cluster
import polling
import pytest
import structlog.testing

from dra_driver.apps.offering import inventory
from dra_driver.apps.telling import readiness

CARD = types.SimpleNamespace(gpu=types.SimpleNamespace(minor=3), is_bound=False)


class Node:
    """Everything is as it has to be, until a test says otherwise."""

    def __init__(self):
        self.looked = True
        self.snapshot = inventory.Snapshot(cards=(CARD,))
        self.gone = None
        self.is_published = True
        self.answer = None
        self.questions = 0
        self.looks = threading.Semaphore(0)
        self.refusal, self.left_out = None, {}
        self.readiness = readiness.Readiness(
            self,
            missing=self.missing,
            published=lambda: self.is_published,
            ask=self.ask,
            refusal=lambda: self.refusal,
            left_out=lambda: self.left_out,
        )

    def wait_first(self, _seconds):
        return self.looked

    def missing(self, gpus):
        assert [gpu.minor for gpu in gpus] in ([3], [])
        self.looks.release()
        return self.gone

    def ask(self):
        self.questions += 1
        return self.answer

    def wait_looks(self, count):
        for _ in range(count):
            assert self.looks.acquire(timeout=api_cluster.DEADLINE)


@pytest.fixture
def node(monkeypatch):
    monkeypatch.setattr(readiness, "PAUSE", 0.0)
    monkeypatch.setattr(readiness, "LOOK_AGAIN", 0.001)
    made = Node()
    yield made
    made.readiness.stop()
    # What it still says is said in this test, and not in the next one.
    polling.until(lambda: not made.readiness.is_alive)


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def reasons(log):
    return [line.get("reason") for line in log]


def test_nothing_is_told_of_a_node_that_has_all(node, log):
    node.readiness.start()
    node.wait_looks(3)
    assert node.readiness.hindrance() is None
    assert log == []
    assert node.questions == 0


def test_what_is_missing_is_told_once_however_often_it_is_looked_at(node, log):
    node.gone = "no /dev/nvidia3"
    node.readiness.start()
    node.wait_looks(5)
    assert node.readiness.hindrance() == "no /dev/nvidia3"
    assert reasons(log) == ["no /dev/nvidia3"]
    node.gone = None
    api_cluster.wait_for(lambda: len(log) == 2, "it is told that it is back")
    assert log[1]["event"] == "nothing is waited for any more"


def test_gpus_come_before_all_that_is_about_them(node):
    node.is_published = False
    node.snapshot = inventory.Snapshot(cards=(CARD,), problem="no driver")
    assert node.readiness.hindrance() == "no GPU can be seen: no driver"
    node.gone = "no /dev/nvidiactl"
    told = "no GPU can be seen: no driver. Also: no /dev/nvidiactl"
    assert node.readiness.hindrance() == told
    node.looked = False
    assert "NVML does not come back" in node.readiness.hindrance()


def test_a_node_without_gpus_needs_no_device_nodes(node):
    node.gone, node.snapshot = "no /dev/nvidia3", inventory.Snapshot()
    assert node.readiness.hindrance() is None


def test_slices_that_are_not_published_yet_are_no_news_but_do_not_make_ready(node, log):
    node.is_published = False
    node.readiness.start()
    node.wait_looks(3)
    assert node.readiness.hindrance() == "ResourceSlices are not published yet"
    assert log == []
    assert node.questions == 0


def test_the_api_server_is_asked_once_for_each_failure(node, log):
    node.is_published, node.answer = False, "no Node"
    node.readiness.start()
    for count in (1, 2):
        node.readiness.doubt()
        api_cluster.wait_for(lambda count=count: node.questions == count, "a question")
        node.wait_looks(3)
    assert node.questions == 2
    assert node.readiness.hindrance() == "no Node"
    assert reasons(log) == ["no Node"]
    node.is_published = True
    assert node.readiness.hindrance() is None


def test_an_api_server_that_refuses_what_has_changed_since_is_told_of(node):
    node.refusal = "no right to update"
    told = "ResourceSlices are not as they should be: no right to update"
    assert node.readiness.hindrance() == told
    node.is_published, node.answer = False, None
    assert node.readiness.hindrance() == "ResourceSlices are not published yet"


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        ({"gpu-1": "why"}, "the API server refuses gpu-1, so it is not offered: why"),
        (
            {"gpu-2": "other", "gpu-1": "why", "gpu-3": "why"},
            "the API server refuses gpu-1 and 2 more, so they are not offered: why",
        ),
    ],
)
def test_devices_that_the_api_server_refuses_are_named(node, left_out, told):
    node.left_out = left_out
    assert node.readiness.hindrance() == told


def test_what_fails_after_that_is_not_asked_about(node):
    node.answer = "no Node"
    node.readiness.start()
    node.readiness.doubt()
    node.wait_looks(3)
    assert node.questions == 0
    assert node.readiness.hindrance() is None


def test_a_look_that_goes_wrong_is_not_the_last(node, log):
    def broken():
        node.questions += 1
        raise TypeError("broken")

    node.readiness._ask = broken
    node.is_published = False
    node.readiness.start()
    for count in (1, 2):
        node.readiness.doubt()
        api_cluster.wait_for(lambda count=count: node.questions == count, "a question")
    node.wait_looks(1)
    assert {line["event"] for line in log} == {"looking for what is missing failed unexpectedly"}


def test_what_a_gpu_of_a_virtual_machine_lacks_is_waited_for_by_nobody(node):
    passed = types.SimpleNamespace(gpu=types.SimpleNamespace(minor=7), is_bound=True)
    node.snapshot = inventory.Snapshot(cards=(CARD, passed))
    assert node.readiness.hindrance() is None
    node.snapshot = inventory.Snapshot(cards=(passed,))
    node.gone = "there is no /dev/nvidia7"
    assert node.readiness.hindrance() is None
