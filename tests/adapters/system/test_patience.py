"""How long somebody waits, and that they may stop waiting before."""

import threading

import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.system import patience

LONG = 60.0


def in_thread(work):
    """The thread, and what the work came to: its value, or the error that it raised."""
    outcome = []

    def run():
        try:
            outcome.append(work())
        except errors.DriverError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_of_several_reasons_the_first_counts():
    waiting = patience.Patience(LONG)
    assert waiting.ended is None
    waiting.check()
    waiting.end("gone")
    waiting.end("late")
    assert waiting.ended == "gone"
    with pytest.raises(errors.Abandoned, match="gone"):
        waiting.check()


def test_whoever_sleeps_is_woken_by_the_end():
    waiting = patience.Patience(LONG)
    thread, outcome = in_thread(lambda: waiting.sleep(LONG))
    polling.until(lambda: waiting._wakers)
    waiting.end("gone")
    thread.join(LONG)
    assert [str(error) for error in outcome] == ["gone"]


def test_nobody_sleeps_beyond_the_end():
    waiting = patience.Patience(0)
    waiting.sleep(LONG)
    assert waiting.left == 0


def test_what_happens_is_told_to_who_waits_for_it():
    waiting, condition, happened = patience.Patience(LONG), threading.Condition(), []
    thread, outcome = in_thread(lambda: waiting.wait_for(condition, lambda: bool(happened)))
    polling.until(lambda: waiting._wakers)
    with condition:
        happened.append(True)
        condition.notify_all()
    thread.join(LONG)
    assert outcome == [True]


def test_what_does_not_happen_is_waited_for_until_the_end_of_patience():
    assert patience.Patience(0.01).wait_for(threading.Condition(), lambda: False) is False


def test_who_waits_for_something_is_woken_by_the_end():
    waiting, condition = patience.Patience(LONG), threading.Condition()
    thread, outcome = in_thread(lambda: waiting.wait_for(condition, lambda: False))
    polling.until(lambda: waiting._wakers)
    waiting.end("gone")
    thread.join(LONG)
    assert [str(error) for error in outcome] == ["gone"]


def test_what_has_happened_is_worth_more_than_that_nobody_waits():
    waiting = patience.Patience(LONG)
    waiting.end("gone")
    assert waiting.wait_for(threading.Condition(), lambda: True) is True


def test_less_patience_ends_with_the_whole():
    waiting = patience.Patience(LONG)
    with waiting.at_most(1.0) as shorter:
        assert shorter.left <= 1.0
        waiting.end("gone")
        assert shorter.ended == "gone"
    with waiting.at_most(1.0) as shorter:
        assert shorter.ended == "gone"


def test_less_patience_is_never_more():
    waiting = patience.Patience(0)
    with waiting.at_most(LONG) as shorter:
        assert shorter.left == 0


def test_the_end_of_less_patience_is_not_that_of_the_whole():
    waiting = patience.Patience(LONG)
    with waiting.at_most(1.0) as shorter:
        shorter.end("enough")
    assert waiting.ended is None


def test_after_the_block_nobody_is_woken():
    waiting, woken = patience.Patience(LONG), []
    with waiting.waking(lambda: woken.append("in")):
        pass
    waiting.end("gone")
    assert woken == []
    with waiting.waking(lambda: woken.append("after")):
        assert woken == ["after"]


def test_what_takes_long_is_looked_at_less_often_and_never_seldom():
    pauses = [patience.pause(waited) for waited in (0.0, 0.05, 0.5, 1.0, 3600.0)]
    assert pauses == [0.01, 0.01, 0.05, 0.1, 0.1]
