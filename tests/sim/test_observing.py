"""What is remembered of pods: a real API server, and pods in the states that they go through."""

import pathlib
import tempfile
import types

import pytest
import served_api

from dra_driver.adapters import kube
from dra_driver.sim import observing, outcome

PARTITION = {"request": "mig", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0-mig-1"}
DEVICE = {
    "name": "gpu-0-mig-1",
    "attributes": {"productName": {"string": "NVIDIA H100"}, "profile": {"string": "1g.10gb"}},
}
FOUND = outcome.Device("gpu.nvidia.com", "n", "gpu-0-mig-1", "NVIDIA H100", "1g.10gb", None)
ROUND = ["sh", "-c", "nvidia-smi -L; sleep 5"]


class Scene:
    """A cluster without nodes; pods and claims are what a test makes of them."""

    def __init__(self, directory):
        self.api = served_api.ServedApi(directory)
        self.client = self.api.client
        key = PARTITION["driver"], PARTITION["pool"], PARTITION["device"]
        cluster = types.SimpleNamespace(client=self.client, nodes={}, devices=lambda: {key: DEVICE})
        self.observer = observing.Observer(cluster)

    def add_pod(self, *commands, **annotations):
        containers = [
            {"name": f"c{number}", "image": "none"} | ({"command": command} if command else {})
            for number, command in enumerate(commands or [None])
        ]
        claims = [{"name": "mig", "resourceClaimName": "mig"}]
        body = {
            "metadata": {"name": "train", "annotations": annotations},
            "spec": {"containers": containers, "resourceClaims": claims},
        }
        return self.client.create(kube.PODS, body, "default")

    def set_status(self, **status):
        self.client.patch(kube.PODS, "train", {"status": status}, "default", subresource="status")

    def set_scheduled(self, value):
        condition = {"type": "PodScheduled", "status": value, "reason": "Unschedulable"}
        self.set_status(conditions=[condition])

    def allocate(self):
        request = {"name": "mig", "exactly": {"deviceClassName": "mig.nvidia.com"}}
        claim = {"metadata": {"name": "mig"}, "spec": {"devices": {"requests": [request]}}}
        made = self.client.create(kube.CLAIMS, claim, "default")
        allocation = {"devices": {"results": [PARTITION]}}
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
    about = {"kind": "Pod", "name": "train", "uid": pod["metadata"]["uid"]}
    event = {"metadata": {"name": "train.1"}, "involvedObject": about, "type": "Warning"}
    scene.client.create(kube.EVENTS, event | {"reason": "Failed", "message": "x"}, "default")
    assert not scene.look().was_unschedulable
    event = event | {"metadata": {"name": "train.2"}, "reason": "FailedScheduling", "message": "y"}
    scene.client.create(kube.EVENTS, event, "default")
    assert scene.look().was_unschedulable


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
    scene.add_pod(*commands)
    assert scene.look().ends is ends


def test_what_is_expected_comes_from_the_annotation(scene):
    scene.add_pod(**{outcome.EXPECT_ANNOTATION: outcome.WAITED})
    assert scene.look().expected == outcome.WAITED
