"""What is remembered of pods: a real API server, and pods in the states that they go through."""

import dataclasses
import pathlib
import tempfile
import types

import pytest
import served_api
import workload_scene

from dra_driver.adapters.kube import kube
from dra_driver.model import claims, prepared
from dra_driver.sim.cluster import claim_cache
from dra_driver.sim.cluster.workloads import pods
from dra_driver.sim.demo import observing, outcome, shared

PARTITION = {"request": "mig", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0-mig-1"}
DEVICE = {
    "name": "gpu-0-mig-1",
    "attributes": {"productName": {"string": "NVIDIA H100"}, "profile": {"string": "1g.10gb"}},
}
FOUND = outcome.Device("gpu.nvidia.com", "n", "gpu-0-mig-1", "NVIDIA H100", "1g.10gb", None)
SHARE_ID = "a096123c-b673-4486-89e0-59f1042f3d24"
TIME_SLICES = {"GPU-1": "Long"}
ROUND = ["sh", "-c", "nvidia-smi -L; sleep 5"]


class Scene:
    """A cluster without nodes; pods and claims are what a test makes of them."""

    def __init__(self, directory):
        self.api = served_api.ServedApi(directory)
        self.client = self.api.client
        key = PARTITION["driver"], PARTITION["pool"], PARTITION["device"]
        node = types.SimpleNamespace(
            time_slices=lambda: TIME_SLICES,
            kubelet=types.SimpleNamespace(views=lambda _: {}, prepared=lambda _: self.prepared),
        )
        cluster = types.SimpleNamespace(
            client=self.client, nodes={"n": node}, devices=lambda: {key: self.device}
        )
        self.device = DEVICE
        self.prepared = {}
        self.observer = observing.Observer(cluster)

    def add_pod(self, *commands, node=None, policy="Always", **annotations):
        containers = [
            {"name": f"c{number}", "image": "none"} | ({"command": command} if command else {})
            for number, command in enumerate(commands or [None])
        ]
        claims = [{"name": "mig", "resourceClaimName": "mig"}]
        body = {
            "metadata": {"name": "train", "annotations": annotations},
            "spec": {
                "containers": containers,
                "resourceClaims": claims,
                "restartPolicy": policy,
            }
            | ({"nodeName": node} if node else {}),
        }
        return self.client.create(kube.PODS, body, "default")

    def set_status(self, **status):
        self.client.patch(kube.PODS, "train", {"status": status}, "default", subresource="status")

    def set_scheduled(self, value):
        condition = {"type": "PodScheduled", "status": value, "reason": "Unschedulable"}
        self.set_status(conditions=[condition])

    def warn(self, pod, number, reason, message):
        about = {"kind": "Pod", "name": "train", "uid": pod["metadata"]["uid"]}
        event = {"metadata": {"name": f"train.{number}"}, "involvedObject": about}
        event |= {"type": "Warning", "reason": reason, "message": message}
        self.client.create(kube.EVENTS, event, "default")

    def allocate(self, **more):
        request = {"name": "mig", "exactly": {"deviceClassName": "mig.nvidia.com"}}
        claim = {"metadata": {"name": "mig"}, "spec": {"devices": {"requests": [request]}}}
        made = self.client.create(kube.CLAIMS, claim, "default")
        allocation = {"devices": {"results": [PARTITION | more]}}
        self.client.replace_status(
            kube.CLAIMS, made | {"status": {"allocation": allocation}}, "default"
        )

    def look(self):
        [pod] = self.observer.look().pods
        return pod


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory() as directory:
        made = Scene(pathlib.Path(directory))
        yield made
        made.api.close()


def test_a_pod_that_has_waited_is_known_to_have_waited_when_it_runs(scene):
    scene.add_pod()
    assert not scene.look().was_unschedulable
    scene.set_scheduled("False")
    assert (scene.look().phase, scene.look().was_unschedulable) == ("Unschedulable", True)
    scene.set_scheduled("True")
    scene.set_status(phase="Running")
    assert (scene.look().phase, scene.look().was_unschedulable) == ("Running", True)


def test_a_pod_that_waited_between_two_looks_is_known_by_its_event(scene):
    pod = scene.add_pod()
    scene.warn(pod, 1, "Failed", "x")
    assert not scene.look().was_unschedulable
    scene.warn(pod, 2, "FailedScheduling", "y")
    assert scene.look().was_unschedulable


def test_a_pod_that_waited_and_ran_within_one_look_is_not_taken_for_one_that_never_waited(
    scene, monkeypatch
):
    pod, asked, listed = scene.add_pod(), [], scene.client.list

    def list_slowly(resource):
        found = listed(resource)
        asked.append(resource)
        if len({kube.PODS, kube.EVENTS}.intersection(asked)) == 1 and resource != kube.CLAIMS:
            scene.warn(pod, 1, "FailedScheduling", "x")
            scene.set_status(phase="Running")
        return found

    monkeypatch.setattr(scene.client, "list", list_slowly)
    seen = scene.look()
    assert seen.was_unschedulable or seen.phase == "Pending"
    monkeypatch.undo()
    assert (scene.look().phase, scene.look().was_unschedulable) == ("Running", True)


def test_a_pod_that_has_run_is_known_to_have_run_when_it_has_failed(scene):
    scene.add_pod()
    assert not scene.look().has_run
    scene.set_status(phase="Running")
    assert scene.look().has_run
    scene.set_status(phase="Failed")
    assert (scene.look().phase, scene.look().has_run) == ("Failed", True)


def test_a_pod_that_has_ended_is_shown_with_the_devices_that_it_had(scene):
    scene.add_pod()
    scene.allocate()
    assert scene.look().claims == (outcome.Claim("mig", (FOUND,)),)
    scene.set_status(phase="Succeeded")
    scene.client.delete(kube.CLAIMS, "mig", "default")
    assert scene.look().claims == (outcome.Claim("mig", (FOUND,)),)


def test_a_pod_that_ended_before_anybody_looked_is_shown_with_what_its_kubelet_was_told(scene):
    scene.add_pod(node="n")
    ref = claims.ClaimRef("default", "mig", claims.ClaimUid("1"))
    device = prepared.PreparedDevice(
        requests=("mig",), pool="n", device="gpu-0-mig-1", cdi_ids=(), share_id=SHARE_ID
    )
    scene.prepared = {"mig": claim_cache.PreparedClaim(ref, (("gpu.nvidia.com", device),))}
    assert scene.look().claims == (outcome.Claim("mig", ()),)
    scene.set_status(phase="Succeeded")
    share = shared.Share(id=SHARE_ID, consumed={}, shares=None)
    assert scene.look().claims == (
        outcome.Claim("mig", (dataclasses.replace(FOUND, share=share),)),
    )


def test_a_pod_that_lost_its_devices_before_it_ended_is_shown_without(scene):
    scene.add_pod()
    scene.allocate()
    scene.look()
    scene.client.delete(kube.CLAIMS, "mig", "default")
    assert scene.look().claims == (outcome.Claim("mig", ()),)


@pytest.mark.parametrize(
    ("commands", "ends"),
    [([ROUND], True), ([ROUND, ROUND], True), ([ROUND, None], False), ([None], False)],
)
def test_a_pod_ends_by_itself_when_all_of_its_containers_do(scene, commands, ends):
    scene.add_pod(*commands, policy="Never")
    assert scene.look().ends is ends


@pytest.mark.parametrize(
    ("policy", "command", "ends"),
    [
        ("Always", ROUND, False),
        ("OnFailure", ROUND, True),
        ("OnFailure", ["false"], False),
        ("Never", ["false"], True),
    ],
)
def test_a_pod_whose_containers_are_started_again_does_not_end(scene, policy, command, ends):
    scene.add_pod(command, policy=policy)
    assert scene.look().ends is ends


def test_what_is_expected_comes_from_the_annotation(scene):
    scene.add_pod(**{outcome.EXPECT_ANNOTATION: outcome.WAITED})
    assert scene.look().expected == outcome.WAITED


REFUSAL = "NodePrepareResources failed for claim default/mig: sharing.strategy: not allowed"
UNPREPARED = "FailedPrepareDynamicResources"


def test_a_pod_whose_claim_a_driver_does_not_prepare_is_refused_until_it_runs(scene):
    pod = scene.add_pod(node="n")
    assert (scene.look().phase, scene.look().reason) == ("Pending", None)
    scene.warn(pod, 1, UNPREPARED, REFUSAL)
    assert (scene.look().phase, scene.look().reason) == (outcome.REFUSED, REFUSAL)
    scene.set_status(phase="Running")
    assert (scene.look().phase, scene.look().reason) == ("Running", None)


@pytest.mark.parametrize(
    ("reason", "message"),
    [("Failed", REFUSAL), (UNPREPARED, "claim default/mig is not allocated")],
)
def test_a_pod_that_waits_for_something_else_is_not_refused(scene, reason, message):
    pod = scene.add_pod(node="n")
    scene.warn(pod, 1, UNPREPARED, REFUSAL)
    scene.warn(pod, 2, reason, message)
    assert (scene.look().phase, scene.look().reason) == ("Pending", message)


def only_device(scene):
    [claim] = scene.look().claims
    [device] = claim.devices
    return device


def test_a_share_is_what_the_allocation_consumes(scene):
    scene.add_pod()
    scene.device = DEVICE | {"capacity": {"memory": {"value": "80Gi"}}}
    scene.allocate(shareID=SHARE_ID, consumedCapacity={"memory": "10Gi", "cores": "30"})
    assert only_device(scene).share == shared.Share(SHARE_ID, {"memory": "10Gi", "cores": "30"})


def test_a_numbered_share_is_one_of_as_many_as_the_device_has(scene):
    scene.add_pod()
    scene.device = DEVICE | {"capacity": {"shares": {"value": "4"}}}
    scene.allocate(shareID=SHARE_ID, consumedCapacity={"shares": "1"})
    assert only_device(scene).share == shared.Share(SHARE_ID, {"shares": "1"}, 4)


@pytest.mark.parametrize(("uuid", "name"), [("GPU-1", "Long"), ("GPU-2", None)])
def test_a_gpu_has_the_time_slice_that_is_set_on_it(scene, uuid, name):
    scene.add_pod()
    scene.device = {"name": "gpu-0", "attributes": {"uuid": {"string": uuid}}}
    scene.allocate()
    assert only_device(scene).time_slice == name


def test_a_pod_whose_container_fails_each_time_has_failed(scene):
    scene.add_pod(node="n")
    container = {"name": "c0", "restartCount": 1, "state": {"waiting": {"reason": "Crash"}}}
    for code, phase, reason in (
        (3, outcome.FAILED, "container c0 ended with status 3, again and again"),
        (0, outcome.RUNNING, None),
    ):
        last = {"lastState": {"terminated": {"exitCode": code}}}
        scene.set_status(phase="Running", containerStatuses=[container | last])
        seen = scene.look()
        assert (seen.phase, seen.reason) == (phase, reason)


def test_a_failed_pod_of_a_job_that_has_completed_did_no_harm(scene):
    jobs = kube.Resource("batch", "v1", "jobs")
    made = workload_scene.job() | {"metadata": {"name": "work"}}
    body = scene.client.create(jobs, made, "default")
    scene.observer.expect([body])
    scene.add_pod(policy="Never")
    owner = {"metadata": {"ownerReferences": [pods.owned_by(body)]}}
    scene.client.patch(kube.PODS, "train", owner, "default")
    scene.set_status(phase="Failed")
    assert not scene.look().as_expected
    condition = {"type": "Complete", "status": "True"}
    done = {"status": {"conditions": [condition]}}
    scene.client.patch(jobs, "work", done, "default", subresource="status")
    assert scene.look().as_expected


def test_a_workload_is_at_rest_when_its_controller_has_nothing_to_do(scene):
    sets = kube.Resource("apps", "v1", "replicasets")
    body = scene.client.create(sets, workload_scene.workload("ReplicaSet", replicas=1), "default")
    assert scene.observer.look().workloads == ()
    scene.observer.expect([body])
    [seen] = scene.observer.look().workloads
    assert (seen.full_name, seen.at_rest, seen.reason) == ("ReplicaSet default/web", False, None)
    about = {"kind": "ReplicaSet", "name": "web", "uid": body["metadata"]["uid"]}
    event = {"metadata": {"name": "web.1"}, "involvedObject": about, "type": "Warning"}
    event |= {"reason": "FailedCreate", "message": "Error creating: no"}
    scene.client.create(kube.EVENTS, event, "default")
    assert scene.observer.look().workloads[0].reason == "Error creating: no"
    made = pods.made_of(body, body["spec"]["template"], name="train")
    scene.client.create(kube.PODS, made, "default")
    status = {"replicas": 1, "fullyLabeledReplicas": 1, "observedGeneration": 1}
    scene.client.patch(sets, "web", {"status": status}, "default", subresource="status")
    [seen] = scene.observer.look().workloads
    assert (seen.at_rest, seen.reason) == (True, None)


@pytest.mark.parametrize(("kind", "failed"), [("Failed", True), ("Complete", False)])
def test_a_job_that_has_given_up_is_told_although_it_has_no_pods_left(scene, kind, failed):
    jobs = kube.Resource("batch", "v1", "jobs")
    body = scene.client.create(jobs, workload_scene.job(), "default")
    scene.observer.expect([body])
    condition = {"type": kind, "status": "True", "reason": "R", "message": "why"}
    status = {"status": {"conditions": [condition]}}
    scene.client.patch(jobs, "web", status, "default", subresource="status")
    seen = scene.observer.look()
    [job] = seen.workloads
    assert (job.at_rest, job.failed, job.reason) == (True, failed, "why" if failed else None)
    assert seen.failed == ((job,) if failed else ())


@pytest.mark.parametrize(
    ("command", "at_rest"), [(["sleep", "5"], False), (["sleep", "99"], True), (["python"], True)]
)
def test_a_job_whose_pods_will_have_ended_in_a_moment_is_not_at_rest(scene, command, at_rest):
    jobs = kube.Resource("batch", "v1", "jobs")
    body = scene.client.create(jobs, workload_scene.job(), "default")
    scene.observer.expect([body])
    made = pods.made_of(body, body["spec"]["template"], name="train")
    made["spec"]["containers"][0]["command"] = command
    scene.client.create(kube.PODS, made, "default")
    status = {"active": 1, "startTime": "2026-01-01T00:00:00Z", "uncountedTerminatedPods": {}}
    scene.client.patch(jobs, "web", {"status": status}, "default", subresource="status")
    [seen] = scene.observer.look().workloads
    assert seen.at_rest is at_rest
