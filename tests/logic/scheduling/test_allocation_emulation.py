"""Each known defect of a release: what the allocator does without it, and as released."""

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
from dra_driver.logic.scheduling import demand, emulation
from dra_driver.model import claims, quantities, slices

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


def released(pending, *published, release, **options):
    """What is found as released; None where there is nothing."""
    behaviour = emulation.of_release(release)
    outcome = allocate_with(pending, *published, behaviour=behaviour, **options)
    return outcome.allocations and [name for of in devices_of(outcome) for _, name in of]


def share(name, pool="node-a", **consumed):
    """A share of a device that another claim has."""
    amounts = {key: quantities.parse(value) for key, value in consumed.items()}
    device_id = slices.DeviceId(DRIVER, pool, name)
    return claims.Allocation(
        (claims.Result("r", device_id, share_id="x", consumed_capacity=amounts),)
    )


def test_a_release_that_is_not_known_is_refused():
    with pytest.raises(errors.Rejected, match=r"--emulate 1\.2: .*known: 1\.34, 1\.35, 1\.36\.2, "):
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


class TestMatchAttributeOverLists:
    """What the devices of a claim have in common, after a choice is given up."""

    @staticmethod
    def published():
        return slice_of(
            device("a", x=(1, 2)), device("b", x=(2, 3), extra=consuming(3)), device("c", x=(1,)),
            device("last", y=1, extra=consuming(3)), extra=COUNTERS,
        )  # fmt: skip

    def test_it_is_wide_again_or_stays_narrow_as_released(self):
        pending = claim(
            exactly("two", "!has(device.attributes['gpu.example.com'].y)", count=2),
            exactly("last", "has(device.attributes['gpu.example.com'].y)"),
            constraints=[match(f"{DRIVER}/x", "two")],
        )
        assert both([pending], self.published()) == (["a", "c", "last"], None)

    def test_lists_that_share_no_value_do_not_agree(self):
        pending = claim(exactly(count=2), constraints=[match(f"{DRIVER}/x")])
        published = slice_of(device("a", x=(1, 2)), device("b", x=(3,)), device("c", x=2))
        assert both([pending], published) == (["a", "c"],) * 2

    def test_lists_that_share_a_value_are_not_distinct(self):
        pending = claim(exactly(count=2), constraints=[distinct(f"{DRIVER}/x")])
        published = slice_of(device("a", x=(1, 2)), device("b", x=(2, 3)), device("c", x=(3, 4)))
        assert both([pending], published) == (["a", "c"],) * 2


@pytest.mark.parametrize(
    ("server", "release"),
    [
        ("v1.36.2", "1.36.2"),
        ("v1.36.9+k3s1", "1.36.2"),
        ("v1.34.1-gke.100", "1.34"),
        ("v1.33.0", "1.34"),
        ("v1.35.4", "1.35"),
        ("v1.37.0", "1.37"),
        ("v1.37.0-emulated", "1.37"),
        ("v1.38.0-alpha.2", "1.38"),
        ("v1.45.1", "1.38"),
        ("v1.36.2-sim", None),
        ("", None),
        ("latest", None),
    ],
)
def test_the_release_of_a_server_is_the_closest_that_is_known(server, release):
    assert emulation.release_of(server) == release


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


class TestReservationsThatLeakWhereverTheSearchGoes:
    def test_of_devices_that_could_not_be_enough(self):
        # "ill" alone is not two; it is tried all the same, and leaves its counters taken.
        published = slice_of(
            device("well", extra=consuming(3)), device("ill", extra=consuming(2) | ILL),
            extra=COUNTERS,
        )  # fmt: skip
        wanted = first_available("r", alternative("two", count=2), alternative("one"))
        assert both([claim(wanted)], published) == (["well"], None)

    def test_not_of_requests_that_the_limit_of_a_claim_leaves_no_room_for(self):
        many = [device(f"d{n}") for n in range(33)]
        published = slice_of(*many, device("ill", extra=consuming(4) | ILL),
                             device("well", extra=consuming(4)), extra=COUNTERS)  # fmt: skip
        wanted = [
            first_available("r", alternative("all", count=32), alternative("few", count=1)),
            exactly("s", f'device.attributes["{DRIVER}"].?x.orValue(0) == 0'),
        ]
        fixed, leaky = both([claim(*wanted)], published)
        assert fixed == leaky == ["d0", "d1"]


class TestSharesOfADeviceWithoutCapacity:
    def test_each_share_of_another_pod_counts_its_counters_again(self):
        published = slice_of(shareable("a", extra=consuming(3)), extra=COUNTERS)
        held = [share("a")]
        assert both([claim(exactly())], published, held=held) == (["a"], None)

    def test_two_of_one_pod_count_them_once(self):
        published = slice_of(shareable("a", extra=consuming(3)), extra=COUNTERS)
        assert both([claim(exactly(), exactly("s"))], published) == (["a", "a"],) * 2

    def test_shares_that_take_some_capacity_count_them_once(self):
        published = slice_of(
            shareable("a", capacity={"memory": "8Gi"}, extra=consuming(3)), extra=COUNTERS
        )
        wanted = exactly(extra={"capacity": {"requests": {"memory": "1Gi"}}})
        held = [share("a", memory="1Gi")]
        assert both([claim(wanted)], published, held=held) == (["a"],) * 2


class TestAllOfDevicesThatAreShared:
    """Room is looked at once when the devices are listed, and then last."""

    @staticmethod
    def published():
        half = {"memory": "8Gi"}
        return slice_of(
            shareable("a", capacity=half, x=0), shareable("b", capacity=half, x=1),
        )  # fmt: skip

    @staticmethod
    def wanted(*more):
        """First what fills one device, then all."""
        full = {"capacity": {"requests": {"memory": "8Gi"}}}
        return [
            exactly("one", f'device.attributes["{DRIVER}"].x == 0', extra=full),
            exactly("every", all_devices=True, extra=full),
            *more,
        ]

    def test_a_full_one_is_no_error_without_a_constraint(self):
        assert both([claim(*self.wanted())], self.published()) == (None, None)

    def test_a_constraint_that_a_full_one_breaks_is_an_error_as_released(self):
        pending = claim(*self.wanted(), constraints=[distinct(f"{DRIVER}/x")])
        assert allocate_with([pending], self.published()).allocations is None
        with pytest.raises(demand.Aborted, match="which breaks distinctAttribute"):
            allocate_with([pending], self.published(), behaviour=RELEASED)

    def test_what_is_refused_for_want_of_room_stays_with_the_constraint(self):
        # "every" fails on a, which stays behind; the alternative may then not have b.
        full = {"capacity": {"requests": {"memory": "8Gi"}}}
        choice = first_available(
            "r",
            alternative("every", f'device.attributes["{DRIVER}"].x == 0', all_devices=True,
                        extra=full),
            alternative("other", f'device.attributes["{DRIVER}"].x == 1'),
        )  # fmt: skip
        one = exactly("one", f'device.attributes["{DRIVER}"].x == 0', extra=full)
        pending = claim(one, choice, constraints=[match(f"{DRIVER}/x", "r")])
        assert both([pending], self.published()) == (["a", "b"], None)


class TestADeviceThatIsPublishedAsOneForASingleClaimWhileItIsShared:
    @pytest.mark.parametrize(
        ("release", "capacity", "found"),
        [
            ("1.36.2", {}, ["a"]),
            ("1.37", {}, ["a"]),
            ("1.38", {}, None),
            ("1.37", {"memory": "8Gi"}, None),
        ],
    )
    def test_it_is_free_up_to_1_37_unless_its_capacity_is_drawn(self, release, capacity, found):
        published = slice_of(device("a", capacity=capacity))
        held = [share("a", memory="1Gi")]
        assert released([claim(exactly())], published, release=release, held=held) == found

    def test_it_is_not_without_a_release(self):
        published = slice_of(device("a"))
        assert both([claim(exactly())], published, held=[share("a")]) == (None, ["a"])


class TestAllAndAPoolOfWhichSlicesAreMissing:
    @pytest.mark.parametrize("release", [None, "1.36.2", "1.37"])
    def test_it_stops_the_pod_up_to_1_37(self, release):
        with pytest.raises(demand.Aborted, match="is incomplete: 1 of 2 slices"):
            released([self.pending()], *self.published(), release=release)

    def test_it_only_keeps_the_node_out_from_1_38_on(self):
        assert released([self.pending()], *self.published(), release="1.38") is None

    def test_an_invalid_pool_stops_it_in_1_38_too(self):
        invalid = slice_of(device("x", extra=consuming(1, "none")), name="x", pool="bad")
        with pytest.raises(demand.Aborted, match="is invalid: "):
            released([self.pending()], invalid, release="1.38")

    @staticmethod
    def pending():
        return claim(exactly(all_devices=True))

    @staticmethod
    def published():
        return slice_of(device("a")), slice_of(device("b"), name="b", pool="other", count=2)


@pytest.mark.parametrize("release", ["1.37", "1.38"])
def test_what_1_37_mended_is_as_without_a_release(release):
    behaviour = emulation.of_release(release)
    mended = ("counters_by_pool_name", "reservations_leak", "shares_count_again",
              "all_forgets_room", "distinct_forgets", "admin_access_takes")  # fmt: skip
    assert not any(getattr(behaviour, name) for name in mended)
