"""Pods get nodes and devices, over real HTTP. The claim controller runs where templates need it."""

import threading
import time
import uuid

import pytest
from control_plane import DRIVER, ControlPlane, alternative, gpu, request
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.logic.scheduling import emulation
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.cluster import claim_status, cluster_state

MODEL = f'device.attributes["{DRIVER}"].model'


def _pool(name):
    return {"name": name, "generation": 1, "resourceSliceCount": 1}


def test_a_pod_with_a_claim_gets_a_device_and_the_node_of_it(plane):
    plane.add_node("node-a")
    plane.add_node("node-b")
    plane.add_slice("node-b", "gpu-0", "gpu-1")
    plane.add_claim("mine")
    pod = plane.add_pod("pod", claims={"gpu": "mine"})
    plane.start_scheduler()
    assert plane.node_of("pod") == "node-b"
    claim = plane.claim("mine")
    assert claim["metadata"]["finalizers"] == [claim_status.FINALIZER]
    assert claim["status"]["reservedFor"] == [
        {"resource": "pods", "name": "pod", "uid": pod["metadata"]["uid"]}
    ]
    assert claim["status"]["allocation"]["devices"]["results"] == [
        {"request": "gpu", "driver": DRIVER, "pool": "node-b", "device": "gpu-0"}
    ]
    until(lambda: plane.events_of("pod", "Scheduled"))


def test_what_was_written_counts_although_the_watch_is_slow(plane, monkeypatch):
    on_claim = cluster_state.ClusterState.on_claim

    def slow(self, kind, body):
        if threading.current_thread().name.startswith("informer"):
            time.sleep(0.2)
        return on_claim(self, kind, body)

    monkeypatch.setattr(cluster_state.ClusterState, "on_claim", slow)
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0", "gpu-1", "gpu-2")
    for number in range(3):
        plane.add_claim(f"claim-{number}")
        plane.add_pod(f"pod-{number}", claims={"gpu": f"claim-{number}"})
    plane.start_scheduler()
    for number in range(3):
        plane.node_of(f"pod-{number}")
        assert plane.devices_of(f"claim-{number}") == [f"node-a/gpu-{number}"]


def test_a_pod_without_claims_gets_a_node(plane):
    plane.add_node("node-a")
    plane.add_pod("pod")
    plane.start_scheduler()
    assert plane.node_of("pod") == "node-a"


def test_pods_in_a_row_never_get_one_device(plane):
    plane.start_controller().start_scheduler()
    plane.add_node("node-a")
    plane.add_slice("node-a", *[f"gpu-{n}" for n in range(8)])
    plane.add_template("one")
    for number in range(12):
        plane.add_pod(f"pod-{number:02}", templates={"gpu": "one"})

    def placed():
        items, _ = plane.client.list(kube.PODS, "default")
        return sum("nodeName" in item["spec"] for item in items) == 8

    until(placed, what="8 pods with a node")
    given = [name for claim in plane.claims() for name in plane.devices_of(claim)]
    assert sorted(given) == [f"node-a/gpu-{n}" for n in range(8)]


def test_several_claims_of_a_pod_are_met_on_one_node(plane):
    plane.add_node("node-a")
    plane.add_node("node-b")
    plane.add_slice("node-a", "gpu-0")
    plane.add_slice("node-b", "gpu-0", "gpu-1")
    plane.add_claim("one")
    plane.add_claim("two")
    plane.add_pod("pod", claims={"x": "one", "y": "two"})
    plane.start_scheduler()
    assert plane.node_of("pod") == "node-b"
    assert (plane.devices_of("one"), plane.devices_of("two")) == (
        ["node-b/gpu-0"],
        ["node-b/gpu-1"],
    )


def test_a_claim_that_is_allocated_is_shared_on_its_node(plane):
    plane.add_node("node-a")
    plane.add_node("node-b")
    plane.add_slice("node-b", "gpu-0")
    plane.add_claim("ours")
    plane.add_pod("first", claims={"gpu": "ours"})
    plane.start_scheduler()
    plane.node_of("first")
    plane.add_pod("second", claims={"gpu": "ours"})
    assert plane.node_of("second") == "node-b"
    assert plane.users_of("ours") == ["first", "second"]


def test_first_available_picks_the_node_that_has_the_preferred_device(plane):
    plane.add_node("node-a")
    plane.add_node("node-b")
    plane.add_slice("node-a", gpu("gpu-0", "t4"))
    plane.add_slice("node-b", gpu("gpu-0", "h100"))
    wanted = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "best", **alternative(f'{MODEL} == "h100"')},
            {"name": "good", **alternative(f'{MODEL} == "t4"')},
        ],
    }
    plane.add_claim("one", wanted)
    plane.add_claim("two", wanted)
    plane.add_pod("first", claims={"gpu": "one"})
    plane.start_scheduler()
    assert plane.node_of("first") == "node-b"
    plane.add_pod("second", claims={"gpu": "two"})
    assert plane.node_of("second") == "node-a"
    (result,) = plane.claim("two")["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "gpu/good"


class TestTrouble:
    @pytest.mark.parametrize(
        ("resource", "subresource", "status"),
        [
            ("resourceclaims", "", 409),
            ("resourceclaims", "status", 409),
            ("resourceclaims", "status", 503),
            ("pods", "binding", 500),
        ],
    )
    def test_a_write_that_is_refused_is_made_again(self, tmp_path, resource, subresource, status):
        left = [api_options.Fault(status=status, reason="Conflict" if status == 409 else "Broken")]

        def fault(call):
            of_scheduler = call.user_agent == "scheduler" and call.resource == resource
            writes = call.verb in ("create", "update") and call.subresource == subresource
            return left.pop() if left and of_scheduler and writes else None

        plane = ControlPlane(tmp_path, fault=fault)
        try:
            plane.add_class()
            plane.add_node("node-a")
            plane.add_slice("node-a", "gpu-0", "gpu-1")
            plane.add_claim("mine")
            plane.add_pod("pod", claims={"gpu": "mine"})
            plane.start_scheduler()
            assert plane.node_of("pod") == "node-a"
            assert left == []
            assert plane.devices_of("mine") == ["node-a/gpu-0"]
        finally:
            plane.close()

    def test_a_slice_that_cannot_be_read_does_not_stop_the_others(self, tmp_path):
        plane = ControlPlane(tmp_path, enabled_gates=frozenset({"DRAListTypeAttributes"}))
        try:
            plane.add_class()
            plane.add_node("node-a")
            listed = {"name": "gpu-0", "attributes": {"x": {"strings": ["y"]}}}
            plane.add_slice("node-a", listed, name="unreadable", pool=_pool("p"))
            plane.add_slice("node-a", "gpu-1", name="readable")
            plane.add_claim("mine")
            plane.add_pod("pod", claims={"gpu": "mine"})
            plane.start_scheduler()
            assert plane.node_of("pod") == "node-a"
            assert plane.devices_of("mine") == ["node-a/gpu-1"]
        finally:
            plane.close()

    def test_a_scheduler_that_starts_again_knows_what_is_in_use(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        plane.add_claim("one")
        plane.add_claim("two")
        plane.add_pod("first", claims={"gpu": "one"})
        plane.start_scheduler()
        plane.node_of("first")
        plane.stop_parts()
        plane.add_pod("second", claims={"gpu": "two"})
        plane.start_scheduler()
        plane.refusal_of("second", "1 in use")


SHARED = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {
                "default": "8Gi",
                "validRange": {"min": "8Gi", "max": "80Gi", "step": "8Gi"},
            },
        }
    },
}


class TestShares:
    @staticmethod
    def result(plane, claim):
        (found,) = plane.claim(claim)["status"]["allocation"]["devices"]["results"]
        return found

    def test_claims_get_shares_of_a_device_until_it_is_full(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", SHARED)
        for number, wanted in enumerate(("39Gi", "33Gi", "1Gi")):
            capacity = {"requests": {"memory": wanted}}
            plane.add_claim(f"claim-{number}", request(capacity=capacity))
            plane.add_pod(f"pod-{number}", claims={"gpu": f"claim-{number}"})
        plane.start_scheduler()
        plane.node_of("pod-0")
        plane.node_of("pod-1")
        first, second = (self.result(plane, f"claim-{number}") for number in range(2))
        assert first["consumedCapacity"] == {"memory": "40Gi"}
        assert second["consumedCapacity"] == {"memory": "40Gi"}
        assert uuid.UUID(first["shareID"]).version == 4
        assert first["shareID"] == first["shareID"].lower() != second["shareID"]
        plane.refusal_of("pod-2", "1 too full (memory 0 left < 8Gi)")

    def test_what_a_share_took_can_be_had_again(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", SHARED)
        plane.start_controller().start_scheduler()
        everything = {"requests": {"memory": "80Gi"}}
        for name in ("first", "second"):
            plane.add_claim(name, request(capacity=everything))
            plane.add_pod(name, claims={"gpu": name})
        until(lambda: "nodeName" in plane.pod("first")["spec"])
        plane.refusal_of("second", "too full")
        plane.finish("first")
        assert plane.node_of("second") == "node-a"


class TestBindingConditions:
    @pytest.fixture
    def attached(self, plane):
        """A pod that waits for the one device there is."""
        plane.start_scheduler()
        plane.add_node("node-a")
        plane.add_slice(
            "node-a",
            {"name": "gpu-0", "bindingConditions": ["attached"],
             "bindingFailureConditions": ["broken"]},
        )  # fmt: skip
        plane.add_claim("mine")
        plane.add_pod("pod", claims={"gpu": "mine"})
        device = f"{DRIVER}/node-a/gpu-0"
        text = f"waiting for condition attached of device {device}"
        assert plane.refusal_of("pod", text) == text
        assert plane.devices_of("mine") == ["node-a/gpu-0"]
        return plane

    @staticmethod
    def report(plane, condition):
        now = "2026-01-01T00:00:00Z"
        entry = {"type": condition, "status": "True", "reason": "R", "lastTransitionTime": now}
        device = {"driver": DRIVER, "pool": "node-a", "device": "gpu-0", "conditions": [entry]}
        change = {"status": {"devices": [device]}}
        plane.client.patch(kube.CLAIMS, "mine", change, "default", subresource="status")

    def test_a_pod_is_bound_once_its_device_is_ready(self, attached):
        self.report(attached, "other")
        assert "nodeName" not in attached.pod("pod")["spec"]
        self.report(attached, "attached")
        assert attached.node_of("pod") == "node-a"

    def test_a_device_that_fails_is_given_back_and_tried_again(self, attached):
        before = attached.claim("mine")["status"]["allocation"]
        self.report(attached, "broken")
        attached.refusal_of("pod", "waiting for")
        until(lambda: "devices" not in attached.claim("mine").get("status", {}))
        until(lambda: attached.devices_of("mine"))
        assert before["devices"] == attached.claim("mine")["status"]["allocation"]["devices"]
        assert any(
            "failed to become ready: condition broken" in event["message"]
            for event in attached.events_of("pod", "FailedScheduling")
        )


@pytest.mark.parametrize(
    ("release", "devices"),
    [(None, ["gpu-0", "gpu-1", "gpu-3"]), ("1.36.2", ["gpu-0", "gpu-1", "gpu-2"])],
)
def test_the_defects_of_a_release_are_reproduced_if_asked_for(plane, release, devices):
    plane.add_node("node-a")
    numbered = [
        {"name": f"gpu-{n}", "attributes": {"x": {"int": x}}} for n, x in enumerate((0, 1, 0, 2))
    ]
    plane.add_slice("node-a", *numbered)
    bound = [{"distinctAttribute": f"{DRIVER}/x"}]
    plane.add_claim("mine", request(count=3), constraints=bound)
    plane.add_pod("pod", claims={"gpu": "mine"})
    plane.start_scheduler(behaviour=emulation.of_release(release))
    plane.node_of("pod")
    assert plane.devices_of("mine") == [f"node-a/{name}" for name in devices]


def test_of_the_pods_that_wait_that_of_the_highest_priority_gets_the_device(plane):
    classes = kube.Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
    for name, value in (("low", 1), ("high", 1000)):
        plane.create(classes, name, value=value)
    for name in ("first", "urgent", "third"):
        plane.add_claim(f"claim-{name}")
        level = "high" if name == "urgent" else "low"
        plane.add_pod(name, claims={"gpu": f"claim-{name}"}, priorityClassName=level)
    plane.start_scheduler()
    plane.refusal_of("urgent")
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0")
    assert plane.node_of("urgent") == "node-a"
    plane.refusal_of("first", containing="in use")
    plane.refusal_of("third", containing="in use")
