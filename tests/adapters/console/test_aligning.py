"""What is the same, and which item of a list has become which."""

import pytest

from dra_driver.adapters.console import aligning

SAME = [
    ({"a": [1, {"b": None}], "c": "x"}, {"c": "x", "a": [1, {"b": None}]}),
    ([], []),
    ("1", "1"),
]
OTHER = [
    (1, True), (1, 1.0), (0, False), ("1", 1), (None, False), ({}, []), ({"a": 1}, {"a": True}),
    ([1, 2], [1]), ([1], [1, 2]), ([1, 2], [2, 1]), ({"a": 1}, {"a": 1, "b": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_order_of_keys_means_nothing(one, other):
    assert aligning.same(one, other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_a_value_of_another_kind_is_another_one(one, other):
    assert not aligning.same(one, other)
    assert not aligning.same(other, one)


def named(*names, **more):
    return [{"name": name, **more} for name in names]


PAIRS = {
    "what has changed is known by its name": (
        named("a", "b"), named("a", "b", more=1), [(0, 0), (1, 1)],
    ),
    "what is new": (named("a", "b"), named("a", "x", "b"), [(0, 0), (None, 1), (1, 2)]),
    "what is gone": (named("a", "b", "c"), named("a", "c"), [(0, 0), (1, None), (2, 1)]),
    "one in place of another": (
        named("a", "b", "c"), named("a", "x", "c"), [(0, 0), (1, 1), (2, 2)],
    ),
    "two in place of one": (
        named("a", "b"), named("x", "y", "b"), [(0, None), (None, 0), (None, 1), (1, 2)],
    ),
    "all of it": (named("a"), named("x", "y"), [(0, None), (None, 0), (None, 1)]),
    "the same several times": (
        ["a", "a", "b"], ["a", "b", "a"], [(0, 0), (1, None), (2, 1), (None, 2)],
    ),
    "objects by kind, name and namespace": (
        [{"kind": "A", "metadata": {"name": "a", "namespace": space}} for space in "xyz"],
        [{"kind": "A", "metadata": {"name": "a", "namespace": space}, "spec": 1} for space in "yz"],
        [(0, None), (1, 0), (2, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_items_are_found_again(what):
    old, new, wanted = PAIRS[what]
    assert list(aligning.aligned(old, new)) == wanted


def test_long_lists_of_items_that_are_alike_are_aligned():
    pairs = list(aligning.aligned(["x"] * 20_000, ["y", *["x"] * 20_000]))
    assert pairs[0] == (None, 0)
    assert pairs[1:] == [(place, place + 1) for place in range(20_000)]
