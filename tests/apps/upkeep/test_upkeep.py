"""What is put in order while the driver runs."""

import threading

import pytest
import structlog

from dra_driver import errors
from dra_driver.apps.upkeep import upkeep


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_each_task_is_done_whether_or_not_those_before_it_work(log):
    done = []

    def refuses():
        raise errors.Retryable("the disk is full")

    def fails():
        raise ZeroDivisionError

    made = upkeep.Upkeep([], [])
    for _ in range(3):
        made.look([refuses, fails, lambda: done.append(1)])
    assert done == [1, 1, 1]
    assert [line["event"] for line in log] == [
        "not put in order for now",
        *("putting in order failed unexpectedly",) * 3,
    ]
    assert log[0]["reason"] == "the disk is full"


def test_a_reason_is_told_again_once_the_task_has_worked(log):
    outcomes = [errors.Retryable("a"), None, errors.Retryable("a"), errors.Retryable("b")]

    def task():
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    made = upkeep.Upkeep([], [])
    while outcomes:
        made.look([task])
    assert [line["reason"] for line in log] == ["a", "a", "b"]


def test_what_costs_more_is_done_less_often_and_nothing_after_the_end():
    done, enough = [], threading.Event()

    def often():
        done.append("often")

    def seldom():
        done.append("seldom")
        if done.count("seldom") == 2:
            enough.set()

    made = upkeep.Upkeep([often], [seldom], interval=0.001)
    made.start()
    assert enough.wait(60)
    made.stop()
    up_to = len(done)
    assert done[: 2 * (upkeep.SELDOM + 1)] == [*["often"] * upkeep.SELDOM, "seldom"] * 2
    made.look([often])
    assert len(done) == up_to


def test_one_that_was_never_started_can_be_stopped():
    upkeep.Upkeep([], []).stop()
