"""The order of calls for one claim."""

import contextlib
import threading

import polling
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.adapters.system import patience
from dra_driver.apps.preparing import turns

LONG = 60.0
PREPARE, UNPREPARE, SWEEP = turns.Kind.PREPARE, turns.Kind.UNPREPARE, turns.Kind.SWEEP
OVERTAKEN = "the claim is unprepared: nobody waits for its devices any more"


@pytest.fixture
def calls():
    made = turns.Turns()
    yield made
    assert made._calls == {}


@contextlib.contextmanager
def coming(turn):
    """Whether the turn has come, as it is asked for in another thread."""
    outcome = []

    def come():
        try:
            turn.come()
        except errors.DriverError as error:
            outcome.append(str(error))
        else:
            outcome.append("come")

    thread = threading.Thread(target=come, daemon=True)
    thread.start()
    yield outcome
    thread.join(LONG)
    assert not thread.is_alive()


def arrive(calls, kind, seconds=LONG, uid="uid-1"):
    return calls.arrive(uid, kind, patience.Patience(seconds))


def test_calls_of_one_kind_come_in_the_order_in_which_they_arrived(calls):
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        one = first.enter_context(arrive(calls, PREPARE))
        two = second.enter_context(arrive(calls, PREPARE))
        one.come()
        with coming(two) as outcome:
            polling.until(lambda: two.waiting._wakers[1:])
            assert outcome == []
            first.close()
    assert outcome == ["come"]


def test_other_claims_are_not_waited_for(calls):
    with arrive(calls, PREPARE) as one, arrive(calls, PREPARE, uid="uid-2") as other:
        one.come()
        other.come()


def test_an_unprepare_ends_the_prepares_before_it_and_does_not_wait_for_them(calls):
    with arrive(calls, PREPARE) as one, arrive(calls, PREPARE) as two:
        one.come()
        with coming(two) as outcome, arrive(calls, UNPREPARE) as undo:
            undo.come()
        assert outcome == [OVERTAKEN]
        assert one.waiting.ended == OVERTAKEN


def test_a_prepare_after_an_unprepare_waits_for_it(calls):
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        undo = first.enter_context(arrive(calls, UNPREPARE))
        undo.come()
        anew = second.enter_context(arrive(calls, PREPARE))
        with coming(anew) as outcome:
            polling.until(lambda: anew.waiting._wakers[1:])
            assert outcome == []
            first.close()
    assert outcome == ["come"]


@pytest.mark.parametrize("kind", [PREPARE, UNPREPARE])
def test_what_the_kubelet_asks_for_ends_what_it_has_not_asked_for(calls, kind):
    with arrive(calls, SWEEP) as sweep:
        sweep.come()
        with arrive(calls, kind) as asked:
            asked.come()
        with pytest.raises(errors.Abandoned):
            sweep.waiting.check()


def test_what_the_kubelet_has_not_asked_for_waits_for_what_it_has(calls):
    with arrive(calls, PREPARE) as asked:
        asked.come()
        asked.progress = "the API server is away"
        with arrive(calls, SWEEP, seconds=0) as sweep, pytest.raises(errors.Retryable) as caught:
            sweep.come()
        assert asked.waiting.ended is None
    assert str(caught.value) == (
        "an earlier call for the claim is not done yet: the API server is away"
    )


def test_a_call_for_which_nobody_waits_any_more_holds_up_nobody(calls):
    with arrive(calls, PREPARE) as one, arrive(calls, PREPARE) as two:
        one.come()
        with coming(two) as outcome:
            polling.until(lambda: two.waiting._wakers[1:])
            one.waiting.end("the kubelet has gone")
    assert outcome == ["come"]


def test_only_the_call_that_came_last_is_the_last(calls):
    with arrive(calls, PREPARE) as one:
        assert one.is_last
        with arrive(calls, UNPREPARE) as two:
            assert (one.is_last, two.is_last) == (False, True)
        with arrive(calls, SWEEP):
            assert one.is_last


def test_there_are_not_more_calls_for_a_claim_than_may_be(calls):
    with contextlib.ExitStack() as stack:
        for _ in range(turns.MOST):
            stack.enter_context(arrive(calls, PREPARE))
        with pytest.raises(errors.Retryable, match="32 calls for the claim are there already"):
            stack.enter_context(arrive(calls, PREPARE))
        # One of another claim is not meant.
        stack.enter_context(arrive(calls, PREPARE, uid="uid-2"))


@given(st.lists(st.sampled_from(turns.Kind), min_size=1, max_size=8))
def test_of_calls_that_none_overtakes_just_the_first_may_work(kinds):
    calls = turns.Turns()
    with contextlib.ExitStack() as stack:
        there = [stack.enter_context(arrive(calls, kind, seconds=0)) for kind in kinds]
        may_work = []
        for turn in there:
            with contextlib.suppress(errors.Retryable):
                turn.come()
                may_work.append(turn)
        left = [
            turn
            for number, turn in enumerate(there)
            if all(later.kind <= turn.kind for later in there[number:])
        ]
        assert may_work == left[:1]
