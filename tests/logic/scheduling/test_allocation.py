"""The allocator, group by group of the upstream cases; expected devices are worked out by hand."""

import pytest
from dra_objects import (
    GPU_CLASS,
    allocate,
    alternative,
    claim,
    device,
    devices_of,
    distinct,
    exactly,
    first_available,
    gpus,
    match,
    slice_of,
)

from dra_driver.logic.scheduling import demand
from dra_driver.model import claims, slices

A = 'device.attributes["gpu.example.com"]'
H100, T4 = f'{A}.model == "h100"', f'{A}.model == "t4"'


def test_the_first_free_device_in_publishing_order_is_taken():
    outcome = allocate([claim(exactly())], slice_of(*gpus(3)), in_use={"gpu-0"})
    assert devices_of(outcome) == [[("gpu", "gpu-1")]]


def test_an_allocation_names_driver_pool_and_node():
    (given,) = allocate([claim(exactly())], slice_of(*gpus(1))).allocations
    assert given.results[0].device == slices.DeviceId("gpu.example.com", "node-a", "gpu-0")
    assert given.node_selector == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
        ]
    }


def test_pools_go_by_driver_and_name_and_slices_by_name():
    published = [
        slice_of(device("d"), name="00", pool="b"),
        slice_of(device("c"), name="10", pool="a", count=2),
        slice_of(device("b"), name="02", pool="a", count=2),
        slice_of(device("a"), name="99", pool="z", driver="aaa.example.com"),
    ]
    request = exactly("gpu", count=4, device_class="any")
    outcome = allocate([claim(request)], *published, classes=[claims.DeviceClass("any")])
    assert [name for _, name in devices_of(outcome)[0]] == ["a", "b", "c", "d"]


def test_several_claims_of_a_pod_never_share_a_device():
    pending = [claim(exactly(), name="a"), claim(exactly("x"), exactly("y"), name="b")]
    assert devices_of(allocate(pending, slice_of(*gpus(3)))) == [
        [("gpu", "gpu-0")],
        [("x", "gpu-1"), ("y", "gpu-2")],
    ]


def test_an_earlier_request_gives_way_when_a_later_one_needs_its_device():
    small, large = device("large", memory=80), device("small", memory=40)
    pending = claim(exactly("any"), exactly("big", f"{A}.memory >= 80"))
    assert devices_of(allocate([pending], slice_of(small, large))) == [
        [("any", "small"), ("big", "large")]
    ]


def test_backtracking_crosses_claims():
    published = slice_of(device("large", memory=80), device("small", memory=40))
    pending = [
        claim(exactly("any"), name="a"),
        claim(exactly("big", f"{A}.memory >= 80"), name="b"),
    ]
    assert devices_of(allocate(pending, published)) == [[("any", "small")], [("big", "large")]]


def test_count_devices_come_in_ascending_order():
    outcome = allocate([claim(exactly(count=2))], slice_of(*gpus(4)), in_use={"gpu-1"})
    assert devices_of(outcome) == [[("gpu", "gpu-0"), ("gpu", "gpu-2")]]


def test_a_claim_without_requests_is_allocated_without_devices():
    outcome = allocate([claim()], slice_of(*gpus(1)))
    assert devices_of(outcome) == [[]]
    assert outcome.allocations[0].node_selector is None


def test_class_and_request_selectors_must_all_hold():
    published = slice_of(*gpus(2, model="t4"), device("x", model="h100"))
    pending = claim(exactly("gpu", H100, f'{A}.model.startsWith("h")'))
    assert devices_of(allocate([pending], published)) == [[("gpu", "x")]]
    other = slice_of(*gpus(2, model="h100"), driver="other.example.com")
    assert allocate([pending], other).allocations is None


def test_each_request_goes_by_its_own_class():
    published = slice_of(device("x", model="t4"), device("y", model="h100"))
    classes = [GPU_CLASS, claims.DeviceClass("h100", (H100,))]
    pending = claim(exactly("a"), exactly("b"), exactly("c", device_class="h100"))
    assert allocate([pending], published, classes=classes).allocations is None
    pending = claim(exactly("a", device_class="h100"), exactly("b"))
    assert devices_of(allocate([pending], published, classes=classes)) == [[("a", "y"), ("b", "x")]]


def test_devices_of_another_node_are_not_seen():
    published = slice_of(*gpus(1), node="node-b", pool="node-b")
    outcome = allocate([claim(exactly())], published)
    assert outcome.allocations is None
    assert outcome.shortfalls[0].seen == 0


class TestAllDevices:
    def test_all_takes_every_selected_device(self):
        published = slice_of(*gpus(2, model="h100"), device("x", model="t4"))
        outcome = allocate([claim(exactly("gpu", H100, all_devices=True))], published)
        assert devices_of(outcome) == [[("gpu", "gpu-0"), ("gpu", "gpu-1")]]

    def test_all_takes_them_wherever_they_are_published(self):
        published = slice_of(
            device("x", model="t4"), device("a", model="h100"), device("y", model="t4"),
            device("b", model="h100"),
        )  # fmt: skip
        outcome = allocate([claim(exactly("gpu", H100, all_devices=True))], published)
        assert devices_of(outcome) == [[("gpu", "a"), ("gpu", "b")]]

    def test_all_of_nothing_does_not_fit(self):
        published = slice_of(*gpus(2, model="t4"))
        outcome = allocate([claim(exactly("gpu", H100, all_devices=True))], published)
        assert outcome.allocations is None

    def test_all_does_not_fit_while_one_of_them_is_in_use(self):
        pending = claim(exactly(all_devices=True))
        assert allocate([pending], slice_of(*gpus(2)), in_use={"gpu-1"}).allocations is None

    def test_all_after_another_request_of_the_claim_took_one_does_not_fit(self):
        pending = claim(exactly("one"), exactly("rest", all_devices=True))
        assert allocate([pending], slice_of(*gpus(2))).allocations is None

    def test_all_with_an_incomplete_pool_stops_the_pod(self):
        published = [slice_of(*gpus(1)), slice_of(name="other", pool="other", count=2)]
        with pytest.raises(demand.Aborted, match=r"pool gpu\.example\.com/other is incomplete"):
            allocate([claim(exactly(all_devices=True))], *published)

    def test_all_that_breaks_a_constraint_stops_the_pod(self):
        published = slice_of(device("a", numa=0), device("b", numa=1))
        pending = claim(exactly(all_devices=True), constraints=[match("gpu.example.com/numa")])
        with pytest.raises(demand.Aborted, match="breaks matchAttribute"):
            allocate([pending], published)

    def test_all_can_be_had_with_admin_access_beside_others(self):
        pending = claim(exactly(all_devices=True, admin_access=True))
        outcome = allocate([pending], slice_of(*gpus(2)), in_use={"gpu-0", "gpu-1"})
        assert devices_of(outcome) == [[("gpu", "gpu-0"), ("gpu", "gpu-1")]]


class TestAdminAccess:
    def test_a_device_in_use_can_be_had(self):
        pending = claim(exactly(admin_access=True))
        outcome = allocate([pending], slice_of(*gpus(1)), in_use={"gpu-0"})
        assert outcome.allocations[0].results[0].admin_access is True

    def test_a_device_is_not_given_twice_within_a_claim(self):
        pending = claim(exactly("a", admin_access=True), exactly("b", admin_access=True))
        assert allocate([pending], slice_of(*gpus(1))).allocations is None
        assert devices_of(allocate([pending], slice_of(*gpus(2)))) == [
            [("a", "gpu-0"), ("b", "gpu-1")]
        ]

    def test_it_keeps_nothing_from_other_claims_of_the_pod(self):
        pending = [claim(exactly(admin_access=True), name="a"), claim(exactly(), name="b")]
        assert devices_of(allocate(pending, slice_of(*gpus(1)))) == [
            [("gpu", "gpu-0")],
            [("gpu", "gpu-0")],
        ]


class TestConstraints:
    PUBLISHED = slice_of(
        device("a", numa=0, version=slices.Version("1.0.0"), text="1.0.0"),
        device("b", numa=1, version=slices.Version("1.0.0"), text="1.0.0"),
        device("c", numa=1, text="x"),
    )

    @pytest.mark.parametrize(
        ("constraint", "expected"),
        [
            (match("gpu.example.com/numa"), ["b", "c"]),
            (match("gpu.example.com/version"), ["a", "b"]),
            (match("gpu.example.com/text"), ["a", "b"]),
            (distinct("gpu.example.com/numa"), ["a", "b"]),
            (distinct("gpu.example.com/text"), ["a", "c"]),
            (match("gpu.example.com/numa", "other"), ["a", "b"]),
            (match("gpu.example.com/numa", "gpu"), ["b", "c"]),
        ],
    )
    def test_two_devices_agree_or_differ(self, constraint, expected):
        pending = claim(exactly(count=2), constraints=[constraint])
        outcome = allocate([pending], self.PUBLISHED)
        assert [name for _, name in devices_of(outcome)[0]] == expected

    @pytest.mark.parametrize("kind", [match, distinct])
    def test_a_device_without_the_attribute_is_passed_over(self, kind):
        pending = claim(exactly(count=1), constraints=[kind("gpu.example.com/nope")])
        assert allocate([pending], self.PUBLISHED).allocations is None

    def test_a_bare_attribute_stands_in_the_domain_of_its_driver_only(self):
        pending = claim(exactly(), constraints=[match("other.example.com/numa")])
        assert allocate([pending], self.PUBLISHED).allocations is None

    def test_a_version_and_a_text_of_the_same_letters_differ(self):
        published = slice_of(device("a", x=slices.Version("1.0.0")), device("b", x="1.0.0"))
        pending = claim(exactly(count=2), constraints=[match("gpu.example.com/x")])
        assert allocate([pending], published).allocations is None

    def test_true_and_one_differ(self):
        published = slice_of(device("a", x=True), device("b", x=1))
        pending = claim(exactly(count=2), constraints=[match("gpu.example.com/x")])
        assert allocate([pending], published).allocations is None

    def test_requests_of_a_claim_are_matched_with_each_other(self):
        pending = claim(exactly("x"), exactly("y"), constraints=[match("gpu.example.com/numa")])
        assert devices_of(allocate([pending], self.PUBLISHED)) == [[("x", "b"), ("y", "c")]]

    def test_distinct_holds_for_more_than_the_last_two_devices(self):
        published = slice_of(*[device(n, x=v) for n, v in [("a", 0), ("b", 1), ("c", 0)]])
        pending = claim(exactly(count=3), constraints=[distinct("gpu.example.com/x")])
        assert allocate([pending], published).allocations is None

    def test_a_device_that_one_constraint_refuses_leaves_no_trace_in_the_others(self):
        published = slice_of(device("a", x=0), device("b", x=1, y=0), device("c", x=1, y=0))
        bound = [match("gpu.example.com/x"), match("gpu.example.com/y")]
        outcome = allocate([claim(exactly(count=2), constraints=bound)], published)
        assert devices_of(outcome) == [[("gpu", "b"), ("gpu", "c")]]

    def test_constraints_of_one_claim_do_not_bind_another(self):
        bound = [match("gpu.example.com/numa")]
        pending = [
            claim(exactly(), name="a", constraints=bound),
            claim(exactly(), name="b", constraints=bound),
        ]
        assert devices_of(allocate(pending, self.PUBLISHED)) == [[("gpu", "a")], [("gpu", "b")]]


class TestFirstAvailable:
    LIST = first_available("gpu", alternative("large", H100), alternative("small", T4, count=2))

    def test_the_first_alternative_that_fits_is_taken_and_named(self):
        published = slice_of(*gpus(2, model="t4"), device("x", model="h100"))
        outcome = allocate([claim(self.LIST)], published)
        assert devices_of(outcome) == [[("gpu/large", "x")]]
        assert outcome.score == 8

    def test_the_next_one_is_taken_when_the_first_is_in_use(self):
        published = slice_of(*gpus(2, model="t4"), device("x", model="h100"))
        outcome = allocate([claim(self.LIST)], published, in_use={"x"})
        assert devices_of(outcome) == [[("gpu/small", "gpu-0"), ("gpu/small", "gpu-1")]]
        assert outcome.score == 7

    def test_a_later_request_can_make_the_first_alternative_impossible(self):
        published = slice_of(device("x", model="h100"), *gpus(2, model="t4"))
        pending = claim(self.LIST, exactly("big", H100))
        assert devices_of(allocate([pending], published)) == [
            [("gpu/small", "gpu-0"), ("gpu/small", "gpu-1"), ("big", "x")]
        ]

    @pytest.mark.parametrize(
        ("requests", "expected"),
        [(["gpu"], "small"), (["gpu/large"], "small"), (["gpu/small"], "large")],
    )
    def test_a_constraint_names_the_list_or_one_alternative(self, requests, expected):
        published = slice_of(device("x", model="h100"), *gpus(2, model="t4", numa=0))
        pending = claim(self.LIST, constraints=[match("gpu.example.com/numa", *requests)])
        request, _ = devices_of(allocate([pending], published))[0][0]
        assert request == f"gpu/{expected}"

    def test_an_alternative_with_too_many_devices_is_passed_over(self):
        request = first_available("gpu", alternative("many", count=33), alternative("one"))
        outcome = allocate([claim(request)], slice_of(*gpus(40)))
        assert devices_of(outcome) == [[("gpu/one", "gpu-0")]]


class TestLimitOf32:
    def test_32_devices_are_allocated(self):
        outcome = allocate([claim(exactly(count=32))], slice_of(*gpus(40)))
        assert len(outcome.allocations[0].results) == 32

    @pytest.mark.parametrize(
        "requests",
        [[exactly(count=33)], [exactly("a", count=30), exactly("b", count=3)],
         [exactly(all_devices=True)],
         [first_available("g", alternative("a", count=40), alternative("b", count=33))]],
    )  # fmt: skip
    def test_more_in_one_claim_stops_the_pod(self, requests):
        with pytest.raises(demand.Aborted, match="allowed are 32"):
            allocate([claim(*requests)], slice_of(*gpus(40)))

    def test_several_claims_may_have_32_each(self):
        pending = [claim(exactly(count=32), name=f"c{n}") for n in range(8)]
        outcome = allocate(pending, slice_of(*gpus(256)))
        assert [len(item.results) for item in outcome.allocations] == [32] * 8


def test_the_same_input_gives_the_same_outcome():
    published = [slice_of(*gpus(4, model="h100"))]
    pending = [claim(exactly(count=2), constraints=[match("gpu.example.com/model")])]
    assert allocate(pending, *published) == allocate(pending, *published)
