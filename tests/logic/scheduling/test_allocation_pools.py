"""Pools in the search: several nodes, generations, invalid ones, conditions, node selection."""

import pytest
from dra_objects import (
    DRIVER,
    NODE,
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

from dra_driver.logic.scheduling import demand, pools
from dra_driver.model import claims, nodes, slices

COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}
CONDITIONS = {"bindingConditions": ["up"], "bindingFailureConditions": ["broken"]}


def part(name, amount=1, **fields):
    consumed = [{"counterSet": "s", "counters": {"c": {"value": str(amount)}}}]
    return device(name, extra={"consumesCounters": consumed, **fields})


class TestManyNodes:
    def wide(self, *, second_generation=1):
        """One pool over two nodes, with counters that both use."""
        return [
            slice_of(name="0", pool="wide", node=None, count=3, extra=COUNTERS),
            slice_of(part("a", 3), name="1", pool="wide", node="node-a", count=3),
            slice_of(part("b", 3), name="2", pool="wide", node="node-b", count=3,
                     generation=second_generation),
        ]  # fmt: skip

    def test_a_node_has_only_its_own_devices(self):
        assert devices_of(allocate([claim(exactly())], *self.wide())) == [[("gpu", "a")]]

    def test_devices_in_use_on_another_node_consume_the_same_counters(self):
        outcome = allocate([claim(exactly())], *self.wide(), in_use={"b"})
        assert outcome.allocations is None
        assert "no room beside" in str(outcome.shortfalls[0].fallen)

    def test_a_generation_that_is_on_its_way_leaves_the_pool_incomplete_for_all(self):
        outcome = allocate([claim(exactly())], *self.wide(second_generation=2))
        assert outcome.allocations is None

    def test_an_unknown_counter_of_another_node_makes_the_pool_invalid(self):
        unknown = [{"counterSet": "t", "counters": {"c": {"value": "1"}}}]
        published = self.wide()
        published[2] = slice_of(device("b", extra={"consumesCounters": unknown}), name="2",
                                pool="wide", node="node-b", count=3)  # fmt: skip
        outcome = allocate([claim(exactly())], *published)
        assert "invalid: device 'b' uses unknown counter t/c" in outcome.shortfalls[0].defects[0]

    def test_a_device_may_be_for_several_nodes_by_selector(self):
        def on(*names):
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*names]}
            return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}

        published = slice_of(
            part("here", 1, nodeSelector=on("node-a", "node-b")),
            part("there", 1, nodeSelector=on("node-b")),
            part("named", 1, nodeName="node-a"), name="1", node=None, count=2,
            extra={"perDeviceNodeSelection": True},
        )  # fmt: skip
        counters = slice_of(name="0", node=None, count=2, extra={**COUNTERS, "allNodes": True})
        outcome = allocate([claim(exactly())], counters, published)
        assert devices_of(outcome) == [[("gpu", "here")]]
        assert outcome.allocations[0].node_selector == on("node-a", "node-b")
        two = allocate([claim(exactly(count=2))], counters, published)
        assert devices_of(two) == [[("gpu", "here"), ("gpu", "named")]]
        assert two.allocations[0].node_selector == nodes.only("node-a")
        elsewhere = nodes.Node("node-b", {"kubernetes.io/hostname": "node-b"})
        found = allocate([claim(exactly(count=2))], counters, published, node=elsewhere)
        assert devices_of(found) == [[("gpu", "here"), ("gpu", "there")]]

    def test_all_looks_at_counters_of_other_nodes_and_stops_at_a_broken_pool(self):
        own = slice_of(*gpus(1))
        other = slice_of(name="0", pool="node-b", node="node-b", count=2, extra=COUNTERS)
        with pytest.raises(demand.Aborted, match=r"pool gpu\.example\.com/node-b is incomplete"):
            allocate([claim(exactly(all_devices=True))], own, other)
        assert devices_of(allocate([claim(exactly())], own, other)) == [[("gpu", "gpu-0")]]

    def test_all_does_not_look_at_whole_pools_of_other_nodes(self):
        own = slice_of(*gpus(1))
        fine = [
            slice_of(name="0", pool="node-b", node="node-b", count=2, extra=COUNTERS),
            slice_of(part("b"), name="1", pool="node-b", node="node-b", count=2),
            slice_of(name="2", pool="node-c", node="node-c", count=9),
        ]
        outcome = allocate([claim(exactly(all_devices=True))], own, *fine)
        assert devices_of(outcome) == [[("gpu", "gpu-0")]]


class TestCounters:
    def test_a_pool_in_which_others_took_too_much_gives_nothing_that_counts(self):
        sets = {"sharedCounters": [{"name": name, "counters": {"c": {"value": "4"}}}
                                   for name in "st"]}  # fmt: skip
        other = [{"counterSet": "t", "counters": {"c": {"value": "1"}}}]
        published = slice_of(
            part("x", 3), part("y", 3), device("t", extra={"consumesCounters": other}),
            device("free"), extra=sets,
        )  # fmt: skip
        outcome = allocate([claim(exactly())], published, in_use={"x", "y"})
        assert devices_of(outcome) == [[("gpu", "free")]]

    def test_fractions_count_exactly(self):
        published = slice_of(*[part(f"p{n}", "1333m") for n in range(3)], part("q", "1m"),
                             part("r", "1m"), extra=COUNTERS)  # fmt: skip
        found = allocate([claim(exactly(count=4))], published)
        assert [name for _, name in devices_of(found)[0]] == ["p0", "p1", "p2", "q"]
        assert allocate([claim(exactly(count=5))], published).allocations is None

    def test_counters_that_nobody_uses_do_no_harm(self):
        published = slice_of(*gpus(2), extra=COUNTERS)
        assert allocate([claim(exactly(count=2))], published).allocations is not None

    def test_all_parts_must_fit_together(self):
        fits = slice_of(part("a", 2), part("b", 2), extra=COUNTERS)
        assert allocate([claim(exactly(all_devices=True))], fits).allocations is not None
        too_many = slice_of(part("a", 2), part("b", 3), extra=COUNTERS)
        assert allocate([claim(exactly(all_devices=True))], too_many).allocations is None


class TestCountersWithTheirDevices:
    """As Kubernetes 1.34 has them: each slice has the counters that its devices consume."""

    def cards(self, *nodes_of_cards):
        """A pool with a slice for each GPU, which has 4 of a counter; parts of 1 to 3."""
        return [
            slice_of(
                *(self.part(gpu, amount) for amount in (1, 2, 3)),
                name=f"slice-{gpu}", pool="wide", node=node, count=len(nodes_of_cards),
                extra={"sharedCounters": [
                    {"name": f"s{gpu}", "counters": {"c": {"value": "4"}}}]},
            )
            for gpu, node in enumerate(nodes_of_cards)
        ]  # fmt: skip

    @staticmethod
    def part(gpu, amount):
        consumed = [{"counterSet": f"s{gpu}", "counters": {"c": {"value": str(amount)}}}]
        return device(f"g{gpu}-{amount}", extra={"consumesCounters": consumed})

    def test_each_gpu_is_counted_for_itself(self):
        published = self.cards("node-a", "node-a")
        found = allocate([claim(exactly(count=4))], *published)
        assert devices_of(found) == [
            [("gpu", "g0-1"), ("gpu", "g0-2"), ("gpu", "g1-1"), ("gpu", "g1-2")]
        ]
        assert allocate([claim(exactly(count=5))], *published).allocations is None

    def test_what_others_have_of_one_gpu_leaves_the_other_as_it_is(self):
        found = allocate(
            [claim(exactly(count=3))], *self.cards("node-a", "node-a"), in_use={"g0-3"}
        )
        assert devices_of(found) == [[("gpu", "g0-1"), ("gpu", "g1-1"), ("gpu", "g1-2")]]

    def test_the_devices_are_those_of_their_node_alone(self):
        published = self.cards("node-a", "node-b")
        found = allocate([claim(exactly(count=2))], *published)
        assert devices_of(found) == [[("gpu", "g0-1"), ("gpu", "g0-2")]]
        assert allocate([claim(exactly(count=3))], *published).allocations is None

    def test_a_broken_pool_of_another_node_is_not_looked_at(self):
        other = slice_of(self.part(0, 1), name="other", pool="node-b", node="node-b", count=2,
                         extra=COUNTERS)  # fmt: skip
        assert pools.Inventory.of([other]).unusable_elsewhere(NODE) == ()


class TestInvalidPools:
    BAD = slice_of(device("x"), device("x"), name="bad", pool="a-bad")

    def test_devices_of_a_good_pool_are_had_beside_a_bad_one(self):
        found = allocate([claim(exactly())], self.BAD, slice_of(*gpus(1)))
        assert devices_of(found) == [[("gpu", "gpu-0")]]

    def test_all_stops_at_a_bad_one(self):
        with pytest.raises(demand.Aborted, match="device 'x' is listed twice"):
            allocate([claim(exactly(all_devices=True))], self.BAD, slice_of(*gpus(1)))


class TestBindingConditions:
    BOUND = device("bound", extra=CONDITIONS)

    def test_they_are_copied_to_the_result(self):
        (given,) = allocate([claim(exactly())], slice_of(self.BOUND)).allocations
        assert given.results[0].extra == CONDITIONS
        assert claims.format_allocation(given)["devices"]["results"][0] == {
            "request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "bound", **CONDITIONS,
        }  # fmt: skip

    def test_pools_with_them_come_last(self):
        first = slice_of(self.BOUND, device("also-last"), name="0", pool="a")
        found = allocate(
            [claim(exactly(count=2))], first, slice_of(device("z"), name="1", pool="b")
        )
        assert [name for _, name in devices_of(found)[0]] == ["z", "bound"]

    def test_an_empty_list_of_conditions_is_none(self):
        first = slice_of(device("a", extra={"bindingConditions": []}), name="0", pool="a")
        found = allocate([claim(exactly())], first, slice_of(device("z"), name="1", pool="b"))
        assert devices_of(found) == [[("gpu", "a")]]

    def test_a_tainted_one_is_passed_over(self):
        ill = {"taints": [{"key": "ill", "effect": "NoSchedule"}]}
        published = slice_of(device("a", extra=CONDITIONS | ill), self.BOUND)
        assert devices_of(allocate([claim(exactly())], published)) == [[("gpu", "bound")]]

    def test_a_device_that_binds_to_its_node_ties_the_claim_to_it(self):
        def selector_of(*devices):
            published = slice_of(*devices, node=None, extra={"allNodes": True})
            pending = claim(exactly(count=len(devices)))
            return allocate([pending], published).allocations[0].node_selector

        binds = device("b", extra=CONDITIONS | {"bindsToNode": True})
        assert selector_of(self.BOUND) is None
        assert selector_of(self.BOUND, binds) == nodes.only(NODE.name)


class TestLimitOf32:
    def test_a_list_falls_back_to_what_leaves_room_for_the_rest(self):
        wanted = first_available("gpu", alternative("many", count=20), alternative("few", count=2))
        pending = claim(wanted, exactly("rest", count=30))
        found = devices_of(allocate([pending], slice_of(*gpus(64)), max_steps=200))
        assert [name for name, _ in found[0]] == ["gpu/few"] * 2 + ["rest"] * 30

    def test_what_cannot_fit_is_not_searched_for(self):
        wanted = first_available("gpu", alternative("many", count=20), alternative("few", count=2))
        none = claim(wanted, exactly("rest", f'device.attributes["{DRIVER}"].index > 40', count=30))
        assert allocate([none], slice_of(*gpus(64)), max_steps=50_000).allocations is None


def test_combinations_are_tried_and_not_permutations():
    # Of 12 devices 4 are wanted, and no two agree. The first: g0 to g8, later ones leave too few.
    # The second: after g0 all 11, after gN those up to g9, so 8 + 7 + ... + 1.
    published = slice_of(*[device(f"g{n}", x=n) for n in range(12)])
    pending = claim(exactly(count=4), constraints=[match(f"{DRIVER}/x")])
    assert allocate([pending], published, max_steps=9 + 11 + 36).allocations is None
    with pytest.raises(demand.Aborted):
        allocate([pending], published, max_steps=9 + 11 + 36 - 1)


def test_a_selector_that_fails_is_told_although_there_are_too_few_devices():
    pending = claim(exactly("gpu", f'device.attributes["{DRIVER}"].nope > 1', count=3))
    with pytest.raises(demand.Aborted, match="no such key"):
        allocate([pending], slice_of(*gpus(2)))


def test_the_same_name_in_two_pools_is_two_devices():
    published = [slice_of(device("x"), name=name, pool=name) for name in "ab"]
    found = allocate([claim(exactly(count=2))], *published)
    assert [result.device for result in found.allocations[0].results] == [
        slices.DeviceId(DRIVER, name, "x") for name in "ab"
    ]
