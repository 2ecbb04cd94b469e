import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import ledgers, mig

BLANK = ledgers.Ledger(gpu="GPU-1", boot_id="boot-1")
LOW, HIGH = mig.Spot(19, mig.Placement(0, 1)), mig.Spot(9, mig.Placement(4, 4))
OLD = """{
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
"""As an earlier driver wrote it, with all of a GPU in one file."""
TEXT = """{
 "checksum": "sha256:daf2f04ca225a17054ed9bcae65bc2635df656887e49556212f0f84c36b81498",
 "ledger": {
  "boot_id": "boot-1",
  "compute_mode_before": null,
  "gpu": "GPU-1",
  "is_page": true,
  "made": [{"profile_id": 9, "size": 4, "start": 4}],
  "mode_switched": false,
  "time_slice_before": null
 },
 "version": 1
}
"""


def test_the_file_of_a_page_is_stable():
    [page] = ledgers.pages(BLANK.adding(HIGH))
    assert page.key == "GPU-1.b6f547b6.made-9-4-4"
    assert ledgers.encode(page) == TEXT
    assert ledgers.decode(TEXT) == page


def test_the_file_of_an_earlier_driver_is_read():
    assert ledgers.decode(OLD) == BLANK.adding(HIGH).switched(on=True)


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


def test_a_gpu_that_was_taken_from_its_driver_is_told_by_the_name_of_a_page_alone():
    taken = BLANK.model_copy(update={"handed_over": "0000:41:00.0"})
    [page] = ledgers.pages(taken)
    assert page.key == "GPU-1.b6f547b6.handed-over-0000-41-00-0"
    assert ledgers.page(page.key, "boot-1") == page
    assert ledgers.page(page.key, "boot-2") is None
    assert ledgers.bound("GPU-1", "boot-1", [page]) == taken


def test_a_page_of_something_else_says_nothing_of_it_so_that_an_older_driver_reads_it():
    [page] = ledgers.pages(BLANK.adding(LOW))
    assert "handed_over" not in ledgers.encode(page)
    assert "persistence_off" not in ledgers.encode(page)


def test_a_file_of_a_driver_that_set_nothing_of_the_kind_is_read():
    document = json.loads(OLD)
    for field in ("time_slice_before", "compute_mode_before"):
        del document["ledger"][field]
    assert ledgers.decode(json.dumps(document)) == ledgers.decode(OLD)


def test_a_ledger_does_not_change():
    with pytest.raises(ValueError, match="frozen"):
        BLANK.mode_switched = True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a ledger ("),
        (TEXT[:40], "not a ledger ("),
        ("{}", "not a ledger (KeyError: 'version')"),
        ('{"version": 1}', "not a ledger (KeyError: 'ledger')"),
        (TEXT.replace('"version": 1', '"version": 2'), "version 2 is not one that this driver"),
        (
            TEXT.replace("GPU-1", "GPU-2"),
            "checksum 'sha256:daf2f04c",
        ),
        (OLD.replace('"gpu"', '"card"'), "content is not a ledger: "),
        (OLD.replace('"size": 4', '"size": "large"'), "content is not a ledger: "),
        (OLD.replace('"mode_switched"', '"more": 1, "mode_switched"'), "content is not a ledger: "),
        (json.dumps({"version": 1, "ledger": []}), "content is not a ledger: "),
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


PLACES = st.one_of(
    st.none(), st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", fullmatch=True)
)


@given(st.lists(SPOTS), st.booleans(), BEFORE, BEFORE, PLACES, st.booleans())
def test_any_ledger_is_the_same_once_it_was_kept_page_by_page(
    spots, switched, time_slice, mode, place, persistence
):
    before = {
        "time_slice_before": time_slice,
        "compute_mode_before": mode,
        "handed_over": place,
        "persistence_off": persistence,
    }
    ledger = BLANK.switched(switched).model_copy(update=before)
    for spot in spots:
        ledger = ledger.adding(spot)
    pages = list(ledgers.pages(ledger))
    assert len({page.key for page in pages}) == len(pages)
    assert [ledgers.decode(ledgers.encode(page)) for page in pages] == pages
    assert ledgers.bound("GPU-1", "boot-1", pages) == ledger
    assert ledgers.decode(ledgers.encode(ledger)) == ledger
    # Their names alone tell as much.
    assert [ledgers.page(page.key, "boot-1") for page in pages] == pages
    assert [ledgers.page(page.key, "boot-2") for page in pages] == [None] * len(pages)
    assert all(ledgers.is_of_another_boot(page.key, "boot-2") for page in pages)
    assert not any(ledgers.is_of_another_boot(page.key, "boot-1") for page in pages)


@pytest.mark.parametrize(
    "key",
    [
        "GPU-1",
        "GPU-1.b6f547b6",
        "GPU-1.b6f547b6.made-1-2",
        "GPU-1.b6f547b6.mig-mode-1",
        "GPU-1.b6f547b6.",
        "x.y.z",
        "",
    ],
)
def test_what_is_no_name_of_a_page_tells_nothing(key):
    assert ledgers.page(key, "boot-1") is None
    assert not ledgers.is_of_another_boot(key, "boot-1")
