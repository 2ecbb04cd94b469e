"""Which parts of a slice an API server is against."""

import pooled
import pytest

from dra_driver.logic.offering import refusals

DEVICES = {"devices": [{"name": f"gpu-{n}", "attributes": {"n": {"int": n}}} for n in range(3)]}
SETS = {"sharedCounters": [{"name": "gpu-0-counter-set"}, {"name": "gpu-1-counter-set"}]}


@pytest.mark.parametrize(
    ("content", "fields", "names"),
    [
        (DEVICES, ["spec.devices[1].attributes[n].string"], ["gpu-1"]),
        (DEVICES, ["spec.devices[2]", "spec.devices[0].name"], ["gpu-0", "gpu-2"]),
        (DEVICES, ["spec.devices[1].basic.attributes[n]", "spec.pool"], ["gpu-1"]),
        (SETS, ["spec.sharedCounters[1].counters[x]"], ["gpu-1-counter-set"]),
        (SETS | DEVICES, ["spec.devices[0]"], ["gpu-0"]),
        # No part is named: it may be any.
        (DEVICES, [], ["gpu-0", "gpu-1", "gpu-2"]),
        (DEVICES, ["spec.devices"], ["gpu-0", "gpu-1", "gpu-2"]),
        (DEVICES, ["spec.devices[7].name"], ["gpu-0", "gpu-1", "gpu-2"]),
        (SETS, ["spec"], ["gpu-0-counter-set", "gpu-1-counter-set"]),
        ({}, [], []),
    ],
)
def test_the_parts_that_are_named_are_to_blame_or_else_all_of_them(content, fields, names):
    assert sorted(refusals.blamed(content, fields).values()) == names


def test_a_part_is_known_by_all_that_is_in_it_but_the_times_of_taints():
    [first, second, _] = DEVICES["devices"]
    assert refusals.blamed(DEVICES, ["spec.devices[0]"]) == {refusals.mark(first): "gpu-0"}
    assert refusals.mark(first) != refusals.mark(second)
    assert refusals.mark(first) != refusals.mark(first | {"attributes": {"n": {"int": 9}}})
    tainted, timed = (
        pooled.tainted(0, pooled.TAINT),
        pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME}),
    )
    assert refusals.mark(tainted) == refusals.mark(timed)
    assert timed["taints"][0]["timeAdded"] == pooled.TIME


@pytest.mark.parametrize(
    ("fields", "named"),
    [(["spec.devices[1].name"], True), (["spec.sharedCounters[0]"], True), (["spec"], False)],
)
def test_a_server_may_say_which_part_is_wrong(fields, named):
    assert refusals.names_a_part(fields) is named
