"""The condition of a Node that tells of a reboot that a GPU needs."""

import dataclasses

import pytest

from dra_driver.logic.health import conditions, meaning, node_condition
from dra_driver.model import devices, health

KIND = "GPUNeedsReboot"
GPU, PEER = devices.GpuUuid("GPU-0"), devices.GpuUuid("GPU-1")
PLACES = {(GPU, None): "gpu-0", (PEER, None): "gpu-1"}
NOW = "2026-11-30T10:00:00Z"
OTHER = {"type": "Ready", "status": "True"}


def xid(number, gpu=GPU):
    event = health.Event(health.EventKind.XID, gpu, number)
    return health.Condition(meaning.of_event(event, None, meaning.Policy()), NOW)


def wanted(*listed):
    return node_condition.wanted(KIND, conditions.View(listed), PLACES)


def patch(there, condition, now=NOW, *, beat=False):
    body = {"status": {"conditions": [OTHER, *there]}}
    return node_condition.patch(body, condition, now, beat=beat)


def test_it_is_true_while_a_gpu_needs_a_reboot_and_says_which():
    assert wanted(xid(48, PEER), xid(79)) == {
        "type": KIND,
        "status": "True",
        "reason": "GpuNeedsReboot",
        "message": "gpu-0: XID 79: the GPU has fallen off the bus; the node needs a reboot",
    }


def test_each_gpu_is_named():
    message = wanted(xid(79), xid(79, PEER))["message"]
    assert message.startswith("gpu-0: XID 79: ")
    assert "; gpu-1: XID 79: " in message


@pytest.mark.parametrize("listed", [(), (xid(48),), (xid(31),)])
def test_it_is_false_otherwise(listed):
    assert wanted(*listed) == {
        "type": KIND,
        "status": "False",
        "reason": "NoGpuNeedsReboot",
        "message": "no GPU needs a reboot of the node",
    }


def test_what_was_there_before_the_boot_needs_no_other_one_until_it_is_found_again():
    view = conditions.View((dataclasses.replace(xid(79), before_boot=True),))
    assert node_condition.wanted(KIND, view, PLACES)["status"] == "False"


def test_a_message_has_room_in_a_condition():
    many = [xid(79, devices.GpuUuid(f"GPU-{number:036}")) for number in range(64)]
    assert len(wanted(*many)["message"].encode()) <= 1024


def test_at_first_it_is_since_now():
    times = {"lastHeartbeatTime": NOW, "lastTransitionTime": NOW}
    assert patch([], wanted()) == {"status": {"conditions": [wanted() | times]}}
    assert node_condition.patch({}, wanted(), NOW, beat=False) is not None


def test_nothing_is_written_where_it_is_there():
    there = wanted() | {"lastHeartbeatTime": "then", "lastTransitionTime": "then"}
    assert patch([there], wanted()) is None


def test_a_sign_of_life_keeps_since_when_it_is_so():
    there = wanted() | {"lastHeartbeatTime": "then", "lastTransitionTime": "then"}
    [condition] = patch([there], wanted(), beat=True)["status"]["conditions"]
    assert (condition["lastHeartbeatTime"], condition["lastTransitionTime"]) == (NOW, "then")


def test_another_message_keeps_it_and_another_status_does_not():
    there = wanted(xid(79)) | {"lastHeartbeatTime": "then", "lastTransitionTime": "then"}
    [more] = patch([there], wanted(xid(79), xid(79, PEER)))["status"]["conditions"]
    assert (more["status"], more["lastTransitionTime"]) == ("True", "then")
    [over] = patch([there], wanted())["status"]["conditions"]
    assert (over["status"], over["lastTransitionTime"]) == ("False", NOW)
