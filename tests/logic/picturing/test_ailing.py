"""What is wrong with a GPU and its partitions."""

import gpu_slices
import pytest

from dra_driver.logic.picturing import occupancy

XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
EARLY, LATE = "2026-11-28T10:00:00Z", "2026-11-28T11:00:00Z"


def ailments(*devices):
    scene = gpu_slices.snapshot(*gpu_slices.published("a", *devices))
    (gpu,) = occupancy.of(scene).nodes[0].gpus
    return gpu.ailments


def instance(number, *taints):
    body = gpu_slices.instance("a", 0, "1g.10gb", number)
    return body | {"taints": list(taints)}


def test_a_taint_of_all_devices_of_a_gpu_is_one_with_the_earliest_time():
    (one,) = ailments(
        instance(0, XID | {"timeAdded": LATE}), instance(1, XID | {"timeAdded": EARLY})
    )
    assert one.is_whole
    assert one.withdraws
    assert (one.taint, one.effect, one.since) == ("gpu.nvidia.com/xid=79", "NoSchedule", EARLY)
    assert f"{one}" == (
        f"gpu.nvidia.com/xid=79:NoSchedule since {EARLY}: XID 79: the GPU has fallen off the bus; "
        "the node needs a reboot"
    )


def test_a_taint_of_one_partition_names_it():
    (one,) = ailments(instance(0), instance(1, XID))
    assert one.devices == (gpu_slices.name(0, "1g.10gb", 1),)
    assert not one.is_whole


def test_what_withdraws_more_comes_first_and_what_only_informs_last():
    info = {"key": "gpu.nvidia.com/thermal", "value": "slowdown", "effect": "None"}
    other = {"key": "example.com/worn", "effect": "NoExecute"}
    found = ailments(instance(0, info, other), instance(1, XID, info, other), instance(2, info))
    assert [(one.taint, one.withdraws) for one in found] == [
        ("example.com/worn", True),
        ("gpu.nvidia.com/xid=79", True),
        ("gpu.nvidia.com/thermal=slowdown", False),
    ]


def test_a_gpu_that_is_well_has_none():
    assert ailments(instance(0), instance(1)) == ()


@pytest.mark.parametrize("key", ["example.com/worn", "worn"])
def test_a_taint_of_somebody_else_is_shown_by_its_key(key):
    (one,) = ailments(instance(0, {"key": key, "effect": "NoSchedule"}))
    assert f"{one}" == f"{key}:NoSchedule"
