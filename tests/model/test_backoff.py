"""Pauses before another try."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.model import backoff

SCHEDULE = backoff.Schedule(0.1, 30.0)
CHANCES = st.floats(0, 1, exclude_max=True)


def test_pauses_double_up_to_the_last_one():
    pauses = [SCHEDULE.pause(failures, chance=1.0) for failures in range(1, 12)]
    assert [round(pause, 3) for pause in pauses] == [
        0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0,
    ]  # fmt: skip
    assert SCHEDULE.pause(10**9, chance=1.0) == 30.0


@given(st.integers(1, 50), CHANCES)
def test_a_pause_is_between_a_half_and_the_whole(failures, chance):
    whole = SCHEDULE.pause(failures, chance=1.0)
    assert whole / 2 <= SCHEDULE.pause(failures, chance=chance) <= whole


def test_those_who_fail_together_do_not_come_back_together():
    pauses = {SCHEDULE.pause(5, chance=number / 100) for number in range(100)}
    assert len(pauses) == 100


@given(st.integers(1, 50), CHANCES, st.floats(0, backoff.MOST_ASKED))
def test_nobody_comes_before_the_server_asked_for_it(failures, chance, asked):
    pause = SCHEDULE.pause(failures, chance=chance, asked=asked)
    assert pause >= asked
    assert pause <= max(asked * 1.25, SCHEDULE.pause(failures, chance=1.0))


@pytest.mark.parametrize(("asked", "pause"), [(3600.0, 60.0), (-5.0, 0.05), (0.0, 0.05)])
def test_a_wish_that_makes_no_sense_is_followed_as_far_as_it_does(asked, pause):
    assert math.isclose(SCHEDULE.pause(1, chance=0.0, asked=asked), pause)


def test_failures_count_until_it_works():
    made = backoff.Backoff(SCHEDULE, lambda: 0.0)
    assert [made.failed() for _ in range(3)] == [0.05, 0.1, 0.2]
    made.worked()
    assert made.failed() == 0.05


def test_what_an_error_of_the_api_server_asks_for_is_the_least():
    made = backoff.Backoff(SCHEDULE, lambda: 0.0)
    busy = kube.Unavailable("GET /x", 429, "TooManyRequests", "later", retry_after=7.0)
    assert made.failed(busy) == 7.0
    assert made.failed(errors.Retryable("away")) == 0.1
