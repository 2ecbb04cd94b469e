"""Which devices a DeviceTaintRule taints."""

import pytest
from dra_objects import DRIVER, device, slice_of

from dra_driver.logic.scheduling import emulation, taint_rules

ILL = {"key": "ill", "effect": "NoExecute"}
WORN = {"key": "worn", "effect": "NoSchedule"}


def rule(name="rule", taint=ILL, release=None, **spec):
    body = {"metadata": {"name": name}, "spec": {"taint": taint, **spec}}
    return taint_rules.parse(body, emulation.of_release(release))


def tainted(*rules, published=None):
    published = published or slice_of(device("a"), device("b"), pool="p")
    found = taint_rules.applied(published, rules)
    return {one.name: one.extra.get("taints", []) for one in found.devices}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({}, "ab"),
        ({"driver": DRIVER}, "ab"),
        ({"driver": "other"}, ""),
        ({"pool": "p"}, "ab"),
        ({"pool": "q"}, ""),
        ({"device": "a"}, "a"),
        ({"driver": DRIVER, "pool": "p", "device": "b"}, "b"),
        ({"driver": DRIVER, "pool": "q", "device": "b"}, ""),
    ],
)
def test_all_that_is_given_has_to_be_met(selector, names):
    found = tainted(rule(deviceSelector=selector))
    assert found == {name: [ILL] if name in names else [] for name in "ab"}


@pytest.mark.parametrize(("release", "count"), [(None, 0), ("1.37", 2), ("1.38", 0)])
def test_without_a_selector_it_taints_every_device_in_1_37_alone(release, count):
    assert sum(map(bool, tainted(rule(release=release)).values())) == count


def test_taints_are_added_to_what_the_driver_says_by_the_names_of_rules():
    published = slice_of(device("a", extra={"taints": [WORN], "allNodes": True}))
    rules = rule("z", ILL, deviceSelector={}), rule("b", WORN, deviceSelector={})
    assert tainted(*rules, published=published) == {"a": [WORN, WORN, ILL]}
    assert published.devices[0].extra["taints"] == [WORN]


def test_a_slice_that_no_rule_selects_is_as_it_was():
    published = slice_of(device("a"))
    assert taint_rules.applied(published, []) == published
