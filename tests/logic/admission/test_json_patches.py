"""Patches, as RFC 6902 has them."""

import hypothesis
import pod_reviews
import pytest
from hypothesis import strategies

from dra_driver.logic.admission import json_patches

_KEYS = strategies.sampled_from(["a", "b", "a/b", "m~n", "~1", ""])
_VALUES = strategies.recursive(
    strategies.sampled_from([None, True, False, 0, 1, 1.0, "", "1"]),
    lambda inner: (
        strategies.lists(inner, max_size=3) | strategies.dictionaries(_KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)
_OBJECTS = strategies.dictionaries(_KEYS, _VALUES, max_size=4)


def patch(old, new):
    return list(json_patches.difference(old, new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({}, {"a/b~c": 1}, [{"op": "add", "path": "/a~1b~0c", "value": 1}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 2}]),
        ({"a": [1, 2]}, {"a": [1]}, [{"op": "replace", "path": "/a", "value": [1]}]),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [{"op": "replace", "path": "/a/0/b", "value": 2}]),
        ({"a": None}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
        ({"a": True}, {"a": 1}, [{"op": "replace", "path": "/a", "value": 1}]),
    ],
    ids=str,
)
def test_only_what_differs_is_in_it(old, new, expected):
    assert patch(old, new) == expected


@hypothesis.given(_OBJECTS, _OBJECTS)
def test_it_makes_the_one_of_the_other(old, new):
    assert pod_reviews.patched(old, patch(old, new)) == new


@hypothesis.given(_OBJECTS)
def test_equal_values_have_none(value):
    assert patch(value, value) == []
    assert patch(value, pod_reviews.patched(value, [])) == []
