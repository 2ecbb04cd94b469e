"""Errors, taints, counters, capacities, nodes and configs in the allocation of devices."""

import pytest
from dra_objects import (
    GPU_CLASS,
    allocate,
    alternative,
    claim,
    device,
    devices_of,
    exactly,
    first_available,
    gpus,
    match,
    slice_of,
)

from dra_driver.logic.scheduling import demand
from dra_driver.model import claims, nodes

A = 'device.attributes["gpu.example.com"]'
H100, T4 = f'{A}.model == "h100"', f'{A}.model == "t4"'


class TestErrorsStopThePod:
    def test_a_class_that_does_not_exist(self):
        with pytest.raises(demand.Aborted, match="device class nope does not exist"):
            allocate([claim(exactly(device_class="nope"))], slice_of(*gpus(1)))

    def test_an_unknown_allocation_mode(self):
        request = claims.Request("gpu", (claims.DeviceRequest("gpu", "gpu", mode="Some"),))
        with pytest.raises(demand.Aborted, match="'Some' is not known"):
            allocate([claim(request)], slice_of(*gpus(1)))

    def test_an_expression_that_does_not_compile(self):
        with pytest.raises(demand.Aborted, match="column 1: syntax error"):
            allocate([claim(exactly("gpu", "?!"))], slice_of(*gpus(1)))

    def test_a_class_expression_that_does_not_compile(self):
        broken = claims.DeviceClass("gpu", ("nope",))
        with pytest.raises(demand.Aborted, match=r"device class gpu.*undeclared"):
            allocate([claim(exactly())], slice_of(*gpus(1)), classes=[broken])

    def test_an_expression_that_fails_on_a_device(self):
        with pytest.raises(demand.Aborted) as caught:
            allocate([claim(exactly("gpu", f"{A}.nope > 1"))], slice_of(*gpus(2)))
        assert 'request "gpu" of claim default/claim' in str(caught.value)
        assert "gpu.example.com/node-a/gpu-0" in str(caught.value)
        assert "no such key: nope" in str(caught.value)

    def test_not_an_expression_that_would_fail_on_a_device_in_use(self):
        published = slice_of(device("a"), device("b", nope=2))
        outcome = allocate([claim(exactly("gpu", f"{A}.nope > 1"))], published, in_use={"a"})
        assert devices_of(outcome) == [[("gpu", "b")]]

    def test_a_search_without_end(self):
        published = slice_of(*[device(f"g{n}", x=n) for n in range(40)])
        pending = claim(exactly(count=20), constraints=[match("gpu.example.com/x")])
        hopeless = [pending, claim(exactly("b", "false"), name="other")]
        with pytest.raises(demand.Aborted, match="add a selector"):
            allocate(hopeless, slice_of(*gpus(40, x=1)), max_steps=5_000)
        assert allocate([pending], published, max_steps=5_000).allocations is None


class TestTaints:
    TAINTED = device("bad", extra={"taints": [{"key": "ill", "value": "x", "effect": "NoExecute"}]})

    def test_a_tainted_device_is_passed_over(self):
        outcome = allocate([claim(exactly())], slice_of(self.TAINTED, *gpus(1)))
        assert devices_of(outcome) == [[("gpu", "gpu-0")]]

    @pytest.mark.parametrize(
        ("toleration", "tolerated"),
        [
            ({"operator": "Exists"}, True),
            ({"key": "ill", "operator": "Exists", "effect": "NoExecute"}, True),
            ({"key": "ill", "value": "x"}, True),
            ({"key": "ill", "operator": "Equal", "value": "y"}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({"key": "ill", "operator": "Exists", "effect": "NoSchedule"}, False),
        ],
    )
    def test_a_toleration_lets_it_in_and_is_copied_to_the_result(self, toleration, tolerated):
        pending = claim(exactly(extra={"tolerations": [toleration]}))
        outcome = allocate([pending], slice_of(self.TAINTED))
        assert (outcome.allocations is not None) is tolerated
        if tolerated:
            assert outcome.allocations[0].results[0].extra == {"tolerations": [toleration]}

    @pytest.mark.parametrize("effect", ["None", "Unheard"])
    def test_other_effects_do_not_matter(self, effect):
        harmless = device("a", extra={"taints": [{"key": "k", "effect": effect}]})
        assert devices_of(allocate([claim(exactly())], slice_of(harmless))) == [[("gpu", "a")]]

    def test_both_of_two_taints_must_be_tolerated(self):
        twice = device(
            "a", extra={"taints": [{"key": k, "effect": "NoSchedule"} for k in ("x", "y")]}
        )
        pending = claim(exactly(extra={"tolerations": [{"key": "x", "operator": "Exists"}]}))
        assert allocate([pending], slice_of(twice)).allocations is None


class TestCounters:
    SETS = slice_of(
        name="sets", count=2, node=None,
        extra={"nodeName": "node-a", "sharedCounters": [
            {"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]},
    )  # fmt: skip

    @staticmethod
    def part(name, memory, counter="memory", counters="gpu-0"):
        consumed = [{"counterSet": counters, "counters": {counter: {"value": memory}}}]
        return device(name, memory=int(memory[:-2]), extra={"consumesCounters": consumed})

    def published(self, *parts):
        return self.SETS, slice_of(*parts, name="devices", count=2)

    def test_devices_fit_as_long_as_the_counter_lasts(self):
        parts = [self.part(f"p{n}", "10Gi") for n in range(5)]
        outcome = allocate([claim(exactly(count=4))], *self.published(*parts))
        assert len(outcome.allocations[0].results) == 4
        assert allocate([claim(exactly(count=5))], *self.published(*parts)).allocations is None

    def test_devices_in_use_consume_and_a_smaller_one_is_found(self):
        parts = [self.part("big", "30Gi"), self.part("half", "20Gi"), self.part("used", "20Gi")]
        outcome = allocate([claim(exactly())], *self.published(*parts), in_use={"used"})
        assert devices_of(outcome) == [[("gpu", "half")]]

    def test_what_a_rejected_choice_consumed_is_given_back(self):
        parts = [self.part("whole", "40Gi"), self.part("a", "20Gi"), self.part("b", "20Gi")]
        pending = claim(exactly("x"), exactly("y"))
        assert devices_of(allocate([pending], *self.published(*parts))) == [
            [("x", "a"), ("y", "b")]
        ]

    def test_what_a_device_consumed_that_a_constraint_refuses_is_given_back(self):
        parts = [self.part("whole", "40Gi"), self.part("a", "20Gi"), self.part("b", "20Gi")]
        pending = claim(
            exactly("x", f"{A}.memory < 40"), exactly("y"),
            constraints=[match("gpu.example.com/memory")],
        )  # fmt: skip
        assert devices_of(allocate([pending], *self.published(*parts))) == [
            [("x", "a"), ("y", "b")]
        ]

    def test_admin_access_consumes_nothing(self):
        parts = [self.part("whole", "40Gi")]
        pending = [claim(exactly(admin_access=True), name="a"), claim(exactly(), name="b")]
        assert len(devices_of(allocate(pending, *self.published(*parts)))) == 2

    def test_counters_and_devices_in_one_slice_work_as_in_1_34(self):
        both = slice_of(
            self.part("a", "30Gi"), self.part("b", "30Gi"),
            extra={"sharedCounters": self.SETS.extra["sharedCounters"]},
        )  # fmt: skip
        assert allocate([claim(exactly(count=2))], both).allocations is None
        assert devices_of(allocate([claim(exactly())], both)) == [[("gpu", "a")]]

    def test_equal_pool_names_of_two_drivers_do_not_mix(self):
        other = slice_of(
            self.part("o", "40Gi"), name="other", driver="other.example.com",
            extra={"sharedCounters": self.SETS.extra["sharedCounters"]},
        )  # fmt: skip
        outcome = allocate(
            [claim(exactly())], *self.published(self.part("a", "40Gi")), other, in_use={"o"}
        )
        assert devices_of(outcome) == [[("gpu", "a")]]

    @pytest.mark.parametrize(("counter", "counters"), [("nope", "gpu-0"), ("memory", "gpu-1")])
    def test_an_unknown_counter_makes_the_pool_invalid(self, counter, counters):
        outcome = allocate(
            [claim(exactly())], *self.published(self.part("a", "1Gi", counter, counters))
        )
        assert outcome.allocations is None
        assert f"unknown counter {counters}/{counter}" in outcome.shortfalls[0].defects[0]


class TestUnknownFields:
    @pytest.mark.parametrize(
        "extra",
        [{"nodeAllocatableResourceMappings": {"cpu": {}}}, {"fromTheFuture": {"a": 1}}],
    )  # fmt: skip
    def test_a_device_with_a_field_that_is_not_handled_is_refused_by_name(self, extra):
        outcome = allocate([claim(exactly())], slice_of(device("a", extra=extra)))
        assert outcome.allocations is None
        ((hurdle, count),) = outcome.shortfalls[0].fallen
        assert next(iter(extra)) in str(hurdle)
        assert count == 1

    def test_a_field_that_is_off_does_no_harm(self):
        off = device("a", extra={"allowMultipleAllocations": False})
        assert devices_of(allocate([claim(exactly())], slice_of(off))) == [[("gpu", "a")]]


class TestCapacityRequests:
    PUBLISHED = slice_of(device("a", capacity={"memory": "16Gi"}), device("b"),
                         device("c", capacity={"gpu.example.com/memory": "80Gi"}))  # fmt: skip

    @pytest.mark.parametrize(
        ("requested", "expected"),
        [({"memory": "16Gi"}, "a"), ({"memory": "17Gi"}, "c"),
         ({"gpu.example.com/memory": "8Gi"}, "a"), ({"memory": "81Gi"}, None),
         ({"other.example.com/memory": "1Gi"}, None)],
    )  # fmt: skip
    def test_a_dedicated_device_must_be_large_enough(self, requested, expected):
        pending = claim(exactly(extra={"capacity": {"requests": requested}}))
        outcome = allocate([pending], self.PUBLISHED)
        assert (devices_of(outcome)[0][0][1] if outcome.allocations else None) == expected


class TestNodes:
    def test_network_devices_are_seen_by_the_nodes_of_their_selector(self):
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
        selector = {"nodeSelectorTerms": [term]}
        published = slice_of(*gpus(1), node=None, extra={"nodeSelector": selector})
        (given,) = allocate([claim(exactly())], published).allocations
        assert given.node_selector == selector
        elsewhere = nodes.Node("node-b", {"zone": "z2"})
        assert allocate([claim(exactly())], published, node=elsewhere).allocations is None

    def test_devices_of_all_nodes_tie_the_claim_to_none(self):
        published = slice_of(*gpus(1), node=None, extra={"allNodes": True})
        (given,) = allocate([claim(exactly())], published).allocations
        assert given.node_selector is None

    def test_one_local_device_among_network_devices_ties_the_claim_to_its_node(self):
        published = [
            slice_of(device("net"), node=None, pool="a", name="net", extra={"allNodes": True}),
            slice_of(*gpus(1), pool="b"),
        ]
        (given,) = allocate([claim(exactly(count=2))], *published).allocations
        assert given.node_selector == nodes.only("node-a")

    def test_each_device_can_have_its_own_node(self):
        published = slice_of(
            device("b", extra={"nodeName": "node-b"}),
            device("a", extra={"nodeName": "node-a"}),
            device("all", extra={"allNodes": True}),
            node=None,
            extra={"perDeviceNodeSelection": True},
        )
        outcome = allocate([claim(exactly(count=2))], published)
        assert devices_of(outcome) == [[("gpu", "a"), ("gpu", "all")]]

    def test_requirements_of_several_selectors_are_merged_without_repetition(self):
        def selector(*keys):
            term = {"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]}
            return {"nodeSelectorTerms": [term]}

        published = slice_of(
            device("a", extra={"nodeSelector": selector("zone")}),
            device("b", extra={"nodeSelector": selector("zone", "kubernetes.io/hostname")}),
            node=None,
            extra={"perDeviceNodeSelection": True},
        )
        (given,) = allocate([claim(exactly(count=2))], published).allocations
        assert given.node_selector == selector("zone", "kubernetes.io/hostname")

    @pytest.mark.parametrize(
        ("values", "kept"), [(["z2", "z1"], 1), (["z1", "z2", "z1"], 1), (["z1"], 2)]
    )
    def test_the_order_of_values_makes_no_other_requirement(self, values, kept):
        def zone(*values):
            expression = {"key": "zone", "operator": "In", "values": list(values)}
            return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}

        published = slice_of(
            device("a", extra={"nodeSelector": zone("z1", "z2")}),
            device("b", extra={"nodeSelector": zone(*values)}),
            node=None,
            extra={"perDeviceNodeSelection": True},
        )
        (given,) = allocate([claim(exactly(count=2))], published).allocations
        [term] = given.node_selector["nodeSelectorTerms"]
        assert len(term["matchExpressions"]) == kept
        assert term["matchExpressions"][0]["values"] == ["z1", "z2"]


class TestConfigs:
    @staticmethod
    def config(value, *requests, source=claims.FROM_CLAIM):
        return claims.OpaqueConfig("gpu.example.com", {"value": value}, requests, source)

    def test_class_configs_come_first_once_a_class_with_the_requests_that_use_it(self):
        classes = [
            GPU_CLASS,
            claims.DeviceClass("other", configs=(self.config(9, source=claims.FROM_CLASS),)),
            claims.DeviceClass("gpu", GPU_CLASS.selectors, (self.config(1), self.config(2))),
        ]
        pending = claim(
            exactly("a"), exactly("b", count=2), exactly("c", device_class="other"),
            configs=[self.config(3)],
        )  # fmt: skip
        (given,) = allocate([pending], slice_of(*gpus(4)), classes=classes).allocations
        assert given.configs == (
            self.config(1, "a", "b", source=claims.FROM_CLASS),
            self.config(2, "a", "b", source=claims.FROM_CLASS),
            self.config(9, "c", source=claims.FROM_CLASS),
            self.config(3),
        )

    def test_a_claim_config_applies_to_the_alternative_that_was_chosen(self):
        request = first_available("gpu", alternative("large", H100), alternative("small", T4))
        wanted = [
            self.config(1, "gpu/large"), self.config(2, "gpu/small"), self.config(3, "gpu"),
            self.config(4),
        ]  # fmt: skip
        pending = claim(request, configs=wanted)
        (given,) = allocate([pending], slice_of(*gpus(1, model="t4"))).allocations
        assert given.configs == tuple(wanted[1:])

    def test_a_claim_config_for_several_requests_is_there_once(self):
        pending = claim(exactly("a"), exactly("b"), configs=[self.config(1, "a", "b")])
        (given,) = allocate([pending], slice_of(*gpus(2))).allocations
        assert given.configs == (self.config(1, "a", "b"),)
