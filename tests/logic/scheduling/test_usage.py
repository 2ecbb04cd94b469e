import pytest
from dra_objects import DRIVER
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.scheduling import usage
from dra_driver.model import claims, quantities, slices

A, B = (slices.DeviceId(DRIVER, "p", name) for name in "ab")


def whole(device, **fields):
    return claims.Allocation((claims.Result("r", device, **fields),))


def share(device, amount, number=0):
    consumed = {"memory": quantities.parse(amount)} if amount else {}
    result = claims.Result("r", device, share_id=f"id-{number}", consumed_capacity=consumed)
    return claims.Allocation((result,))


def test_devices_are_held_as_a_whole_or_in_shares_that_add_up():
    in_use = usage.InUse.of([whole(A), share(B, "1Gi"), share(B, "512Mi", 1)])
    assert in_use.device(A) == usage.Held(whole=1)
    assert in_use.device(B) == usage.Held(shares=2, consumed={"memory": 1536 * 2**20})
    assert sorted(in_use.pool((DRIVER, "p"))) == ["a", "b"]


@pytest.mark.parametrize("share_id", [None, "id"])
def test_admin_access_holds_nothing(share_id):
    in_use = usage.InUse.of([whole(A, admin_access=True, share_id=share_id)])
    assert not in_use.device(A)
    assert in_use.pool((DRIVER, "p")) == {}


def test_what_is_given_back_is_free():
    given_out = [whole(A), share(B, "1Gi"), share(B, "2Gi", 1)]
    in_use = usage.InUse.of(given_out).changed(removed=[given_out[0], given_out[1]])
    assert not in_use.device(A)
    assert in_use.device(B) == usage.Held(shares=1, consumed={"memory": 2 * 2**30})
    assert in_use.changed(removed=[given_out[2]]).pool((DRIVER, "p")) == {}


def test_a_device_that_two_claims_have_is_free_when_both_gave_it_back():
    in_use = usage.InUse.of([whole(A), whole(A)]).changed(removed=[whole(A)])
    assert in_use.device(A).whole == 1


def test_a_share_of_a_device_without_capacities_is_held():
    assert usage.InUse.of([share(A, "")]).device(A) == usage.Held(shares=1)


def test_what_was_in_use_before_stays_as_it_was():
    before = usage.InUse.of([share(A, "1Gi")])
    before.changed(added=[share(A, "1Gi", 1), whole(B)])
    assert list(before.pool((DRIVER, "p"))) == ["a"]
    assert before.device(A) == usage.Held(shares=1, consumed={"memory": 2**30})


PIECES = st.lists(
    st.builds(
        lambda device, amount: whole(device) if amount is None else share(device, amount),
        st.sampled_from([A, B]),
        st.sampled_from([None, "1", "2500m"]),
    ),
    max_size=6,
)


@given(PIECES, PIECES)
def test_adding_and_giving_back_leaves_what_was_there(first, second):
    start = usage.InUse.of(first)
    after = start.changed(added=second).changed(removed=second)
    for device in (A, B):
        found, before = after.device(device), start.device(device)
        assert (found.whole, found.shares) == (before.whole, before.shares)
        assert found.consumed.get("memory", 0) == before.consumed.get("memory", 0)
