"""What is written counts, and is not written again, while the watch does not show it yet."""

import threading

import pytest
from control_plane import DRIVER, ControlPlane
from polling import until

from dra_driver.adapters.kube import informer, kube
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.cluster import claim_controller, cluster_state

LAG = 0.4
"""Seconds; more than the first pause after a failure."""


@pytest.fixture
def new_plane(tmp_path):
    made = []

    def new_plane(**options):
        made.append(ControlPlane(tmp_path, **options))
        return made[-1]

    yield new_plane
    for plane in made:
        plane.close()


def delay(monkeypatch, owner, name):
    """Let a method of a class begin later."""
    method = getattr(owner, name)
    never = threading.Event()

    def late(*args):
        never.wait(LAG)
        return method(*args)

    monkeypatch.setattr(owner, name, late)


def test_one_claim_is_made_although_the_pod_could_not_be_told_of_it_at_first(
    new_plane, monkeypatch
):
    left = [api_options.Fault(status=409, reason="Conflict")]

    def fault(call):
        tells = call.user_agent == "claim-controller" and (call.verb, call.resource) == (
            "patch",
            "pods",
        )
        return left.pop() if left and tells else None

    delay(monkeypatch, claim_controller.ClaimController, "_on_claim")
    plane = new_plane(fault=fault)
    plane.add_class()
    plane.add_template("one")
    plane.add_pod("pod", templates={"gpu": "one"})
    plane.start_controller()
    name = plane.claim_of("pod")
    assert left == []
    assert set(plane.claims()) == {name}


def test_a_second_reason_is_told_although_the_watch_does_not_show_the_first(new_plane, monkeypatch):
    apply = informer.Informer._apply
    never = threading.Event()

    def late(self, kind, item):
        if self._resource == kube.PODS:
            never.wait(LAG)
        apply(self, kind, item)

    monkeypatch.setattr(informer.Informer, "_apply", late)
    writes = []

    def log(call):
        if call.user_agent == "scheduler" and (call.verb, call.resource) == ("patch", "pods"):
            writes.append(call)

    plane = new_plane(request_log=log)
    plane.add_class(f'device.driver == "{DRIVER}"')
    plane.add_node("node-a", unschedulable=True)
    plane.add_pod("pod")
    plane.start_scheduler()
    plane.refusal_of("pod", "0/1 nodes are available: 1 node(s) were unschedulable")
    plane.add_node("node-b", unschedulable=True)
    plane.refusal_of("pod", "0/2 nodes are available: 2 node(s) were unschedulable")
    until(lambda: len(plane.events_of("pod", "FailedScheduling")) == 2, what="both are told")
    # None of them was refused because the pod was not as the scheduler knew it.
    assert len(writes) == 2


def test_what_the_scheduler_was_waited_for_to_know_counts_for_a_pod(new_plane, monkeypatch):
    for name in ("on_node", "on_slice"):
        delay(monkeypatch, cluster_state.ClusterState, name)
    plane = new_plane()
    plane.add_class(f'device.driver == "{DRIVER}"')
    plane.start_scheduler()
    [scheduler] = plane._parts
    node = plane.add_node("node-a")
    devices = plane.add_slice("node-a", "gpu-0")
    scheduler.wait_known([node], [devices])
    plane.add_claim("mine")
    plane.add_pod("pod", claims={"gpu": "mine"})
    assert plane.node_of("pod") == "node-a"
    assert plane.events_of("pod", "FailedScheduling") == []


def test_devices_of_a_claim_that_the_scheduler_made_are_not_given_again(new_plane, monkeypatch):
    apply = informer.Informer._apply
    never = threading.Event()

    def late(self, kind, item):
        if self._resource == kube.CLAIMS:
            never.wait(LAG)
        apply(self, kind, item)

    monkeypatch.setattr(informer.Informer, "_apply", late)
    plane = new_plane()
    plane.add_class(f'device.driver == "{DRIVER}"', extendedResourceName="example.com/gpu")
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0", "gpu-1")
    limits = {"limits": {"example.com/gpu": 1}}
    for name in ("a", "b"):
        plane.add_pod(name, containers=[{"name": "main", "image": "none", "resources": limits}])
    plane.start_scheduler()
    for name in ("a", "b"):
        plane.node_of(name)
    given = [device for claim in plane.claims() for device in plane.devices_of(claim)]
    assert sorted(given) == ["node-a/gpu-0", "node-a/gpu-1"]


def test_the_claim_of_a_pod_that_was_bound_without_an_answer_is_kept(new_plane, monkeypatch):
    apply, deleted, left = informer.Informer._apply, [], [api_options.Fault(drop="after")]
    never = threading.Event()

    def late(self, kind, item):
        if self._resource == kube.PODS:
            never.wait(LAG)
        apply(self, kind, item)

    def rule(call):
        if call.verb == "delete" and call.resource == "resourceclaims":
            deleted.append(call)
        return left.pop() if call.subresource == "binding" and left else None

    monkeypatch.setattr(informer.Informer, "_apply", late)
    plane = new_plane(fault=rule)
    plane.add_class(f'device.driver == "{DRIVER}"', extendedResourceName="example.com/gpu")
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0")
    plane.start_scheduler()
    limits = {"limits": {"example.com/gpu": 1}}
    for name in ("a", "b"):
        plane.add_pod(name, containers=[{"name": "main", "image": "none", "resources": limits}])
    plane.node_of("a")
    plane.refusal_of("b")
    [scheduler] = plane._parts
    until(
        lambda: scheduler._pods.get("a", "default")["spec"].get("nodeName"),
        what="the watch to show it",
    )
    assert (len(plane.claims()), deleted) == (1, [])
