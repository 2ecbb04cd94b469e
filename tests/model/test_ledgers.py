import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import ledgers, mig

BLANK = ledgers.Ledger(gpu="GPU-1", boot_id="boot-1")
LOW, HIGH = mig.Spot(19, mig.Placement(0, 1)), mig.Spot(9, mig.Placement(4, 4))
TEXT = """{
 "version": 1,
 "ledger": {
  "gpu": "GPU-1",
  "boot_id": "boot-1",
  "made": [
   {
    "profile_id": 9,
    "start": 4,
    "size": 4
   }
  ],
  "mode_switched": true,
  "time_slice_before": null,
  "compute_mode_before": null
 }
}
"""


def test_the_file_of_a_ledger_is_stable():
    ledger = BLANK.adding(HIGH).switched(on=True)
    assert ledgers.encode(ledger) == TEXT
    assert ledgers.decode(TEXT) == ledger


def test_places_are_added_once_and_taken_away():
    both = BLANK.adding(LOW).adding(HIGH)
    assert both.spots == {LOW, HIGH}
    assert both.adding(LOW) == both
    assert both.without(LOW) == BLANK.adding(HIGH)
    assert both.without(mig.Spot(19, HIGH.placement)) == both
    assert both.without(mig.Spot(19, mig.Placement(1, 1))) == both
    assert BLANK.spots == frozenset()


def test_what_is_said_of_the_mode_is_kept_beside_the_places():
    on = BLANK.adding(LOW).switched(on=True)
    assert on.mode_switched
    assert on.spots == {LOW}
    assert on.adding(HIGH).without(LOW).mode_switched
    assert on.switched(on=False) == BLANK.adding(LOW)


def test_a_ledger_is_blank_while_it_tells_nothing():
    assert BLANK.is_blank
    assert not BLANK.adding(LOW).is_blank
    assert not BLANK.switched(on=True).is_blank
    assert BLANK.adding(LOW).switched(on=True).without(LOW).switched(on=False).is_blank


@pytest.mark.parametrize("field", ["time_slice_before", "compute_mode_before"])
def test_what_a_gpu_was_set_to_before_is_told_even_where_it_was_nothing_special(field):
    told = BLANK.model_copy(update={field: 0})
    assert not told.is_blank
    assert ledgers.decode(ledgers.encode(told)) == told
    assert told.adding(LOW).switched(on=True).without(LOW).switched(on=False) == told


def test_a_file_of_a_driver_that_set_nothing_of_the_kind_is_read():
    document = json.loads(TEXT)
    for field in ("time_slice_before", "compute_mode_before"):
        del document["ledger"][field]
    assert ledgers.decode(json.dumps(document)) == ledgers.decode(TEXT)


def test_a_ledger_does_not_change():
    with pytest.raises(ValueError, match="frozen"):
        BLANK.mode_switched = True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a ledger: "),
        (TEXT[:40], "not a ledger: "),
        ("null", "not a ledger: "),
        ("[]", "not a ledger: "),
        ("{}", "not a ledger: 'version'"),
        ("[" * 100_000, "not a ledger: "),
        ('{"version": 1}', "not a ledger: 'ledger'"),
        (TEXT.replace('"version": 1', '"version": 2'), "version 2 is not 1"),
        (TEXT.replace('"gpu"', '"card"'), "not a ledger: "),
        (TEXT.replace('"size": 4', '"size": "large"'), "not a ledger: "),
        (TEXT.replace('"mode_switched"', '"more": 1, "mode_switched"'), "not a ledger: "),
        (json.dumps({"version": 1, "ledger": []}), "not a ledger: "),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(text, reason):
    with pytest.raises(errors.Rejected) as caught:
        ledgers.decode(text)
    assert str(caught.value).startswith(reason)


SPOTS = st.builds(
    mig.Spot, st.integers(0, 30), st.builds(mig.Placement, st.integers(0, 7), st.integers(1, 8))
)


BEFORE = st.one_of(st.none(), st.integers(0, 3))


@given(st.lists(SPOTS), st.booleans(), BEFORE, BEFORE)
def test_any_ledger_is_read_back_equal(spots, switched, time_slice, mode):
    before = {"time_slice_before": time_slice, "compute_mode_before": mode}
    ledger = BLANK.switched(switched).model_copy(update=before)
    for spot in spots:
        ledger = ledger.adding(spot)
    read = ledgers.decode(ledgers.encode(ledger))
    assert read == ledger
    assert read.spots == frozenset(spots)
    assert len(read.made) == len(read.spots)
