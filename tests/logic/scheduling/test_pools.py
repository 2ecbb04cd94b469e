"""Which slices make a pool, and when a pool cannot be used (kubernetes-dra.md, 4.3)."""

import dataclasses

from dra_objects import DRIVER, NODE, device, slice_of

from dra_driver.logic.scheduling import pools
from dra_driver.model import nodes


def seen(*published, node=NODE):
    return pools.Inventory.of(published).pools(node)


def names(pool):
    return [candidate.id.device for candidate in pool.candidates]


def test_slices_of_a_pool_are_joined_in_the_order_of_their_names():
    second = slice_of(device("c"), name="b", count=2)
    (pool,) = seen(second, slice_of(device("z"), device("a"), name="a", count=2))
    assert (pool.driver, pool.name, pool.defect) == (DRIVER, "node-a", "")
    assert names(pool) == ["z", "a", "c"]


def test_only_the_highest_generation_counts():
    (pool,) = seen(
        slice_of(device("old"), name="a", generation=1),
        slice_of(device("new"), name="b", generation=2),
    )
    assert (pool.generation, names(pool)) == (2, ["new"])


def test_a_pool_that_lacks_slices_is_kept_as_incomplete_without_devices():
    (pool,) = seen(slice_of(device("a"), count=2))
    assert (pool.defect, names(pool)) == ("incomplete: 1 of 2 slices", [])


def test_a_new_generation_that_is_not_complete_hides_the_old_one():
    (pool,) = seen(
        slice_of(device("a"), name="a", generation=1),
        slice_of(device("b"), name="b", generation=2, count=2),
    )
    assert "incomplete" in pool.defect


def test_a_pool_over_several_nodes_is_complete_although_a_node_sees_a_part():
    def part(name, node):
        return slice_of(device(name), name=name, pool="wide", node=node, count=2)

    (pool,) = seen(part("a", "node-a"), part("b", "node-b"))
    assert (pool.defect, names(pool)) == ("", ["a"])


def test_a_pool_that_a_node_sees_all_of_by_number_has_no_slices_elsewhere():
    # One slice is announced, and there are two; nobody looks beyond the node's own.
    counters = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}
    wrong = {"consumesCounters": [{"counterSet": "none", "counters": {"c": {"value": "1"}}}]}
    own = slice_of(device("a"), name="a", pool="wide", node="node-a", count=1)
    other = slice_of(device("b", extra=wrong), name="b", pool="wide", node="node-b", count=1)
    (pool,) = seen(own, other)
    assert (pool.defect, list(pool.devices)) == ("", ["a"])

    more = slice_of(name="c", pool="wide", node="node-b", count=3, extra=counters)
    (pool,) = seen(*[dataclasses.replace(item, slice_count=3) for item in (own, other)], more)
    assert pool.defect == "invalid: device 'b' uses unknown counter none/c"


def test_a_pool_with_a_higher_generation_elsewhere_is_ignored_by_the_node():
    assert seen(
        slice_of(device("a"), name="a", pool="wide", node="node-a", generation=1, count=2),
        slice_of(device("b"), name="b", pool="wide", node="node-b", generation=2, count=2),
    ) == ()  # fmt: skip


def test_a_slice_that_names_no_nodes_at_all_is_skipped():
    assert seen(slice_of(device("a"), node=None)) == ()


def test_slices_of_other_nodes_are_not_looked_at():
    assert seen(slice_of(device("a"), node="node-b", pool="node-b")) == ()


def test_a_device_that_is_listed_twice_makes_the_pool_invalid():
    (pool,) = seen(
        slice_of(device("a"), name="a", count=2), slice_of(device("a"), name="b", count=2)
    )
    assert pool.defect == "invalid: device 'a' is listed twice"


def test_a_counter_set_that_is_defined_twice_makes_the_pool_invalid():
    counters = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}
    (pool,) = seen(
        slice_of(name="a", count=2, extra=counters), slice_of(name="b", count=2, extra=counters)
    )
    assert pool.defect == "invalid: counter set 's' is defined twice"


def test_pools_with_binding_conditions_come_last():
    bound = device("a", extra={"bindingConditions": ["x"], "bindingFailureConditions": ["y"]})
    found = seen(slice_of(bound, name="a", pool="a"), slice_of(device("b"), name="b", pool="b"))
    assert [pool.name for pool in found] == ["b", "a"]


class TestUpdate:
    START = pools.Inventory.of([slice_of(device("a"), name="s")])

    def test_a_slice_that_changed_takes_the_place_of_the_old_one(self):
        (pool,) = self.START.update({"s": slice_of(device("b"), name="s")}).pools(NODE)
        assert names(pool) == ["b"]

    def test_a_slice_that_is_gone_is_gone(self):
        assert self.START.update({"s": None}).pools(NODE) == ()

    def test_the_inventory_before_stays_as_it_was(self):
        self.START.update({"s": None})
        assert [names(pool) for pool in self.START.pools(NODE)] == [["a"]]

    def test_a_slice_that_did_not_change_is_not_prepared_again(self):
        after = self.START.update({"t": slice_of(device("b"), name="t", pool="other")})
        before = self.START.pools(NODE)[0].candidates[0]
        assert after.pools(NODE)[0].candidates[0] is before


def test_a_node_whose_labels_change_sees_other_pools():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z2"]}]}
    extra = {"nodeSelector": {"nodeSelectorTerms": [term]}}
    inventory = pools.Inventory.of([slice_of(device("a"), node=None, extra=extra)])
    assert inventory.pools(NODE) == ()
    assert len(inventory.pools(nodes.Node("node-a", {"zone": "z2"}))) == 1


class TestCarriedOver:
    """An update keeps what was worked out for nodes that it does not concern."""

    @staticmethod
    def start(*more):
        own = [
            slice_of(device(name), name=name, pool=name, node=name) for name in ("node-a", "node-b")
        ]
        inventory = pools.Inventory.of([*own, *more])
        return inventory, {name: inventory.pools(nodes.Node(name)) for name in ("node-a", "node-b")}

    def test_for_other_nodes(self):
        inventory, before = self.start()
        changed = slice_of(device("new"), name="node-b", pool="node-b", node="node-b")
        after = inventory.update({"node-b": changed})
        assert after.pools(nodes.Node("node-a")) is before["node-a"]
        assert names(after.pools(nodes.Node("node-b"))[0]) == ["new"]

    def test_for_no_node_if_the_slice_is_for_many(self):
        inventory, _ = self.start()
        wide = slice_of(device("net"), name="w", pool="w", node=None, extra={"allNodes": True})
        after = inventory.update({"w": wide})
        for name in ("node-a", "node-b"):
            assert [pool.name for pool in after.pools(nodes.Node(name))] == [name, "w"]
        gone = after.update({"w": None})
        assert [pool.name for pool in gone.pools(nodes.Node("node-a"))] == ["node-a"]

    def test_not_for_a_node_that_a_slice_leaves(self):
        inventory, _ = self.start()
        moved = slice_of(device("x"), name="node-b", pool="node-b", node="node-a")
        after = inventory.update({"node-b": moved})
        assert [pool.name for pool in after.pools(nodes.Node("node-a"))] == ["node-a", "node-b"]
        assert after.pools(nodes.Node("node-b")) == ()

    def test_of_several_slices_of_a_pool_the_others_stay(self):
        two = [slice_of(device(n), name=n, pool="p", count=2) for n in ("s1", "s2")]
        inventory = pools.Inventory.of(two)
        changed = slice_of(device("new"), name="s1", pool="p", count=2)
        (pool,) = inventory.update({"s1": changed}).pools(NODE)
        assert names(pool) == ["new", "s2"]


COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}


def test_broken_pools_with_counters_are_looked_at_by_other_nodes():
    published = [
        slice_of(name="0", pool="node-b", node="node-b", count=2, extra=COUNTERS),
        slice_of(name="1", pool="node-c", node="node-c", count=2),
        slice_of(name="2", pool="node-d", node="node-d", extra=COUNTERS),
    ]
    inventory = pools.Inventory.of(published)
    assert [str(pool) for pool in inventory.unusable_elsewhere(NODE)] == [f"{DRIVER}/node-b"]
    assert inventory.unusable_elsewhere(nodes.Node("node-b")) == ()
    mended = inventory.update(
        {"0": slice_of(name="0", pool="node-b", node="node-b", extra=COUNTERS)}
    )
    assert mended.unusable_elsewhere(NODE) == ()


def test_answers_are_kept_for_each_node_and_question():
    seen = pools.Inventory.of([slice_of(device("a"), device("b"))]).seen(NODE)
    assert list(seen.answers("q")) == [0, 0]
    seen.answers("q")[1] = 2
    assert list(seen.answers("q")) == [0, 2]
    assert list(seen.answers("other")) == [0, 0]
    for number in range(300):
        seen.answers(number)
    assert list(seen.answers("q")) == [0, 0]
