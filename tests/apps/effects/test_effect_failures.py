"""Effects of which one fails while a claim that needs all of them is prepared or unprepared."""

import math

import effect_claims
import effect_faults
import pytest

from dra_driver import errors
from dra_driver.apps.preparing import preparing

pytestmark = pytest.mark.sampled(10)

KINDS = pytest.mark.parametrize("kind", effect_claims.CASES, ids=effect_claims.NAMES)
MOMENTS = pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
LISTED = list(effect_claims.CASES)


@pytest.fixture
def is_tried_once(host, monkeypatch):
    """What may work in a moment is not tried again by the same call."""
    monkeypatch.setattr(preparing, "LOOK_AGAIN", math.inf)


@pytest.fixture
def faults(monkeypatch):
    return effect_faults.Faults(monkeypatch)


@pytest.fixture
def ref(users):
    return effect_claims.everything(users)


def test_a_claim_that_needs_all_effects_has_them_made_in_order_and_undone_backwards(
    host, ref, faults
):
    host.prepare(ref)
    # Those that wait for something outside are asked again, and all before them.
    assert list(dict.fromkeys(faults.order("make"))) == LISTED
    assert all(one.is_in(host.record(ref)) for one in host.effects.listed)
    host.unprepare(ref)
    assert list(dict.fromkeys(faults.order("undo"))) == LISTED[::-1]
    assert host.is_clean()


@KINDS
@MOMENTS
@pytest.mark.usefixtures("is_tried_once")
@pytest.mark.parametrize(
    "error",
    [errors.Rejected("it never will"), errors.Retryable("not now"), RuntimeError("a defect")],
    ids=["refused", "tried again", "defect"],
)
def test_what_fails_while_it_is_made_leaves_nothing_of_any_effect(
    host, ref, faults, kind, error, is_late
):
    faults.inject(kind, "make", error, is_late=is_late)
    with pytest.raises(type(error), match=str(error)):
        host.prepare(ref)
    faults.clear()
    assert host.files() == []
    assert host.is_clean()
    host.prepare(ref)
    assert effect_claims.has_everything(host, ref)
    host.unprepare(ref)
    assert host.is_clean()


@KINDS
@MOMENTS
@pytest.mark.usefixtures("is_tried_once")
def test_the_undo_of_what_was_begun_begins_before_the_call_waits_for_its_next_attempt(
    host, ref, faults, monkeypatch, kind, is_late
):
    # Others want the devices meanwhile. What the end of the call undoes comes later.
    monkeypatch.setattr(preparing.Preparer, "_give_up", lambda *_: None)
    faults.inject(kind, "make", errors.Retryable("not now"), is_late=is_late)
    with pytest.raises(errors.Retryable, match="not now"):
        host.prepare(ref)
    # A daemon that runs has been told to end, which takes its time.
    assert host.record(ref) is None or host.preparer.leaving() == [ref.uid]
    host.unprepare(ref)
    assert host.is_clean()


@KINDS
@MOMENTS
def test_what_may_work_in_a_moment_is_made_by_the_same_call(host, ref, faults, kind, is_late):
    faults.inject(kind, "make", errors.Retryable("not now"), is_late=is_late, times=1)
    host.prepare(ref)
    assert effect_claims.has_everything(host, ref)


@KINDS
@MOMENTS
@pytest.mark.usefixtures("is_tried_once")
@pytest.mark.parametrize("then", ["unprepare", "prepare", "restart"])
def test_what_fails_while_it_is_undone_is_undone_later_or_made_again(
    host, new_host, ref, faults, kind, is_late, then
):
    host.prepare(ref)
    faults.inject(kind, "undo", errors.Retryable("it is in use"), is_late=is_late)
    with pytest.raises(errors.Retryable, match="it is in use"):
        host.unprepare(ref)
    # Below what could not be undone nothing is.
    below = LISTED[: LISTED.index(kind)]
    assert not {*below} & {*faults.order("undo")}
    assert host.record(ref) is not None
    faults.clear()
    if then == "prepare":
        host.prepare(ref)
        assert effect_claims.has_everything(host, ref)
    elif then == "restart":
        host = new_host().start()
    host.unprepare(ref)
    assert host.files() == []
    assert host.is_clean()
