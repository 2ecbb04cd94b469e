"""Pods get nodes and devices, over real HTTP. The claim controller runs where templates need it."""

import threading
import time
import uuid

import pytest
from control_plane import DRIVER, ControlPlane, alternative, gpu, request
from polling import until

from dra_driver.adapters import kube
from dra_driver.logic import emulation
from dra_driver.sim import claim_status, cluster_state
from dra_driver.sim.api import options as api_options

MODEL = f'device.attributes["{DRIVER}"].model'


def _pool(name):
    return {"name": name, "generation": 1, "resourceSliceCount": 1}


@pytest.fixture
def plane(tmp_path):
    running = ControlPlane(tmp_path)
    running.add_class(f'device.driver == "{DRIVER}"')
    yield running
    running.close()


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


class TestNoNodeFits:
    def test_the_pod_is_told_why_by_condition_and_event(self, plane):
        plane.add_node("node-a")
        plane.add_node("node-b", unschedulable=True)
        plane.add_slice("node-a", gpu("gpu-0", "t4"), gpu("gpu-1", "t4"))
        plane.add_claim("mine", request("gpu", f'{MODEL} == "h100"'))
        plane.add_pod("pod", claims={"gpu": "mine"})
        plane.start_scheduler()
        message = plane.refusal_of("pod")
        assert message == (
            "0/2 nodes are available: 1 node(s) were unschedulable; "
            '1 cannot allocate request "gpu" of claim mine: 2 devices: '
            f'2 not matched by selector "{MODEL} == "h100"".'
        )
        (event,) = until(lambda: plane.events_of("pod", "FailedScheduling"))
        assert (event["type"], event["message"]) == ("Warning", message)
        assert plane.devices_of("mine") == []

    @pytest.mark.parametrize(
        ("node", "pod", "reason"),
        [
            ({"unschedulable": True}, {}, "1 node(s) were unschedulable"),
            ({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, {},
             "1 node(s) had untolerated taint {k: v}"),
            ({}, {"nodeSelector": {"zone": "z9"}},
             "1 node(s) didn't match Pod's node affinity/selector"),
        ],
    )  # fmt: skip
    def test_a_node_that_does_not_take_the_pod_is_told(self, plane, node, pod, reason):
        plane.add_node("node-a", **node)
        plane.add_pod("pod", **pod)
        plane.start_scheduler()
        text = f"0/1 nodes are available: {reason}."
        assert plane.refusal_of("pod", text) == text

    def test_an_expression_that_fails_stops_the_pod_on_all_nodes(self, plane):
        plane.add_node("node-a")
        plane.add_node("node-b")
        plane.add_slice("node-a", "gpu-0")
        plane.add_slice("node-b", gpu("gpu-0", "h100"))
        plane.add_claim("mine", request("gpu", f'{MODEL} == "h100"'))
        plane.add_pod("pod", claims={"gpu": "mine"})
        plane.start_scheduler()
        plane.refusal_of("pod", "no such key: model")

    def test_a_class_that_is_missing_is_named(self, plane):
        plane.add_node("node-a")
        plane.add_claim("mine", request("gpu", device_class="nope"))
        plane.add_pod("pod", claims={"gpu": "mine"})
        plane.start_scheduler()
        plane.refusal_of("pod", "device class nope does not exist")

    def test_a_claim_that_is_missing_is_named(self, plane):
        plane.add_node("node-a")
        plane.add_pod("pod", claims={"gpu": "nope"})
        plane.start_scheduler()
        text = 'resourceclaim "nope" not found'
        assert plane.refusal_of("pod", text) == text

    def test_a_template_that_is_missing_is_named(self, plane):
        plane.add_node("node-a")
        plane.add_pod("pod", templates={"gpu": "one"})
        plane.start_scheduler()
        text = 'resourceclaimtemplate "one" not found'
        assert plane.refusal_of("pod", text) == text

    def test_a_claim_that_is_about_to_be_made_is_waited_for_in_silence(self, plane):
        plane.add_node("node-a")
        plane.add_template("one")
        plane.add_pod("pod", templates={"gpu": "one"})
        plane.start_scheduler()
        plane.add_pod("other")
        plane.node_of("other")
        assert "conditions" not in plane.pod("pod")["status"]
        assert plane.events_of("pod", "FailedScheduling") == []

    def test_the_same_is_not_told_twice(self, plane):
        plane.add_node("node-a")
        plane.add_pod("pod", nodeSelector={"zone": "z"})
        plane.start_scheduler()
        plane.refusal_of("pod")
        before = plane.pod("pod")["metadata"]["resourceVersion"]
        plane.add_class(name="another")
        # Comes after the pod, which the new class has put into the queue again.
        plane.add_pod("later", nodeSelector={"zone": "z"})
        plane.refusal_of("later")
        assert plane.pod("pod")["metadata"]["resourceVersion"] == before
        assert [event["count"] for event in plane.events_of("pod", "FailedScheduling")] == [1]

    def test_a_claim_that_was_made_for_another_pod_is_refused(self, plane):
        plane.add_node("node-a")
        plane.add_claim("other")
        plane.add_pod("pod", templates={"gpu": "one"})
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "other"}]}
        plane.client.patch(kube.PODS, "pod", {"status": status}, "default", subresource="status")
        plane.start_scheduler()
        assert 'was not created for pod "default/pod"' in plane.refusal_of("pod", "created")

    def test_an_extended_resource_is_refused_by_name(self, plane):
        plane.add_node("node-a")
        limits = {"limits": {"nvidia.com/gpu": 1, "cpu": 1}}
        plane.add_pod("pod", containers=[{"name": "c", "image": "i", "resources": limits}])
        plane.start_scheduler()
        message = plane.refusal_of("pod")
        assert message.startswith("containers ask for nvidia.com/gpu: extended resources are not")

    def test_a_claim_that_256_pods_use_takes_no_more(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        claim = plane.add_claim("ours")
        users = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(256)]
        result = {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-0"}
        claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
        plane.client.replace_status(kube.CLAIMS, claim, "default")
        plane.add_pod("pod", claims={"gpu": "ours"})
        plane.start_scheduler()
        plane.refusal_of("pod", "in use by 256 pods")

    def test_a_claim_that_is_being_deleted_is_refused(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        claim = plane.add_claim("mine")
        claim["metadata"]["finalizers"] = ["example.com/held"]
        plane.client.replace(kube.CLAIMS, claim, "default")
        plane.client.delete(kube.CLAIMS, "mine", "default")
        plane.add_pod("pod", claims={"gpu": "mine"})
        plane.start_scheduler()
        text = 'resourceclaim "mine" is being deleted'
        assert plane.refusal_of("pod", text) == text

    def test_pods_of_other_schedulers_are_left_alone(self, plane):
        plane.add_node("node-a")
        plane.add_pod("theirs", schedulerName="other")
        plane.add_pod("gated", schedulingGates=[{"name": "g"}])
        plane.start_scheduler()
        plane.add_pod("ours")
        plane.node_of("ours")
        for name in ("theirs", "gated"):
            assert "nodeName" not in plane.pod(name)["spec"]
            assert "conditions" not in plane.pod(name)["status"]


class TestTriedAgain:
    @pytest.fixture
    def waiting(self, plane):
        """A pod that does not fit for want of an h100."""
        plane.add_node("node-a")
        plane.add_slice("node-a", gpu("gpu-0", "t4"))
        plane.add_claim("mine", request("gpu", f'{MODEL} == "h100"'))
        plane.add_pod("pod", claims={"gpu": "mine"})
        plane.start_scheduler()
        plane.refusal_of("pod")
        return plane

    def test_when_a_node_brings_devices(self, waiting):
        waiting.add_node("node-b")
        waiting.add_slice("node-b", gpu("gpu-0", "h100"))
        assert waiting.node_of("pod") == "node-b"

    def test_when_a_slice_changes(self, waiting):
        body = waiting.client.get(kube.SLICES, "slice-node-a")
        body["spec"]["devices"] = [gpu("gpu-0", "h100")]
        waiting.client.replace(kube.SLICES, body)
        assert waiting.node_of("pod") == "node-a"

    def test_when_the_class_is_made(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        plane.add_claim("mine", request("gpu", device_class="late"))
        plane.add_pod("pod", claims={"gpu": "mine"})
        plane.start_scheduler()
        plane.refusal_of("pod", "late")
        plane.add_class(name="late")
        assert plane.node_of("pod") == "node-a"

    def test_when_the_claim_is_made(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        plane.add_pod("pod", claims={"gpu": "late"})
        plane.start_scheduler()
        plane.refusal_of("pod", "not found")
        plane.add_claim("late")
        assert plane.node_of("pod") == "node-a"

    def test_when_a_node_is_uncordoned(self, plane):
        plane.add_node("node-a", unschedulable=True)
        plane.add_pod("pod")
        plane.start_scheduler()
        plane.refusal_of("pod", "unschedulable")
        plane.client.patch(kube.NODES, "node-a", {"spec": {"unschedulable": None}})
        assert plane.node_of("pod") == "node-a"

    def test_when_a_pod_gives_its_device_back(self, plane):
        plane.start_controller().start_scheduler()
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        plane.add_template("one")
        plane.add_pod("first", templates={"gpu": "one"})
        plane.node_of("first")
        plane.add_pod("second", templates={"gpu": "one"})
        assert "1 device: 1 in use" in plane.refusal_of("second", "in use")
        plane.finish("first")
        assert plane.node_of("second") == "node-a"

    def test_when_a_claim_goes_with_its_devices(self, plane):
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        for number in range(2):
            plane.add_claim(f"claim-{number}")
        plane.add_pod("first", claims={"gpu": "claim-0"})
        plane.start_scheduler()
        plane.node_of("first")
        plane.add_pod("second", claims={"gpu": "claim-1"})
        plane.refusal_of("second", "in use")
        # Somebody forces it.
        plane.client.patch(kube.CLAIMS, "claim-0", {"metadata": {"finalizers": None}}, "default")
        plane.client.delete(kube.CLAIMS, "claim-0", "default")
        assert plane.node_of("second") == "node-a"

    def test_the_condition_follows_the_reason_and_keeps_its_time(self, waiting):
        before = waiting.pod("pod")["status"]["conditions"]
        waiting.add_node("node-b", unschedulable=True)
        waiting.refusal_of("pod", "0/2 nodes are available: 1 node(s) were unschedulable")
        (after,) = waiting.pod("pod")["status"]["conditions"]
        assert after["lastTransitionTime"] == before[0]["lastTransitionTime"]


def test_devices_that_tie_a_pod_to_a_node_that_is_closed_are_given_back(plane):
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0")
    plane.add_claim("mine")
    plane.add_pod("gone", claims={"gpu": "mine"})
    plane.start_scheduler()
    plane.node_of("gone")
    # The reservation ends, the allocation stays: as after a crash between two writes.
    claim = plane.claim("mine")
    del claim["status"]["reservedFor"]
    plane.client.replace_status(kube.CLAIMS, claim, "default")
    plane.client.patch(kube.NODES, "node-a", {"spec": {"unschedulable": True}})
    # A pod that fits nowhere tells when the scheduler knows that the node is closed.
    plane.add_pod("witness", nodeSelector={"kubernetes.io/hostname": "nowhere"})
    plane.refusal_of("witness", "1 node(s) were unschedulable")
    plane.add_node("node-b")
    plane.add_slice("node-b", "gpu-7")
    plane.add_pod("pod", claims={"gpu": "mine"})
    assert plane.node_of("pod") == "node-b"
    assert plane.devices_of("mine") == ["node-b/gpu-7"]


def test_devices_that_another_pod_uses_are_not_taken_from_it(plane):
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0")
    plane.add_claim("ours")
    plane.add_pod("first", claims={"gpu": "ours"})
    plane.start_scheduler()
    plane.node_of("first")
    plane.add_node("node-b")
    plane.add_slice("node-b", "gpu-7")
    plane.add_pod(
        "second", claims={"gpu": "ours"}, nodeSelector={"kubernetes.io/hostname": "node-b"}
    )
    # Not the first refusal: the scheduler may learn of the pod before it learns of its node.
    plane.refusal_of("second", "1 node(s) cannot use the devices that the pod's claims have")
    assert plane.devices_of("ours") == ["node-a/gpu-0"]


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
