"""How the plugin waits: for as long as it takes, and without saying the same twice."""

import itertools
import threading

import pytest

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.apps.plugin import awaiting

pytestmark = pytest.mark.sampled(7)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(awaiting, "LOOK_AGAIN", 0.0)


@pytest.fixture
def stop():
    return threading.Event()


def scripted(*outcomes):
    """Raises or gives these, one with each call; the last one from then on."""
    left = list(outcomes)

    def call():
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def test_each_reason_is_told_once(stop):
    told = []
    hindrance = scripted("a", "a", "b", "b", "a", None)
    assert awaiting.nothing_in_the_way(hindrance, told.append, stop)
    assert told == ["a", "b", "a"]


def test_whoever_waits_can_be_stopped(stop):
    assert not awaiting.nothing_in_the_way(lambda: "a", lambda _: stop.set(), stop)
    stop.clear()
    attempt = scripted(OSError("no"))
    assert not awaiting.opened(attempt, lambda: "a", lambda _: stop.set(), stop)
    stop.clear()
    awaiting.done(attempt, lambda _: stop.set(), stop)
    assert stop.is_set()


def test_what_works_is_not_looked_at(stop):
    assert awaiting.opened(lambda: None, pytest.fail, pytest.fail, stop)


@pytest.mark.parametrize("error", [OSError("no"), errors.Fatal("no")])
def test_what_fails_is_tried_again_once_nothing_is_in_the_way(stop, error):
    told = []
    attempt = scripted(error, error, None)
    hindrance = scripted("a", "a", None, "b", "b", None)
    assert awaiting.opened(attempt, hindrance, told.append, stop)
    assert told == ["a", "b"]


def test_what_was_in_the_way_may_be_gone_when_it_is_looked_for(stop):
    assert awaiting.opened(scripted(OSError("no"), None), lambda: None, pytest.fail, stop)


def test_what_nobody_can_explain_is_not_tried_for_ever(stop):
    with pytest.raises(errors.Fatal, match="no"):
        awaiting.opened(scripted(OSError("no")), lambda: None, pytest.fail, stop)


def test_what_may_pass_is_tried_until_it_has(stop):
    told = []
    full, held = OSError(28, "No space left on device"), errors.Retryable("lock is held")
    broken = files.explained(OSError(5, "Input/output error"), "written", "/state/x")
    awaiting.done(scripted(full, full, held, broken, None), told.append, stop)
    assert told == [
        "[Errno 28] No space left on device. It is tried again",
        "lock is held. It is tried again",
        f"{broken}. It is tried again",
    ]


@pytest.mark.parametrize("error", [errors.Fatal("no"), errors.Rejected("no")])
def test_what_will_not_work_is_not_tried_again(stop, error):
    with pytest.raises(type(error)):
        awaiting.done(scripted(error, None), pytest.fail, stop)


def test_what_costs_others_something_is_looked_at_ever_less_often():
    clock, looks = [0.0], []

    def hindrance():
        looks.append(clock[0])
        return "a" if clock[0] < 200 else None

    seldom = awaiting.Seldom(hindrance, first=2.0, clock=lambda: clock[0])
    while clock[0] < 210:
        assert seldom() == ("a" if looks[-1] < 200 else None)
        clock[0] += 1.0
    pauses = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert pauses[:9] == [2, 4, 8, 16, 30, 30, 30, 30, 30]


def test_what_is_not_in_the_way_any_more_is_looked_at_each_time():
    looks = []
    seldom = awaiting.Seldom(lambda: looks.append(1), first=2.0, clock=lambda: 0.0)
    for _ in range(3):
        assert seldom() is None
    assert len(looks) == 3
