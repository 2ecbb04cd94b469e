"""Pods that fit no node: what they are told, and when they are tried again."""

import pytest
from control_plane import DRIVER, gpu, request
from polling import until

from dra_driver.adapters.kube import kube

MODEL = f'device.attributes["{DRIVER}"].model'


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
