"""Shares of a device: consumable capacity, as in 4.6; every amount is worked out by hand."""

import uuid

import pytest
from dra_objects import (
    DRIVER,
    allocate,
    alternative,
    claim,
    device,
    devices_of,
    distinct,
    exactly,
    first_available,
    match,
    shareable,
    slice_of,
)

from dra_driver.model import claims, quantities, slices

STEPS = {"default": "8Gi", "validRange": {"min": "8Gi", "max": "80Gi", "step": "8Gi"}}
COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}


def card(name="gpu-0", **fields):
    """80Gi of memory, in steps of 8Gi."""
    return shareable(name, capacity={"memory": "80Gi"}, policy={"memory": STEPS}, **fields)


def consuming(amount):
    return {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": str(amount)}}}]}


def asks(memory, name="gpu", **fields):
    return exactly(name, extra={"capacity": {"requests": {"memory": memory}}}, **fields)


def has(name, memory=None, *, share=True, admin=False):
    """What another claim has."""
    consumed = {"memory": quantities.parse(memory)} if memory else {}
    result = claims.Result(
        "r",
        slices.DeviceId(DRIVER, "node-a", name),
        admin,
        "other" if share else None,
        {},
        consumed,
    )
    return claims.Allocation((result,))


def results_of(outcome):
    return [result for item in outcome.allocations for result in item.results]


def test_a_share_has_an_id_and_tells_all_that_it_takes():
    offered = shareable("gpu-0", capacity={"memory": "80Gi", "cores": "100"},
                        policy={"memory": STEPS, "cores": {"default": "10"}})  # fmt: skip
    (result,) = results_of(allocate([claim(asks("9Gi"))], slice_of(offered)))
    assert uuid.UUID(result.share_id)
    assert result.consumed_capacity == {
        "memory": quantities.parse("16Gi"),
        "cores": quantities.parse("10"),
    }
    given = claims.Allocation((result,))
    assert claims.parse_allocation(claims.format_allocation(given)) == given
    assert claims.format_allocation(given)["devices"]["results"][0]["consumedCapacity"] == {
        "cores": "10", "memory": "16Gi",
    }  # fmt: skip


def test_each_share_has_an_id_of_its_own():
    pending = [claim(exactly("a"), exactly("b"), name="x"), claim(exactly(), name="y")]
    results = results_of(allocate(pending, slice_of(card())))
    assert [result.device.device for result in results] == ["gpu-0"] * 3
    assert len({result.share_id for result in results}) == 3


def test_a_dedicated_device_has_neither_id_nor_consumption():
    published = slice_of(device("gpu-0", capacity={"memory": "80Gi"}))
    (result,) = results_of(allocate([claim(asks("8Gi"))], published))
    assert (result.share_id, result.consumed_capacity) == (None, {})


@pytest.mark.parametrize(
    ("others", "wanted", "expected"),
    [
        ([], "80Gi", "gpu-0"),
        (["40Gi", "32Gi"], "8Gi", "gpu-0"),
        (["40Gi", "32Gi"], "9Gi", "gpu-1"),
        (["40Gi", "40Gi"], "1Gi", "gpu-1"),
        (["8Gi"], "81Gi", None),
    ],
)
def test_what_others_took_is_not_there(others, wanted, expected):
    held = [has("gpu-0", amount) for amount in others]
    outcome = allocate([claim(asks(wanted))], slice_of(card(), card("gpu-1")), held=held)
    found = outcome.allocations and results_of(outcome)[0].device.device
    assert found == expected


def test_shares_of_one_pod_add_up():
    published = slice_of(card(), card("gpu-1"))
    pending = [claim(asks("48Gi", f"r{n}"), name=f"c{n}") for n in range(3)]
    outcome = allocate(pending, published)
    assert outcome.allocations is None  # 48 + 48 > 80: each needs a device of its own.
    outcome = allocate(pending[:2], published)
    assert [r.device.device for r in results_of(outcome)] == ["gpu-0", "gpu-1"]


def test_one_device_serves_several_requests_but_not_one_request_twice():
    published = slice_of(card(), card("gpu-1"))
    outcome = allocate([claim(exactly("a"), exactly("b"))], published)
    assert devices_of(outcome) == [[("a", "gpu-0"), ("b", "gpu-0")]]
    outcome = allocate([claim(exactly(count=2))], published)
    assert devices_of(outcome) == [[("gpu", "gpu-0"), ("gpu", "gpu-1")]]
    assert allocate([claim(exactly(count=3))], published).allocations is None


def test_without_request_and_policy_a_share_takes_everything():
    published = slice_of(shareable("gpu-0", capacity={"memory": "80Gi"}))
    assert allocate([claim(exactly("a"), exactly("b"))], published).allocations is None
    (result,) = results_of(allocate([claim(exactly())], published))
    assert result.consumed_capacity == {"memory": quantities.parse("80Gi")}


def test_without_capacities_sharing_has_no_limit():
    pending = [claim(exactly(), name=f"c{n}") for n in range(40)]
    held = [has("gpu-0")] * 100
    results = results_of(allocate(pending, slice_of(shareable("gpu-0")), held=held))
    assert len(results) == 40
    assert all(result.share_id and not result.consumed_capacity for result in results)


def test_a_capacity_that_a_device_lacks_passes_to_the_next():
    published = slice_of(shareable("bare"), card())
    assert devices_of(allocate([claim(asks("8Gi"))], published)) == [[("gpu", "gpu-0")]]


def test_a_choice_gives_way_when_a_later_request_needs_the_room():
    large = shareable("large", capacity={"memory": "80Gi"})
    small = shareable("small", capacity={"memory": "40Gi"})
    pending = claim(asks("40Gi", "any"), asks("80Gi", "big"))
    assert devices_of(allocate([pending], slice_of(large, small))) == [
        [("any", "small"), ("big", "large")]
    ]


def test_a_list_falls_back_to_a_smaller_share():
    def of(memory):
        return {"capacity": {"requests": {"memory": memory}}}

    wanted = first_available(
        "gpu", alternative("large", extra=of("80Gi")), alternative("small", extra=of("16Gi"))
    )
    outcome = allocate([claim(wanted)], slice_of(card()), held=[has("gpu-0", "8Gi")])
    assert devices_of(outcome) == [[("gpu/small", "gpu-0")]]


class TestWholeAndShared:
    def test_a_device_that_a_claim_has_whole_is_not_shared_once_it_may_be(self):
        held = [has("gpu-0", share=False)]
        assert allocate([claim(asks("8Gi"))], slice_of(card()), held=held).allocations is None

    def test_a_device_with_shares_is_not_given_whole_once_it_may_not_be_shared(self):
        published = slice_of(device("gpu-0", capacity={"memory": "80Gi"}))
        held = [has("gpu-0", "8Gi")]
        assert allocate([claim(asks("8Gi"))], published, held=held).allocations is None

    def test_shares_with_admin_access_take_nothing(self):
        held = [has("gpu-0", "80Gi", admin=True)]
        assert allocate([claim(asks("80Gi"))], slice_of(card()), held=held).allocations is not None


class TestAdminAccess:
    def test_a_full_device_can_be_had_and_stays_as_it_is_for_others(self):
        pending = [claim(asks("8Gi", "a", admin_access=True), name="x"),
                   claim(asks("40Gi"), name="y")]  # fmt: skip
        outcome = allocate(pending, slice_of(card()), held=[has("gpu-0", "40Gi")])
        assert [r.admin_access for r in results_of(outcome)] == [True, False]

    def test_the_device_must_be_of_that_size_all_the_same(self):
        pending = claim(asks("81Gi", admin_access=True))
        assert allocate([pending], slice_of(card())).allocations is None


class TestAll:
    def test_devices_without_room_are_not_among_all(self):
        published = slice_of(card(), card("gpu-1"))
        pending = claim(asks("48Gi", all_devices=True))
        outcome = allocate([pending], published, held=[has("gpu-0", "40Gi")])
        assert devices_of(outcome) == [[("gpu", "gpu-1")]]

    def test_all_fails_where_the_pod_itself_took_the_room(self):
        pending = claim(asks("48Gi", "one"), asks("48Gi", "rest", all_devices=True))
        assert allocate([pending], slice_of(card(), card("gpu-1"))).allocations is None


class TestConstraints:
    def test_shares_of_one_device_agree(self):
        pending = claim(exactly("a"), exactly("b"), constraints=[match(f"{DRIVER}/numa")])
        assert devices_of(allocate([pending], slice_of(card(numa=0)))) == [
            [("a", "gpu-0"), ("b", "gpu-0")]
        ]

    def test_shares_of_different_devices_are_had_by_distinct_attribute(self):
        pending = claim(exactly("a"), exactly("b"), constraints=[distinct(f"{DRIVER}/index")])
        published = slice_of(card(index=0), card("gpu-1", index=1))
        assert devices_of(allocate([pending], published)) == [[("a", "gpu-0"), ("b", "gpu-1")]]
        assert allocate([pending], slice_of(card(index=0))).allocations is None


class TestCounters:
    def test_a_device_is_counted_once_for_all_its_shares(self):
        published = slice_of(card(extra=consuming(3)), extra=COUNTERS)
        pending = [claim(asks("8Gi"), name=f"c{n}") for n in range(3)]
        assert len(results_of(allocate(pending, published))) == 3
        held = [has("gpu-0", "8Gi"), has("gpu-0", "8Gi")]
        assert len(results_of(allocate(pending, published, held=held))) == 3

    def test_it_is_counted_for_others(self):
        published = slice_of(card(extra=consuming(3)), device("part", extra=consuming(2)),
                             extra=COUNTERS)  # fmt: skip
        wanted = exactly("gpu", "!device.allowMultipleAllocations")
        assert allocate([claim(wanted)], published).allocations is not None
        assert allocate([claim(wanted)], published, held=[has("gpu-0", "8Gi")]).allocations is None
        together = claim(asks("8Gi", "share"), wanted)
        assert allocate([together], published).allocations is None

    def test_what_a_share_counted_is_given_back_with_it(self):
        published = slice_of(
            card("a", extra=consuming(3)), device("part", extra=consuming(2)),
            shareable("b", capacity={"memory": "80Gi"}), extra=COUNTERS,
        )  # fmt: skip
        pending = claim(asks("8Gi", "share"), exactly("part", "!device.allowMultipleAllocations"))
        assert devices_of(allocate([pending], published)) == [[("share", "b"), ("part", "part")]]


def test_a_full_device_is_told_with_what_is_left():
    outcome = allocate([claim(asks("16Gi"))], slice_of(card()), held=[has("gpu-0", "72Gi")])
    ((hurdle, count),) = outcome.shortfalls[0].fallen
    assert (str(hurdle), count) == ("too full (memory 8Gi left < 16Gi)", 1)


def test_an_amount_that_the_policy_does_not_allow_is_told():
    published = slice_of(shareable("a", capacity={"memory": "80Gi"},
                                   policy={"memory": {**STEPS, "validRange":
                                           {"min": "8Gi", "max": "16Gi"}}}))  # fmt: skip
    ((hurdle, _),) = allocate([claim(asks("17Gi"))], published).shortfalls[0].fallen
    assert str(hurdle) == "too small (memory 17Gi is not an amount that can be had)"
