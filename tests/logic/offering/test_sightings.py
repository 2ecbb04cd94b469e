"""What one look may change, and what has to be seen twice."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.offering import catalog, sightings
from dra_driver.model import devices, mig

NO = devices.NoAnswer("NVML error 3 (Not Supported)", is_odd=False)
ODD = devices.NoAnswer("NVML error 999 (Unknown Error)", is_odd=True)
CARDS = tuple(catalog.card(gpu, mig.Mode.OFF) for gpu in mig_cards.node("h100-80gb-hbm3:1,t4:1"))
FIRST, SECOND = CARDS
PATIENCE = 1.0


def look(*cards, failures=(), problem=None, **answers):
    """`answers` are those of the first GPU."""
    told = {FIRST.gpu.uuid: answers} if answers else {}
    places = {card.gpu.pci_address: card.gpu.uuid for card in cards}
    return sightings.Look(tuple(cards), tuple(failures), told, places, problem)


def seen(before, then, *, now=0.0, busy=()):
    return sightings.weighed(
        before, then, now=now, patience=PATIENCE, is_busy=lambda name: name in busy
    )


def known(**answers):
    """What is known after two looks, of which the second confirms the first."""
    first = seen(sightings.Known(), look(*CARDS, **answers), now=-PATIENCE)
    return seen(first, look(*CARDS, **answers))


def other(**facts):
    """The first card, with other facts."""
    return catalog.card(dataclasses.replace(FIRST.gpu, **facts), mig.Mode.OFF)


def failure(uuid=None, address=None, *, lost=False):
    return devices.GpuFailure(0, uuid, address, "why", is_lost=lost)


def test_what_is_seen_first_counts_by_minor_number():
    assert seen(sightings.Known(), look(SECOND, FIRST)).cards == CARDS


def test_what_has_changed_without_any_error_counts_at_once():
    after = other(driver_version="590.1.1")
    assert seen(known(brand=None), look(after, SECOND, brand=None)).cards == (after, SECOND)


@pytest.mark.parametrize(
    ("before", "now", "taken"),
    [
        ({"brand": None}, {"brand": NO}, False),
        ({"brand": None}, {"brand": ODD}, False),
        ({"brand": NO}, {"brand": ODD}, False),
        ({"brand": ODD}, {"brand": NO}, False),
        ({}, {"brand": ODD}, False),
        # As it failed before, or was not asked before.
        ({"brand": NO}, {"brand": NO}, True),
        ({"brand": ODD}, {"brand": ODD}, True),
        ({}, {"brand": NO}, True),
        ({"brand": NO}, {"brand": None}, True),
    ],
)
def test_what_has_changed_counts_at_once_unless_something_failed_that_did_not_before(
    before, now, taken
):
    after = other(driver_version="590.1.1")
    found = seen(known(**before), look(after, SECOND, **now))
    assert found.cards == ((after if taken else FIRST), SECOND)
    assert (found.doubts == ()) is taken


def test_what_failed_without_any_consequence_is_no_doubt():
    found = seen(known(brand=None), look(*CARDS, brand=ODD))
    assert (found.cards, found.doubts) == (CARDS, ())


def test_a_fact_that_is_missing_without_an_error_is_doubted():
    found = seen(known(), look(other(numa_node=None, pcie_root=None, brand=None), SECOND))
    assert found.cards == CARDS
    assert found.doubts == ("gpu-0: brand cannot be read any more",)


@pytest.mark.parametrize(
    ("failures", "stays"),
    [
        ([failure(uuid=FIRST.gpu.uuid)], True),
        ([failure(uuid=FIRST.gpu.uuid, lost=True)], False),
        ([failure(address=FIRST.gpu.pci_address)], True),
        ([failure(address=FIRST.gpu.pci_address, lost=True)], False),
        # It may be this one.
        ([failure()], True),
        ([failure(), failure(lost=True)], True),
        ([failure(lost=True)], False),
        # It is another one.
        ([failure(uuid="GPU-other")], False),
        ([failure(address="0000:99:00.0")], False),
        ([], False),
    ],
)
def test_a_gpu_that_is_not_seen_stays_for_now_where_it_may_be_one_that_failed(failures, stays):
    found = seen(known(), look(SECOND, failures=failures))
    assert found.cards == (CARDS if stays else (SECOND,))


def test_a_gpu_in_whose_place_there_is_another_does_not_stay():
    after = other(uuid="GPU-other")
    assert seen(known(), look(after, SECOND, failures=[failure()])).cards == (after, SECOND)


def test_a_gpu_in_whose_place_there_is_one_that_cannot_be_used_does_not_stay():
    then = look(SECOND, failures=[failure(uuid="GPU-other")])
    places = {FIRST.gpu.pci_address: "GPU-other"}
    assert seen(known(), dataclasses.replace(then, places=places)).cards == (SECOND,)


def test_a_new_gpu_of_which_an_answer_failed_is_waited_for_a_while():
    then = look(*CARDS, brand=ODD)
    first = seen(sightings.Known(), then, now=10.0)
    assert first.cards == (SECOND,)
    assert first.doubts == ("gpu-0: brand: NVML error 999 (Unknown Error)",)
    assert seen(first, look(*CARDS, brand=None), now=10.1).cards == CARDS
    second = seen(first, then, now=10.9)
    assert second.cards == (SECOND,)
    assert seen(second, then, now=11.0).cards == CARDS


def test_a_doubt_becomes_certain_after_a_while_and_not_before():
    then = look(SECOND, failures=[failure(uuid=FIRST.gpu.uuid)])
    first = seen(known(), then, now=10.0)
    second = seen(first, then, now=10.9)
    third = seen(second, then, now=11.0)
    assert (first.cards, second.cards, third.cards) == (CARDS, CARDS, (SECOND,))
    assert third.doubts == ()


def test_a_doubt_that_is_gone_meanwhile_begins_anew():
    then = look(SECOND, failures=[failure(uuid=FIRST.gpu.uuid)])
    first = seen(known(), then, now=10.0)
    back = seen(first, look(*CARDS), now=10.5)
    assert seen(back, then, now=11.5).cards == CARDS


def test_a_driver_that_is_away_takes_all_after_a_while():
    first = seen(known(), look(problem="no driver"), now=10.0)
    assert (first.cards, first.doubts) == (CARDS, ("no driver",))
    assert seen(first, look(problem="no driver"), now=11.0).cards == ()


def test_a_busy_card_stays_as_it_was_however_long_and_is_seen_twice_after_that():
    then = look(other(mig_pending=True), SECOND)
    found = known()
    for now in (10.0, 20.0):
        found = seen(found, then, now=now, busy={"gpu-0"})
        assert (found.cards, found.doubts) == (CARDS, ("gpu-0: a claim is at work on it",))
    found = seen(found, then, now=30.0)
    assert found.cards == CARDS
    assert seen(found, then, now=31.0).cards == then.cards


def test_a_busy_card_is_not_waited_for_where_the_driver_is_away_or_the_card_is_gone():
    first = seen(known(), look(problem="no driver"), now=10.0, busy={"gpu-0"})
    away = seen(first, look(problem="no driver"), now=11.0, busy={"gpu-0"})
    assert away.cards == ()
    assert seen(known(), look(SECOND), busy={"gpu-0"}).cards == (SECOND,)


def test_what_claims_change_of_a_card_is_no_other_card():
    cut = dataclasses.replace(FIRST.gpu, mig_enabled=True, mig_pending=True)
    then = look(dataclasses.replace(FIRST, gpu=cut), SECOND, brand=NO)
    assert seen(known(brand=None), then).cards == then.cards


@pytest.mark.parametrize(
    ("then", "odd"),
    [
        (look(*CARDS), False),
        (look(*CARDS, brand=NO), False),
        (look(*CARDS, brand=ODD), True),
        (look(problem="no driver"), True),
        (look(SECOND, failures=[failure(lost=True)]), False),
        (look(SECOND, failures=[failure()]), True),
    ],
)
def test_a_look_is_odd_where_the_next_one_may_go_otherwise(then, odd):
    assert then.is_odd is odd
