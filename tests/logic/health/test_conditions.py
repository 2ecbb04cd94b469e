"""When a condition begins, ends, and comes back."""

import dataclasses

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.health import conditions, meaning
from dra_driver.model import devices, health

GPU = devices.GpuUuid("GPU-1")
USUAL = meaning.Policy()
HOLD = 30.0
FINE = health.Facts(recovery=0, remap_pending=False, thermal_slowdown=False)
HOT = dataclasses.replace(FINE, thermal_slowdown=True)
RESET = dataclasses.replace(FINE, recovery=1)


def at(seconds):
    return conditions.Now(float(seconds), f"t{seconds}")


class Card:
    """The state of one GPU, as time passes."""

    def __init__(self, state=None):
        self.state = state or conditions.State()

    def look(self, facts, seconds):
        seen = meaning.of_facts(GPU, facts, USUAL)
        state = conditions.looked(self.state, seen, at(seconds), HOLD)
        self.state = conditions.lapsed(state, at(seconds), looked=True)
        return self.told()

    def xid(self, number, seconds, *, claims=(), spot=None):
        event = health.Event(health.EventKind.XID, GPU, number)
        finding = meaning.of_event(event, spot, USUAL)
        self.state = conditions.found(self.state, finding, at(seconds), HOLD, claims)
        return self.told()

    def live(self, claims, seconds):
        state = conditions.ended(self.state, claims, at(seconds))
        self.state = conditions.lapsed(state, at(seconds), looked=False)
        return self.told()

    def told(self):
        return {f"{one.finding.key}={one.finding.value}" for one in self.state.conditions}

    @property
    def only(self):
        [one] = self.state.conditions
        return one


def test_what_a_look_finds_counts_at_once_from_then_on():
    card = Card()
    assert card.look(HOT, 5) == {"thermal=slowdown"}
    card.look(HOT, 90)
    assert card.only.since == "t5"


def test_it_goes_when_it_has_stayed_away_for_its_hold():
    card = Card()
    card.look(HOT, 0)
    assert card.look(FINE, 10) == {"thermal=slowdown"}
    assert conditions.next_end(card.state, 39.9) == 40
    assert card.look(FINE, 39) == {"thermal=slowdown"}
    assert card.look(FINE, 40) == set()


def test_what_a_look_has_to_confirm_does_not_go_without_one():
    card = Card()
    card.look(HOT, 0)
    card.look(FINE, 10)
    assert conditions.lapsed(card.state, at(1000), looked=False) == card.state


def test_what_comes_back_within_its_hold_is_held_twice_as_long_each_time():
    card = Card()
    card.look(HOT, 0)
    card.look(FINE, 10)
    card.look(HOT, 20)
    assert (card.only.hold, card.only.returns, card.only.since) == (60, 1, "t0")
    card.look(FINE, 30)
    card.look(HOT, 40)
    assert card.only.hold == 120
    assert "has come back 2 times, and has to stay away 120 s" in conditions.told([card.only])


def test_what_comes_back_within_an_hour_after_it_went_is_held_twice_as_long():
    card = Card()
    card.look(HOT, 0)
    card.look(FINE, 10)
    card.look(FINE, 40)
    card.look(HOT, 1000)
    assert (card.only.hold, card.only.since) == (60, "t1000")
    card.look(FINE, 1010)
    assert card.look(FINE, 1070) == set()
    card.look(HOT, 1070 + 3601)
    assert (card.only.hold, card.only.returns) == (30, 0)


def test_nothing_is_held_for_more_than_an_hour():
    assert conditions.held(30, 10_000) == 3600
    assert conditions.held(30, 1) == 60


def test_an_xid_of_hardware_stays_until_the_driver_wants_nothing_done():
    card = Card()
    card.xid(48, 0)
    card.look(RESET, 1)
    assert card.look(RESET, 500) == {"xid=48", "recovery=reset"}
    card.look(FINE, 510)
    assert card.look(FINE, 540) == set()


def test_on_a_card_that_tells_nothing_of_recovery_it_stays_until_a_reset():
    card = Card()
    silent = health.Facts()
    card.xid(48, 0)
    assert card.look(silent, 10_000) == {"xid=48"}
    card.state = conditions.recovered(card.state, at(10_000))
    assert card.look(silent, 10_029) == {"xid=48"}
    assert card.look(silent, 10_030) == set()


def test_an_xid_that_is_seen_again_begins_its_hold_anew():
    card = Card()
    card.xid(48, 0)
    card.look(FINE, 1)
    card.xid(48, 20)
    assert card.look(FINE, 40) == {"xid=48"}
    assert (card.only.since, card.only.hold) == ("t0", 60)


def test_an_xid_of_an_application_goes_with_the_last_of_its_claims():
    card = Card()
    card.xid(31, 0, claims=("a", "b"))
    assert card.live({"a", "b"}, 5000) == {"xid=31"}
    assert card.live({"b"}, 5001) == {"xid=31"}
    assert card.only.claims == ("b",)
    assert card.live(set(), 5002) == set()


def test_an_xid_of_an_application_without_a_claim_goes_after_the_hold():
    card = Card()
    card.xid(31, 0)
    card.live(set(), 1)
    assert card.live(set(), 30) == {"xid=31"}
    assert card.live(set(), 31) == set()


def test_a_lost_gpu_keeps_what_was_known_of_it():
    card = Card()
    card.look(HOT, 0)
    card.look(FINE, 10)
    card.look(health.Facts(is_lost=True), 20)
    assert card.look(health.Facts(is_lost=True), 900) == {"thermal=slowdown", "gpu-lost="}
    card.look(FINE, 910)
    assert card.look(FINE, 940) == set()


def test_what_cannot_be_read_does_not_count_as_gone():
    card = Card()
    card.look(RESET, 0)
    blind = health.Facts(unread={"recovery": "NVML error 999"})
    assert card.look(blind, 1000) == {"recovery=reset"}


def test_a_boot_ends_what_the_hardware_does_not_repeat():
    card = Card()
    card.xid(79, 0)
    card.xid(31, 0, claims=("a",))
    card.look(dataclasses.replace(RESET, thermal_slowdown=True), 1)
    booted = Card(conditions.rebooted(card.state))
    assert booted.told() == {"recovery=reset", "thermal=slowdown"}
    assert booted.look(RESET, 5) == {"recovery=reset"}
    assert (booted.only.since, booted.only.hold) == ("t1", HOLD)


def test_of_more_conditions_than_are_kept_the_gravest_stay():
    card = Card()
    for number in range(1000, 1100):
        card.xid(number, 0)
    card.xid(31, 0)
    assert len(card.state.conditions) == conditions.MOST
    assert "xid=31" not in card.told()


def test_a_condition_of_an_instance_is_of_its_partition_alone():
    gpu = dataclasses.replace(mig_cards.gpu(mig_cards.H100), uuid=GPU)
    first, second = (mig_cards.spot(gpu, "1g.10gb", start) for start in (0, 1))
    card = Card()
    card.xid(95, 0, spot=first)
    view = conditions.View(card.state.conditions)
    assert view.of(devices.Offer(gpu, None, first)) == card.state.conditions
    assert view.of(devices.Offer(gpu, None, second)) == ()
    assert view.of(devices.Offer(gpu)) == ()
    assert view.of_gpu(GPU) == card.state.conditions


def test_a_condition_of_the_card_is_of_all_its_devices_and_of_no_others():
    gpu = dataclasses.replace(mig_cards.gpu(mig_cards.H100), uuid=GPU)
    part = devices.Offer(gpu, None, mig_cards.spot(gpu, "1g.10gb", 0))
    card = Card()
    card.xid(95, 0)
    view = conditions.View(card.state.conditions)
    assert view.of(devices.Offer(gpu)) == view.of(part) == card.state.conditions
    assert view.of(devices.Offer(mig_cards.gpu(mig_cards.T4))) == ()


def test_a_hold_begins_anew_when_the_driver_wants_something_done_again():
    card = Card()
    card.xid(48, 0)
    card.look(FINE, 1)
    card.look(RESET, 20)
    assert "xid=48" in card.look(FINE, 40)
    assert "xid=48" in card.look(FINE, 69)
    assert "xid=48" not in card.look(FINE, 70)


def test_of_more_than_can_be_kept_the_gravest_stay_however_old_others_are():
    card = Card()
    for number in [13, 31, *range(1000, 1000 + conditions.MOST)]:
        card.xid(number, number)
    assert card.told() == {f"xid={number}" for number in range(1000, 1000 + conditions.MOST)}


def test_what_has_ended_is_remembered_of_so_many_things_the_latest():
    card, most = Card(), conditions.MOST_REMEMBERED
    for number in range(most + 9):
        card.xid(1000 + number, number)
        card.look(FINE, number)
        card.look(FINE, number + HOLD)
    assert len(card.state.left) == most
    card.xid(1000, most + 100)
    assert card.only.returns == 0


def test_what_should_have_ended_and_was_not_looked_at_is_not_waited_for_again():
    card = Card()
    card.look(dataclasses.replace(HOT, recovery=1), 0)
    card.look(RESET, 5)
    card.look(FINE, 10)
    assert [conditions.next_end(card.state, after) for after in (0, 34, 35, 40)] == [
        35,
        35,
        40,
        None,
    ]


def test_what_was_there_before_a_boot_says_so_until_it_is_found_again():
    card = Card()
    card.look(HOT, 0)
    state = conditions.rebooted(card.state)
    assert conditions.replaced(card.state) == card.state
    assert not conditions.replaced(state).conditions
    again = Card(state)
    again.look(HOT, 1)
    assert conditions.replaced(again.state) == again.state
    assert again.only.since == "t0"


def test_the_gravest_is_told_first():
    card = Card()
    card.xid(31, 0)
    card.look(HOT, 1)
    card.xid(48, 2)
    order = [one.finding.key for one in conditions.grave_first(card.state.conditions)]
    assert order == ["xid", "xid", "thermal"]
    assert conditions.told(conditions.grave_first(card.state.conditions)).startswith("XID 48")


_STEPS = st.one_of(
    st.tuples(st.just("xid"), st.sampled_from([31, 48, 79])),
    st.tuples(st.just("look"), st.sampled_from([FINE, HOT, RESET, health.Facts(is_lost=True)])),
    st.tuples(st.just("wait"), st.sampled_from([1, 29, 31, 5000])),
    st.tuples(st.just("end"), st.just(None)),
)


@given(st.lists(_STEPS, max_size=30))
def test_whatever_happens_a_healthy_card_is_well_again_after_its_hold(steps):
    card, now = Card(), 0
    for step, what in steps:
        now += 1
        match step:
            case "xid":
                card.xid(what, now, claims=("a",))
            case "look":
                card.look(what, now)
            case "wait":
                now += what
            case "end":
                card.live(set(), now)
    since = {one.finding.identity: one.since for one in card.state.conditions}
    card.live(set(), now)
    card.look(FINE, now + 1)
    for one in card.state.conditions:
        assert one.since == since[one.finding.identity]
        assert one.away is not None
    assert card.look(FINE, now + 1 + conditions.LONGEST_HOLD) == set()


@pytest.mark.parametrize("wait", [0, 29])
@given(st.lists(_STEPS, max_size=30))
def test_no_condition_ends_while_its_cause_is_there_or_before_its_hold(wait, steps):
    card, now = Card(), 0
    for step, what in steps:
        now += 1
        if step == "look":
            card.look(what, now)
        elif step == "xid" and what != 31:
            card.xid(what, now)
    card.look(RESET, now + 1)
    before = card.told()
    assert "recovery=reset" in before
    card.look(FINE, now + 2)
    assert "recovery=reset" in card.look(FINE, now + 2 + wait)
