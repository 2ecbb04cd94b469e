from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.controller import leases

NOW, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z"


def held(spec, identity, time=NOW):
    return leases.held(spec, identity, seconds=15, time=time)


def test_a_lease_that_nobody_had_is_free_and_begins_without_a_transition():
    assert leases.is_free(leases.seen({}, None, 0.0), "a", 0.0)
    assert held({}, "a") == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": NOW,
        "renewTime": NOW,
        "leaseTransitions": 0,
    }


def test_the_holder_renews_and_keeps_the_time_at_which_it_began():
    spec = held({}, "a")
    assert leases.is_free(leases.seen(spec, None, 0.0), "a", 0.0)
    renewed = held(spec, "a", LATER)
    assert (renewed["acquireTime"], renewed["renewTime"]) == (NOW, LATER)
    assert renewed["leaseTransitions"] == 0


def test_another_one_has_to_wait_until_the_lease_did_not_change_for_its_duration():
    spec = held({}, "a")
    first = leases.seen(spec, None, 100.0)
    assert not leases.is_free(first, "b", 114.9)
    assert leases.is_free(leases.seen(spec, first, 115.0), "b", 115.0)
    renewed = leases.seen(held(spec, "a", LATER), first, 110.0)
    assert not leases.is_free(renewed, "b", 124.9)
    taken = held(spec, "b", LATER)
    assert (taken["acquireTime"], taken["leaseTransitions"]) == (LATER, 1)


def test_a_released_lease_is_free_at_once():
    spec = leases.released(held({}, "a"), time=LATER)
    assert leases.is_free(leases.seen(spec, None, 0.0), "b", 0.0)
    assert held(spec, "b")["leaseTransitions"] == 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 5)), max_size=30))
def test_two_candidates_never_have_the_lease_at_once(tries):
    """As long as each stops when it could not renew for the lease's duration."""
    spec, now, seen, until = {}, 0.0, {"a": None, "b": None}, {"a": 0.0, "b": 0.0}
    for number, (who, pause) in enumerate(tries):
        now += pause
        seen[who] = leases.seen(spec, seen[who], now)
        if leases.is_free(seen[who], who, now):
            other = "b" if who == "a" else "a"
            assert until[other] <= now
            spec = leases.held(spec, who, seconds=4, time=str(number))
            until[who] = now + 4
