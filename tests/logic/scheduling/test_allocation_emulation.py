"""Each known defect of 1.36.2: what the allocator does without it, and with `--emulate 1.36.2`."""

import pytest
from dra_objects import (
    DRIVER,
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
from dra_objects import allocate as allocate_with

from dra_driver import errors
from dra_driver.logic.scheduling import emulation
from dra_driver.model import claims, slices

RELEASED = emulation.of_release("1.36.2")
COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}
ILL = {"taints": [{"key": "ill", "effect": "NoSchedule"}]}


def consuming(amount, counters="s"):
    return {
        "consumesCounters": [{"counterSet": counters, "counters": {"c": {"value": f"{amount}"}}}]
    }


def both(pending, *published, **options):
    """What is found without the defects, and as released; None where there is nothing."""
    outcomes = [
        allocate_with(pending, *published, behaviour=behaviour, **options)
        for behaviour in (emulation.FIXED, RELEASED)
    ]
    return tuple(
        outcome.allocations and [name for of in devices_of(outcome) for _, name in of]
        for outcome in outcomes
    )


def test_a_release_that_is_not_known_is_refused():
    with pytest.raises(errors.Rejected, match=r"--emulate 1\.2: .*known: 1\.36\.2"):
        emulation.of_release("1.2")
    assert emulation.of_release(None) == emulation.Emulation()


class TestReservationsThatLeak:
    def test_of_a_device_that_a_taint_refuses(self):
        published = slice_of(
            device("ill", extra=consuming(4) | ILL), device("well", extra=consuming(1)),
            extra=COUNTERS,
        )  # fmt: skip
        assert both([claim(exactly())], published) == (["well"], None)

    def test_of_a_device_that_a_constraint_refuses(self):
        published = slice_of(
            device("first", x=0, extra=consuming(1)),
            device("other", x=1, extra=consuming(2)),
            device("second", x=0, extra=consuming(2)),
            extra=COUNTERS,
        )
        pending = claim(exactly(count=2), constraints=[match(f"{DRIVER}/x")])
        assert both([pending], published) == (["first", "second"], None)

    def test_of_a_share_that_is_given_back(self):
        published = slice_of(
            shareable("a", extra=consuming(3), x=0), shareable("b", x=1),
            device("part", extra=consuming(2), x=1), extra=COUNTERS,
        )  # fmt: skip
        pending = claim(
            exactly("share", "device.allowMultipleAllocations"),
            exactly("part", "!device.allowMultipleAllocations"),
            constraints=[match(f"{DRIVER}/x")],
        )
        assert both([pending], published) == (["b", "part"], None)

    def test_but_not_of_a_whole_device_that_is_given_back(self):
        published = slice_of(
            device("large", extra=consuming(3)), device("small", extra=consuming(2)),
            device("other", extra=consuming(2)), extra=COUNTERS,
        )  # fmt: skip
        assert both([claim(exactly("a"), exactly("b"))], published) == (["small", "other"],) * 2

    def test_for_no_longer_than_one_search(self):
        published = slice_of(
            device("well", extra=consuming(4)), device("ill", extra=consuming(4) | ILL),
            extra=COUNTERS,
        )  # fmt: skip
        assert both([claim(exactly())], published) == (["well"], ["well"])


class TestPoolsOfOneName:
    def test_counters_of_the_first_stand_for_all(self):
        published = [
            slice_of(device("a", extra=consuming(3)), name="a", driver="a.example.com",
                     extra=COUNTERS),
            slice_of(device("b", extra=consuming(3)), name="b", driver="b.example.com",
                     extra=COUNTERS),
        ]  # fmt: skip
        pending = claim(exactly(count=2, device_class="any"))
        classes = [claims.DeviceClass("any")]
        assert both([pending], *published, classes=classes) == (["a", "b"], None)

    def test_counters_that_only_the_second_has_have_no_limit(self):
        others = {"sharedCounters": [{"name": "t", "counters": {"c": {"value": "4"}}}]}
        published = [
            slice_of(device("a", extra=consuming(1)), name="a", driver="a.example.com",
                     extra=COUNTERS),
            slice_of(device("b", extra=consuming(3, "t")), device("c", extra=consuming(3, "t")),
                     name="b", driver="b.example.com", extra=others),
        ]  # fmt: skip
        pending = claim(exactly(count=3, device_class="any"))
        classes = [claims.DeviceClass("any")]
        assert both([pending], *published, classes=classes) == (None, ["a", "b", "c"])

    def test_pools_of_different_names_do_not_mix(self):
        published = [
            slice_of(device(name, extra=consuming(3)), name=name, pool=name, extra=COUNTERS)
            for name in ("a", "b")
        ]
        assert both([claim(exactly(count=2))], *published) == (["a", "b"],) * 2


class TestDistinctAttribute:
    @staticmethod
    def published():
        numbered = [("a", 0), ("b", 1), ("c", 0), ("d", 2)]
        return slice_of(*[device(name, x=value) for name, value in numbered])

    def test_only_the_last_device_of_a_request_is_remembered(self):
        pending = claim(exactly(count=3), constraints=[distinct(f"{DRIVER}/x")])
        assert both([pending], self.published()) == (["a", "b", "d"], ["a", "b", "c"])

    def test_devices_of_several_requests_differ_all_the_same(self):
        requests = [exactly(name) for name in "rst"]
        pending = claim(*requests, constraints=[distinct(f"{DRIVER}/x")])
        assert both([pending], self.published()) == (["a", "b", "d"],) * 2

    def test_what_is_put_back_takes_what_was_remembered_with_it(self):
        # After a and b, b is put back for want of counters for a third; c equals a.
        published = slice_of(
            device("a", x=0), device("b", x=1, extra=consuming(3)),
            device("c", x=0, extra=consuming(1)), device("d", x=2, extra=consuming(3)),
            extra=COUNTERS,
        )  # fmt: skip
        pending = claim(
            exactly("gpu", count=2), exactly("last", f'device.attributes["{DRIVER}"].x == 2'),
            constraints=[distinct(f"{DRIVER}/x", "gpu")],
        )  # fmt: skip
        assert both([pending], published) == (None, ["a", "c", "d"])

    def test_alternatives_are_remembered_by_their_list(self):
        wanted = first_available("gpu", alternative("two", count=2))
        pending = claim(wanted, exactly("other"), constraints=[distinct(f"{DRIVER}/x")])
        published = slice_of(*[device(n, x=v) for n, v in [("a", 0), ("b", 1), ("c", 0)]])
        assert both([pending], published) == (None, ["a", "b", "c"])


class TestAdminAccess:
    def test_it_needs_free_counters(self):
        published = slice_of(device("a", extra=consuming(2)), device("b", extra=consuming(3)),
                             extra=COUNTERS)  # fmt: skip
        pending = claim(exactly(admin_access=True))
        assert both([pending], published, in_use={"b"}) == (["a"], None)

    def test_it_needs_free_capacity(self):
        published = slice_of(shareable("a", capacity={"memory": "8Gi"}))
        result = claims.Result(
            "r", slices.DeviceId(DRIVER, "node-a", "a"), share_id="x",
            consumed_capacity=published.devices[0].capacity,
        )  # fmt: skip
        held = [claims.Allocation((result,))]
        assert both([claim(exactly(admin_access=True))], published, held=held) == (["a"], None)

    def test_it_keeps_the_device_from_later_requests_of_the_pod(self):
        pending = [claim(exactly(admin_access=True), name="a"), claim(exactly(), name="b")]
        published = slice_of(device("x"), device("y"))
        assert both(pending, published) == (["x", "x"], ["x", "y"])

    def test_a_device_in_use_can_be_had_all_the_same(self):
        pending = claim(exactly(admin_access=True))
        assert both([pending], slice_of(device("x")), in_use={"x"}) == (["x"], ["x"])
