"""Which slices make a pool, and when a pool cannot be used (kubernetes-dra.md, 4.3)."""

from dra_objects import DRIVER, NODE, device, slice_of

from dra_driver.logic import pools
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
