"""How pods end on a node: by themselves, deleted, and with the kubelet."""

import kubelet_node
import pytest
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_grpc

# Pods that end by themselves


@pytest.mark.parametrize(
    ("statuses", "phase"), [((0, 0), "Succeeded"), ((0, 3), "Failed"), ((1, 0), "Failed")]
)
def test_a_pod_whose_containers_have_ended_is_done_and_its_claims_are_unprepared(
    node, plugin, agent, statuses, phase
):
    node.add_claim("one")
    containers = [kubelet_node.container(name, {"name": "gpu"}) for name in ("a", "b")]
    pod = node.run_pod("train", {"gpu": "one"}, *containers)
    node.wait_phase("train", "Running")
    first, second = node.engine.started
    first.end(statuses[0])
    assert plugin.names("unprepare") == []
    assert node.phase("train") == "Running"
    second.end(statuses[1])
    body = node.wait_phase("train", phase)
    assert plugin.names("unprepare") == [["one"]]
    assert kubelet_node.conditions(body)["Ready"] == "False"
    ends = {name: state["terminated"] for name, state in kubelet_node.states(body).items()}
    assert [end["exitCode"] for end in ends.values()] == list(statuses)
    assert [end["reason"] for end in ends.values()] == [
        "Error" if status else "Completed" for status in statuses
    ]
    assert set(agent.views(kubelet_node.uid(pod))) == {"a", "b"}


def test_a_pod_that_has_ended_goes_when_it_is_deleted(node, agent):
    pod = node.run_pod("train")
    node.wait_phase("train", "Running")
    node.engine.started[0].end(0)
    node.wait_phase("train", "Succeeded")
    node.delete_pod("train")
    node.wait_gone("train")
    until(lambda: agent.views(kubelet_node.uid(pod)) == {}, what="it is forgotten")


def test_a_pod_that_had_ended_before_the_kubelet_started_is_not_started(node):
    node.run_pod("train")
    change = {"status": {"phase": "Failed"}}
    node.client.patch(kube.PODS, "train", change, "default", subresource="status")
    node.start_kubelet()
    node.run_pod("later")
    node.wait_phase("later", "Running")
    assert len(node.engine.started) == 1
    node.delete_pod("train")
    node.wait_gone("train")


# Pods that are deleted


def test_a_deleted_pod_is_unprepared_before_its_object_goes(node, plugin):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"})
    node.wait_phase("train", "Running")
    plugin.on_unprepare = lambda _ref: dra_grpc.Answer(error="in use")
    node.delete_pod("train")
    assert node.wait_event("train", "FailedUnprepareDynamicResources").endswith("in use")
    until(lambda: len(plugin.names("unprepare")) > 2, what="it is tried again and again")
    assert node.engine.started[0].stopped.is_set()
    assert node.pod("train")["metadata"]["deletionTimestamp"]
    assert node.phase("train") == "Running"
    plugin.on_unprepare = lambda _ref: dra_grpc.Answer()
    node.wait_gone("train")


def test_a_pod_that_is_deleted_while_its_prepare_fails_is_unprepared_and_goes(node, plugin):
    node.add_claim("one")
    plugin.on_prepare = lambda _ref: dra_grpc.Answer(error="never")
    node.run_pod("train", {"gpu": "one"})
    node.wait_event("train", "FailedPrepareDynamicResources")
    node.delete_pod("train")
    node.wait_gone("train")
    assert plugin.names("unprepare") == [["one"]]
    assert node.engine.started == []


def test_a_pod_that_is_deleted_during_a_long_prepare_is_unprepared_after_it(node, plugin):
    node.add_claim("one")
    with plugin.holding():
        node.run_pod("train", {"gpu": "one"})
        until(lambda: plugin.calls, what="prepare is under way")
        node.delete_pod("train")
        until(lambda: node.pod("train")["metadata"].get("deletionTimestamp"), what="deletion")
        assert plugin.names("unprepare") == []
    node.wait_gone("train")
    assert [method for method, _ in plugin.calls] == ["prepare", "unprepare"]


def test_a_pod_that_is_deleted_by_force_is_unprepared_after_it_is_gone(node, plugin, agent):
    node.add_claim("one")
    pod = node.run_pod("train", {"gpu": "one"})
    node.wait_phase("train", "Running")
    node.delete_pod("train", force=True)
    assert node.pod("train") is None
    until(lambda: plugin.names("unprepare") == [["one"]], what="unprepare")
    assert node.engine.started[0].stopped.is_set()
    until(lambda: agent.views(kubelet_node.uid(pod)) == {}, what="it is forgotten")


def test_a_pod_that_comes_again_by_name_gets_its_own_claim(node, plugin):
    """What is in the way is the old claim of that name, until it is unprepared."""
    node.add_claim("one")
    first = node.run_pod("train", {"gpu": "one"})
    node.wait_phase("train", "Running")
    plugin.on_unprepare = lambda _ref: dra_grpc.Answer(error="in use")
    node.delete_pod("train", force=True)
    node.client.patch(kube.CLAIMS, "one", {"metadata": {"finalizers": None}}, "default")
    node.client.delete(kube.CLAIMS, "one", "default")
    node.add_claim("one")
    second = node.run_pod("train", {"gpu": "one"})
    message = node.wait_event("train", "FailedPrepareDynamicResources")
    assert message.startswith("old ResourceClaim with same name as default/one")
    plugin.on_unprepare = lambda _ref: dra_grpc.Answer()
    running = node.wait_phase("train", "Running")
    assert kubelet_node.uid(running) == kubelet_node.uid(second) != kubelet_node.uid(first)


def test_a_claim_that_pods_share_is_unprepared_after_the_last_of_them(node, plugin):
    node.add_claim("one")
    pods = [node.add_pod(name, {"gpu": "one"}) for name in ("first", "second")]
    node.reserve("one", *pods)
    for name in ("first", "second"):
        node.bind(name)
        node.wait_phase(name, "Running")
    node.delete_pod("first")
    node.wait_gone("first")
    assert plugin.names("unprepare") == []
    node.delete_pod("second")
    node.wait_gone("second")
    assert plugin.names("prepare") == [["one"]]
    assert plugin.names("unprepare") == [["one"]]


# The end


def test_a_kubelet_that_stops_ends_containers_and_unprepares_but_leaves_pods(node, plugin, agent):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"})
    node.wait_phase("train", "Running")
    agent.stop()
    assert node.engine.started[0].stopped.is_set()
    assert plugin.names("unprepare") == [["one"]]
    assert node.engine.closed
    assert node.phase("train") == "Running"


def test_a_kubelet_stops_while_a_pod_cannot_start_and_another_cannot_end(node, plugin, agent):
    node.add_claim("one")
    node.add_claim("two")
    node.run_pod("train", {"gpu": "one"})
    node.wait_phase("train", "Running")
    plugin.on_prepare = plugin.on_unprepare = lambda _ref: dra_grpc.Answer(error="no")
    node.run_pod("other", {"gpu": "two"})
    node.wait_event("other", "FailedPrepareDynamicResources")
    node.delete_pod("train")
    node.wait_event("train", "FailedUnprepareDynamicResources")
    agent.stop()
    assert node.engine.started[0].stopped.is_set()
