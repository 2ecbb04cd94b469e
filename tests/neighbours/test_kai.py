"""What KAI's scheduler counts of claims for this driver's classes.

The rules are those of kai-scheduler/KAI-Scheduler d5bc503a, pkg/common/resources/dra.go
(`countGPUDevicesFromClaim`, `getGPUDeviceClassNameFromClaim`).
"""

from collections import Counter

import pytest

EXTENDED = "resource.kubernetes.io/extended-resource-claim"


def is_of_gpus(class_name):
    return "gpu" in class_name.lower()


def counted(*claims):
    """GPUs of claims by class: all of a claim go to its first class of GPUs."""
    found = Counter()
    for claim in claims:
        if claim["metadata"].get("annotations", {}).get(EXTENDED) == "true":
            continue
        asked = [one["exactly"] for one in claim["spec"]["devices"]["requests"] if "exactly" in one]
        named = [one for one in asked if is_of_gpus(one["deviceClassName"])]
        if named:
            number = sum(
                1 if one.get("allocationMode") == "All" else one.get("count", 1) for one in named
            )
            found[named[0]["deviceClassName"]] += number
    return dict(found)


def request(name, class_name, **fields):
    return {"name": name, "exactly": {"deviceClassName": class_name, **fields}}


def test_partitions_count_by_the_class_with_gpu_in_its_name_and_by_no_other(fleet):
    small = {"cel": {"expression": 'device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'}}
    pods = [
        fleet.pod([request("part", name, selectors=[small])]).wait_running()
        for name in ("mig.nvidia.com", "mig.gpu.nvidia.com")
    ]
    plain, counting = (pod.claim() for pod in pods)
    assert (counted(plain), counted(counting)) == ({}, {"mig.gpu.nvidia.com": 1})
    # They are the same devices.
    names = [pod.results()[0]["device"] for pod in pods]
    assert all("-mig-1g10gb-" in name for name in names)
    for pod in pods:
        pod.delete()


@pytest.mark.parametrize(
    ("class_name", "fields", "expected"),
    [
        ("gpu.nvidia.com", {"count": 2}, 2),
        ("shared.gpu.nvidia.com", {"capacity": {"requests": {"memory": "1Gi", "cores": "5"}}}, 1),
        ("mps.gpu.nvidia.com", {}, 1),
        ("exclusive.gpu.nvidia.com", {"allocationMode": "All"}, 1),
    ],
)
def test_a_share_counts_as_one_gpu_and_all_of_them_as_one(fleet, class_name, fields, expected):
    node = "shared" if class_name.startswith("shared") else "plain"
    pod = fleet.pod([request("gpu", class_name, **fields)], node=node).wait_running()
    assert counted(pod.claim()) == {class_name: expected}
    pod.delete()


def test_alternatives_are_not_counted(fleet):
    alternatives = [
        {"name": "whole", "deviceClassName": "gpu.nvidia.com", "count": 9},
        {"name": "part", "deviceClassName": "mig.gpu.nvidia.com"},
    ]
    pod = fleet.pod([{"name": "gpu", "firstAvailable": alternatives}]).wait_running()
    assert counted(pod.claim()) == {}
    pod.delete()


def test_every_class_that_offers_devices_has_one_name_that_counts(fleet):
    names = fleet.classes()
    assert {name for name in names if not is_of_gpus(name)} == {"mig.nvidia.com"}
    alias = names["mig.gpu.nvidia.com"]["spec"]
    assert alias == names["mig.nvidia.com"]["spec"]


def test_the_driver_s_name_marks_its_nodes_as_nodes_with_gpus(fleet):
    assert all(is_of_gpus(one["spec"]["driver"]) for one in fleet.slices())
