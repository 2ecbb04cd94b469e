"""Which GPUs are reset now, and why others wait."""

import dataclasses

import hypothesis
import pytest
from hypothesis import strategies

from dra_driver.logic.health import conditions, recovery
from dra_driver.model import devices, health, mig, taints

A, B, C = (devices.GpuUuid(f"GPU-{letter}") for letter in "abc")
NOW = 10_000.0


def card(gpu, **facts):
    return recovery.Card(gpu, f"gpu-{'abc'.index(gpu[-1])}", **facts)


def situation(*cards, **facts):
    return recovery.Situation({one.gpu: one for one in cards}, NOW, **facts)


def decided(*cards, asking=(A,), **facts):
    return recovery.decided(asking, situation(*cards, **facts))


def condition(value, key=health.Key.RECOVERY, **facts):
    return health.Condition(
        health.Finding(A, key, value, taints.NO_SCHEDULE, "wanted"), "2026-11-30T10:00:00Z", **facts
    )


@pytest.mark.parametrize("value", ["reset", "drain-and-reset"])
def test_a_reset_is_wanted_where_the_driver_asks_for_one(value):
    assert recovery.wanted(conditions.View((condition(value),))) == {A}


@pytest.mark.parametrize(
    "one",
    [
        condition("reboot"),
        condition("drain"),
        condition("remap-pending", health.Key.MEMORY),
        condition("79", health.Key.XID),
        condition("reset", away=5.0, hold=30.0),
    ],
    ids=["reboot", "drain", "remap", "xid", "taken back"],
)
def test_for_nothing_else_a_card_is_reset(one):
    assert recovery.wanted(conditions.View((one,))) == frozenset()


def test_a_card_that_nobody_has_is_due():
    assert decided(card(A), card(B)) == recovery.Decision(((A,),))


def test_claims_are_named_and_many_are_counted():
    few = decided(card(A, claims=frozenset({"ns/b", "ns/a"}))).waits[A]
    assert few == "it is reset once no claim has a device of it; now has: ns/a, ns/b"
    many = decided(card(A, claims=frozenset(f"ns/c{n}" for n in range(8)))).waits[A]
    assert many.endswith("ns/c0, ns/c1, ns/c2, ns/c3, ns/c4 and 3 more")


def test_instances_of_others_are_named():
    spots = [mig.Spot(19, mig.Placement(start, 1)) for start in (0, 1)]
    found = recovery.foreign([mig.Instance(n, spot) for n, spot in enumerate(spots, 7)], spots[:1])
    assert found == ("8 at 1:1",)
    assert "GPU instances 8 at 1:1. Destroy them" in decided(card(A, foreign=found)).waits[A]


def test_two_tries_an_hour_and_no_more():
    once, twice = (NOW - 10.0,), (NOW - 3599.0, NOW - 10.0)
    assert decided(card(A, tries=once)).due == ((A,),)
    assert "tried 2 times within an hour" in decided(card(A, tries=twice)).waits[A]
    assert decided(card(A, tries=(NOW - 3600.0, NOW - 10.0))).due == ((A,),)


def test_what_keeps_the_node_from_it_comes_first():
    found = decided(card(A, claims=frozenset({"ns/a"})), hindrance="an update")
    assert found == recovery.Decision(waits={A: "an update"})


def test_a_card_that_does_not_answer_is_not_reset():
    assert decided(card(B)).waits == {A: "not reset: it does not answer; reboot the node"}
    found = decided(card(A, together=frozenset({B})))
    assert found.waits[A].startswith(f"not reset: {B}, which is reset with it, does not answer")


def test_cards_that_are_reset_together_are_one_group_however_many_ask():
    pair = (card(A, together=frozenset({B})), card(B, together=frozenset({A})))
    assert decided(*pair, card(C), asking=(B, A, C)).due == ((A, B), (C,))


def test_what_holds_a_card_up_holds_up_those_that_are_reset_with_it():
    found = decided(
        card(A, together=frozenset({B})),
        card(B, together=frozenset({A, C})),
        card(C, hindrance="it is a vGPU"),
    )
    assert found == recovery.Decision(waits={A: "gpu-2 is reset with it: not reset: it is a vGPU"})


PLACES = {devices.PciAddress(f"0000:0{n}:00.0"): gpu for n, gpu in enumerate((A, B, C), 4)}
SWITCH = devices.PciAddress("ffff:ff:ff.0")


def test_links_connect_cards_directly_and_through_a_switch():
    at = {gpu: place for place, gpu in PLACES.items()}
    assert recovery.linked({A: {at[B]}, B: {at[A]}, C: set()}, PLACES) == {
        A: {B}, B: {A}, C: frozenset(),
    }  # fmt: skip
    # That only one of the two tells it is enough.
    assert recovery.linked({A: {at[B]}, B: set()}, PLACES) == {A: {B}, B: {A}}
    assert recovery.linked({A: {SWITCH}, B: {SWITCH}, C: {at[A]}}, PLACES) == {
        A: {B, C}, B: {A}, C: {A},
    }  # fmt: skip


cards = strategies.builds(
    lambda together, claims, foreign, tries, hindrance: {
        "together": frozenset(together),
        "claims": frozenset(claims),
        "foreign": tuple(foreign),
        "tries": tuple(tries),
        "hindrance": hindrance,
    },
    strategies.sets(strategies.sampled_from([A, B, C])),
    strategies.sets(strategies.sampled_from(["ns/a", "ns/b"])),
    strategies.lists(strategies.just("1 at 0:1"), max_size=1),
    strategies.lists(strategies.floats(NOW - 9000, NOW), max_size=4),
    strategies.none() | strategies.just("a vGPU"),
)


@hypothesis.given(
    strategies.dictionaries(strategies.sampled_from([A, B, C]), cards),
    strategies.sets(strategies.sampled_from([A, B, C])),
    strategies.none() | strategies.just("an update"),
)
def test_no_card_is_reset_by_which_anybody_could_lose_anything(known, asking, hindrance):
    made = [card(gpu, **facts) for gpu, facts in known.items()]
    found = recovery.decided(asking, situation(*made, hindrance=hindrance))
    there = {one.gpu: one for one in made}
    for group in found.due:
        assert hindrance is None
        for gpu in group:
            one = there[gpu]
            assert (one.claims, one.foreign, one.hindrance) == (frozenset(), (), None)
            assert one.together <= set(group)
            assert len([at for at in one.tries if NOW - at < 3600.0]) < 2
    resets = {gpu for group in found.due for gpu in group}
    assert asking <= resets | found.waits.keys()
    assert not resets & found.waits.keys()
    assert all(found.waits.values())


@hypothesis.given(
    strategies.lists(strategies.floats(0, 1800), max_size=60), strategies.integers(0, 2)
)
def test_whenever_it_is_looked_there_are_at_most_two_tries_in_any_hour(pauses, known):
    now, tries = NOW, [NOW - 1.0] * known
    for pause in pauses:
        now += pause
        one = card(A, tries=tuple(tries[-8:]))
        if recovery.decided([A], dataclasses.replace(situation(one), now=now)).due:
            tries.append(now)
    for at in tries:
        assert len([other for other in tries if at <= other < at + recovery.WINDOW]) <= 2
