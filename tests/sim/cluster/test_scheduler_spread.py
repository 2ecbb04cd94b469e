"""Nodes with the fewest pods come first: whom the scheduler counts for a node, and until when."""

import threading
import time

import pytest
from control_plane import ControlPlane

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.cluster import cluster_state


def test_pods_spread_over_equal_nodes(plane):
    for node in ("node-a", "node-b"):
        plane.add_node(node)
        plane.add_slice(node, "gpu-0", "gpu-1")
    for number in range(4):
        plane.add_claim(f"claim-{number}")
        plane.add_pod(f"pod-{number}", claims={"gpu": f"claim-{number}"})
    plane.start_scheduler()
    assert [plane.node_of(f"pod-{n}") for n in range(4)] == ["node-a", "node-b"] * 2


def test_pods_that_were_bound_count_although_the_watch_is_slow(plane, monkeypatch):
    on_pod = cluster_state.ClusterState.on_pod

    def slow(self, kind, body):
        time.sleep(0.1)
        on_pod(self, kind, body)

    monkeypatch.setattr(cluster_state.ClusterState, "on_pod", slow)
    for node in ("node-a", "node-b"):
        plane.add_node(node)
    for number in range(4):
        plane.add_pod(f"pod-{number}")
    plane.start_scheduler()
    assert [plane.node_of(f"pod-{n}") for n in range(4)] == ["node-a", "node-b"] * 2


def test_pods_that_are_done_do_not_count_for_their_node(plane):
    for node in ("node-a", "node-b"):
        plane.add_node(node)
    plane.start_scheduler()
    for name in ("first", "second", "third"):
        plane.add_pod(name)
        assert plane.node_of(name) == "node-a"
        plane.finish(name)


def test_a_pod_that_is_done_before_its_binding_is_answered_does_not_count(plane, monkeypatch):
    bind = plane.clients[1].create_subresource
    seen = threading.Event()
    on_pod = cluster_state.ClusterState.on_pod

    def watched(self, kind, body):
        on_pod(self, kind, body)
        if body.get("status", {}).get("phase") == "Succeeded":
            seen.set()

    def late(*args):
        answer = bind(*args)
        if args[1] == "first":
            plane.finish("first")
            assert seen.wait(60)
        return answer

    monkeypatch.setattr(cluster_state.ClusterState, "on_pod", watched)
    monkeypatch.setattr(plane.clients[1], "create_subresource", late)
    for node in ("node-a", "node-b"):
        plane.add_node(node)
    plane.add_pod("first")
    plane.start_scheduler()
    assert plane.node_of("first") == "node-a"
    plane.add_pod("second")
    assert plane.node_of("second") == "node-a"


def test_a_pod_that_ends_while_its_binding_fails_does_not_count(plane, monkeypatch):
    """It was bound, which the answer did not tell."""
    bind = plane.clients[1].create_subresource
    bound, ended = threading.Event(), threading.Event()
    on_pod = cluster_state.ClusterState.on_pod

    def unanswered(*args):
        answer = bind(*args)
        if args[1] == "first":
            assert bound.wait(60)
            raise kube.Unavailable("POST", 0, "no answer", "")
        return answer

    def watched(self, kind, body):
        if threading.current_thread().name == "scheduler" and not ended.is_set():
            plane.finish("first")
            assert ended.wait(60)
        on_pod(self, kind, body)
        if body["spec"].get("nodeName"):
            bound.set()
        if body.get("status", {}).get("phase") == "Succeeded":
            ended.set()

    monkeypatch.setattr(cluster_state.ClusterState, "on_pod", watched)
    monkeypatch.setattr(plane.clients[1], "create_subresource", unanswered)
    for node in ("node-a", "node-b"):
        plane.add_node(node)
    plane.add_pod("first")
    plane.start_scheduler()
    assert plane.node_of("first") == "node-a"
    plane.add_pod("second")
    assert plane.node_of("second") == "node-a"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(api_options.Fault(status=500), id="refused"),
        pytest.param(api_options.Fault(drop="before"), id="never arrived"),
        pytest.param(api_options.Fault(drop="after"), id="not answered"),
    ],
)
def test_a_pod_whose_binding_failed_counts_once(tmp_path, fault):
    left = [fault]

    def fail_once(call):
        binds = call.user_agent == "scheduler" and call.subresource == "binding"
        return left.pop() if left and binds else None

    plane = ControlPlane(tmp_path, fault=fail_once)
    try:
        for node in ("node-a", "node-b"):
            plane.add_node(node)
        plane.add_pod("first")
        plane.start_scheduler()
        found = [plane.node_of("first")]
        plane.add_pod("second")
        found.append(plane.node_of("second"))
        assert found == ["node-a", "node-b"]
        assert left == []
    finally:
        plane.close()
