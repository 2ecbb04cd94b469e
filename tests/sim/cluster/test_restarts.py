"""Containers that have ended are started again, as the pod's restartPolicy says."""

import kubelet_node
import pytest
from polling import until

from dra_driver import errors
from dra_driver.sim.cluster import restarts


@pytest.mark.parametrize(
    ("policy", "status", "due"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
    ],
)
def test_the_policy_decides(policy, status, due):
    assert restarts.is_due(policy, status) is due


def test_the_first_time_is_at_once_and_each_later_one_after_twice_as_long():
    life, pauses = restarts.Life(), []
    for _ in range(8):
        pauses.append(life.pause)
        life.ended({}, 0.0)
        life.started()
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


def container(node, pod):
    [status] = node.pod(pod)["status"]["containerStatuses"]
    return status


def test_a_container_runs_again_with_the_same_devices(node, plugin):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"}, restartPolicy="Always")
    node.wait_phase("train", "Running")
    first = node.engine.started[0]
    first.end(3)
    until(lambda: len(node.engine.started) == 2, what="it is started again")
    until(lambda: container(node, "train")["restartCount"] == 1, what="that is told")
    status = container(node, "train")
    assert "running" in status["state"]
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert node.phase("train") == "Running"
    assert first.stopped.is_set()
    assert node.engine.started[1].asked == first.asked
    assert first.asked.cdi_ids != ()
    assert plugin.names("unprepare") == []


@pytest.mark.usefixtures("agent")
def test_one_that_ends_again_and_again_waits_and_is_not_ready(node):
    node.run_pod("train", restartPolicy="OnFailure")
    node.wait_phase("train", "Running")
    node.engine.started[0].end(1)
    until(lambda: len(node.engine.started) == 2, what="it is started again")
    node.engine.started[1].end(1)
    until(lambda: "waiting" in container(node, "train")["state"], what="it waits")
    status = container(node, "train")
    assert status["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=main",
    }
    assert (status["ready"], status["restartCount"]) == (False, 1)
    assert kubelet_node.conditions(node.pod("train"))["Ready"] == "False"
    assert node.phase("train") == "Running"
    node.delete_pod("train")
    node.wait_gone("train")


def test_one_that_succeeds_is_left_alone_where_only_failures_count(node, plugin):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"}, restartPolicy="OnFailure")
    node.wait_phase("train", "Running")
    node.engine.started[0].end(1)
    until(lambda: len(node.engine.started) == 2, what="it is started again")
    node.engine.started[1].end(0)
    node.wait_phase("train", "Succeeded")
    assert plugin.names("unprepare") == [["one"]]
    assert container(node, "train")["restartCount"] == 1


@pytest.mark.usefixtures("agent")
def test_of_two_containers_only_the_one_that_failed_is_started_again(node):
    both = [kubelet_node.container(name) for name in ("a", "b")]
    node.run_pod("train", {}, *both, restartPolicy="OnFailure")
    node.wait_phase("train", "Running")
    done, failed = node.engine.started
    done.end(0)
    failed.end(1)
    until(lambda: len(node.engine.started) == 3, what="one is started again")
    assert node.engine.started[2].asked.name == "b"
    node.engine.started[2].end(0)
    node.wait_phase("train", "Succeeded")
    assert len(node.engine.started) == 3


@pytest.mark.usefixtures("agent")
def test_a_start_that_fails_is_told_and_tried_again(node):
    node.run_pod("train", restartPolicy="Always")
    node.wait_phase("train", "Running")
    node.engine.refuse["main"] = errors.Rejected("no such device")
    node.engine.started[0].end(1)
    assert node.wait_event("train", "Failed") == "no such device"
    node.engine.refuse.clear()
    until(lambda: len(node.engine.started) == 2, what="it is started again")
