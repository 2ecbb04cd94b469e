"""Devices and counters to the content of slices."""

import pooled
import pytest

from dra_driver.logic.offering import publishing
from dra_driver.model import quantities


@pytest.mark.parametrize("extra", [{}, {"taints": [pooled.TAINT]}])
@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (64, [64]), (65, [64, 1]), (129, [64, 64, 1])]
)
def test_a_slice_has_as_many_devices_as_one_may_have_in_which_some_are_tainted(count, sizes, extra):
    chunks = list(publishing.chunks(pooled.devices(count, **extra)))
    assert [len(chunk) for chunk in chunks] == sizes
    names = [item.name for chunk in chunks for item in chunk]
    assert names == [f"gpu-{number}" for number in range(count)]


def test_contents_are_the_wire_form_of_devices_and_counters():
    amounts = {"memory-slice-0": "1", "memory": "80Gi"}
    counters = {name: quantities.parse(text) for name, text in amounts.items()}
    offered = [
        publishing.Content(counter_sets=(publishing.CounterSet("gpu-0-counter-set", counters),)),
        publishing.Content((pooled.device(0, taints=[pooled.TAINT]),)),
    ]
    (with_counters, with_devices) = publishing.contents(offered)
    assert with_counters == {
        "sharedCounters": [
            {
                "name": "gpu-0-counter-set",
                "counters": {"memory": {"value": "80Gi"}, "memory-slice-0": {"value": "1"}},
            }
        ]
    }
    assert list(with_counters["sharedCounters"][0]["counters"]) == ["memory", "memory-slice-0"]
    assert with_devices == {
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"minor": {"int": 0}},
                "capacity": {"memory": {"value": "80Gi"}},
                "taints": [pooled.TAINT],
            }
        ]
    }


# Whether the server takes counters


@pytest.mark.parametrize("layout", [publishing.Layout.SPLIT, publishing.Layout.COMBINED])
def test_the_probe_has_counters_and_in_one_slice_with_devices_where_they_go_together(layout):
    spec = publishing.counter_probe(pooled.OWNER, layout)["spec"]
    (counter_set,) = spec["sharedCounters"]
    consumed = [
        (entry["counterSet"], entry["counters"])
        for item in spec.get("devices", ())
        for entry in item["consumesCounters"]
    ]
    expected = [(counter_set["name"], counter_set["counters"])]
    assert consumed == (expected if layout is publishing.Layout.COMBINED else [])
