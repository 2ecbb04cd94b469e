"""Pods with `nvidia.com/gpu: 1`: the claim that the scheduler makes, and when it goes again."""

import collections

import pytest
from control_plane import DRIVER, ControlPlane, request
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options as api_options

GPU, PART, FPGA = "example.com/gpu", "example.com/part", "example.com/fpga"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


def container(name="main", **amounts):
    limits = {f"example.com/{key}": amount for key, amount in amounts.items()}
    return {"name": name, "image": "none", "resources": {"limits": limits}}


def serving(plane, *devices, node="node-a"):
    """A plane whose class serves `GPU`, with a node that has these devices."""
    plane.client.patch(kube.CLASSES, "gpu", {"spec": {"extendedResourceName": GPU}})
    plane.add_node(node)
    plane.add_slice(node, *(devices or ("gpu-0", "gpu-1", "gpu-2", "gpu-3")))
    return plane


def offer(plane, name, **amounts):
    """A node whose device plugins offer so much."""
    allocatable = {f"example.com/{key}": str(amount) for key, amount in amounts.items()}
    plane.create(kube.NODES, name, status={"allocatable": allocatable, "capacity": allocatable})


def status_of(plane, pod):
    return plane.pod(pod)["status"].get("extendedResourceClaimStatus")


def mappings_of(plane, pod):
    plane.node_of(pod)
    return [
        (each["containerName"], each["resourceName"], each["requestName"])
        for each in status_of(plane, pod)["requestMappings"]
    ]


def requests_of(claim):
    return {
        each["name"]: (each["exactly"]["deviceClassName"], each["exactly"]["count"])
        for each in claim["spec"]["devices"]["requests"]
    }


def made_for(plane, pod):
    """The claim of a pod that has a node."""
    plane.node_of(pod)
    return plane.claim(status_of(plane, pod)["resourceClaimName"])


class TestTheClaim:
    def test_is_the_pod_s_own_with_devices_reserved_for_it(self, plane):
        serving(plane).start_scheduler()
        pod = plane.add_pod("train", containers=[container(gpu=2)])
        claim = made_for(plane, "train")
        metadata = claim["metadata"]
        assert metadata["name"].startswith("train-extended-resources-")
        assert metadata["annotations"] == {ANNOTATION: "true"}
        assert metadata["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
        assert owner["controller"] is True
        assert requests_of(claim) == {"container-0-request-0": ("gpu", 2)}
        assert plane.devices_of(metadata["name"]) == ["node-a/gpu-0", "node-a/gpu-1"]
        assert plane.users_of(metadata["name"]) == ["train"]
        assert mappings_of(plane, "train") == [("main", GPU, "container-0-request-0")]

    def test_has_a_request_for_each_container_and_name(self, plane):
        serving(plane).start_scheduler()
        plane.add_class(name="part", extendedResourceName=PART)
        two = container("second", gpu=1)
        implicit = {"deviceclass.resource.kubernetes.io/part": 1}
        two["resources"]["requests"] = {GPU: 1, **implicit}
        plane.add_pod("train", containers=[container("first", gpu=1, part=1), two])
        assert requests_of(made_for(plane, "train")) == {
            "container-0-request-0": ("gpu", 1),
            "container-0-request-1": ("part", 1),
            "container-1-request-0": ("part", 1),
            "container-1-request-1": ("gpu", 1),
        }
        assert mappings_of(plane, "train") == [
            ("second", "deviceclass.resource.kubernetes.io/part", "container-1-request-0"),
            ("first", GPU, "container-0-request-0"),
            ("second", GPU, "container-1-request-1"),
            ("first", PART, "container-0-request-1"),
        ]

    def test_lends_init_containers_what_the_others_get(self, plane):
        serving(plane).start_scheduler()
        init = [container("load", gpu=2), container("side", gpu=1) | {"restartPolicy": "Always"}]
        plane.add_pod("train", initContainers=init, containers=[container(gpu=2)])
        claim = made_for(plane, "train")
        assert requests_of(claim) == {
            "container-1-request-0": ("gpu", 1),
            "container-2-request-0": ("gpu", 2),
        }
        assert [use for use in mappings_of(plane, "train") if use[0] == "load"] == [
            ("load", GPU, "container-1-request-0"),
            ("load", GPU, "container-2-request-0"),
        ]

    def test_stands_beside_the_claims_that_the_pod_names(self, plane):
        serving(plane).start_scheduler()
        plane.add_claim("mine")
        plane.add_pod("train", claims={"gpu": "mine"}, containers=[container(gpu=1)])
        made = made_for(plane, "train")["metadata"]["name"]
        assert plane.devices_of("mine") == ["node-a/gpu-0"]
        assert plane.devices_of(made) == ["node-a/gpu-1"]

    def test_gives_no_device_to_two_pods(self, plane):
        serving(plane).start_scheduler()
        for name in ("a", "b"):
            plane.add_pod(name, containers=[container(gpu=2)])
        found = [
            device
            for name in ("a", "b")
            for device in plane.devices_of(made_for(plane, name)["metadata"]["name"])
        ]
        assert sorted(found) == [f"node-a/gpu-{number}" for number in range(4)]

    def test_goes_with_its_pod_or_when_that_has_ended(self, plane):
        serving(plane, "gpu-0").start_scheduler().start_controller()
        plane.add_pod("first", containers=[container(gpu=1)])
        plane.node_of("first")
        plane.add_pod("second", containers=[container(gpu=1)])
        plane.refusal_of("second")
        plane.finish("first")
        plane.node_of("second")
        plane.client.delete(kube.PODS, "second", "default", grace_period=0)
        until(lambda: plane.claims() == {}, what="no claims are left")


class TestWaiting:
    def test_without_a_free_device_no_claim_is_made_until_there_is_one(self, plane):
        serving(plane, "gpu-0").start_scheduler()
        plane.add_pod("train", containers=[container(gpu=2)])
        assert plane.refusal_of("train") == (
            "0/1 nodes are available: 1 cannot allocate request "
            '"container-0-request-0" (2 devices) of claim train-extended-resources-*: '
            "1 device: 1 free, which is too few."
        )
        assert plane.claims() == {}
        plane.add_node("node-b")
        plane.add_slice("node-b", "gpu-0", "gpu-1")
        assert plane.node_of("train") == "node-b"

    def test_a_class_may_come_later(self, plane):
        plane.start_scheduler()
        plane.add_node("node-a")
        plane.add_slice("node-a", "gpu-0")
        plane.add_pod("train", containers=[container(gpu=1)])
        text = f"0/1 nodes are available: 1 Insufficient {GPU}."
        assert plane.refusal_of("train") == text
        plane.client.patch(kube.CLASSES, "gpu", {"spec": {"extendedResourceName": GPU}})
        assert requests_of(made_for(plane, "train")) == {"container-0-request-0": ("gpu", 1)}

    def test_without_the_gate_device_plugins_serve_alone(self, plane):
        serving(plane).start_scheduler(extended=False)
        plane.add_pod("train", containers=[container(gpu=1)])
        plane.refusal_of("train", f"Insufficient {GPU}")
        offer(plane, "node-b", gpu=1)
        assert plane.node_of("train") == "node-b"
        assert plane.claims() == {}

    def test_a_claim_whose_devices_are_not_ready_is_kept(self, plane):
        device = {"name": "gpu-0", "bindingConditions": ["attached"],
                  "bindingFailureConditions": ["broken"]}  # fmt: skip
        serving(plane, device).start_scheduler()
        plane.add_pod("train", containers=[container(gpu=1)])
        plane.refusal_of("train", "waiting for condition attached")
        # Each change of a node is a reason to try the pod again.
        plane.add_node("node-b")
        (name,) = plane.claims()
        entry = {"type": "attached", "status": "True", "reason": "R",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        told = {"driver": DRIVER, "pool": "node-a", "device": "gpu-0", "conditions": [entry]}
        change = {"status": {"devices": [told]}}
        plane.client.patch(kube.CLAIMS, name, change, "default", subresource="status")
        assert plane.node_of("train") == "node-a"
        assert made_for(plane, "train")["metadata"]["name"] == name
        assert list(plane.claims()) == [name]


class TestDevicePlugins:
    def test_of_a_node_are_used_without_a_claim(self, plane):
        serving(plane, "gpu-0")
        offer(plane, "node-b", gpu=2)
        plane.start_scheduler()
        plane.add_pod("train", containers=[container(gpu=2)])
        assert plane.node_of("train") == "node-b"
        assert (plane.claims(), status_of(plane, "train")) == ({}, None)

    def test_give_what_other_pods_have_left(self, plane):
        offer(plane, "node-b", gpu=3)
        plane.start_scheduler()
        plane.add_pod("a", containers=[container(gpu=2)])
        plane.node_of("a")
        plane.add_pod("b", containers=[container(gpu=2)])
        plane.refusal_of("b", f"Insufficient {GPU}")
        plane.finish("a")
        assert plane.node_of("b") == "node-b"

    def test_leave_the_rest_to_a_claim(self, plane):
        serving(plane)
        plane.client.patch(
            kube.NODES, "node-a", {"status": {"allocatable": {FPGA: "1"}}}, subresource="status"
        )
        plane.start_scheduler()
        plane.add_pod("train", containers=[container(gpu=1, fpga=1)])
        assert requests_of(made_for(plane, "train")) == {"container-0-request-1": ("gpu", 1)}
        assert mappings_of(plane, "train") == [("main", GPU, "container-0-request-1")]


class TestAnAttemptThatFails:
    """What the scheduler writes is refused once; it is all made again, and nothing is left."""

    @pytest.fixture
    def writes(self):
        """How often the scheduler made each kind of change, by verb and resource."""
        return collections.Counter()

    @pytest.fixture
    def failing(self, tmp_path, writes):
        running = []

        def failing(verb, resource, subresource, fault):
            left = [fault]

            def rule(call):
                if call.user_agent != "scheduler":
                    return None
                writes[call.verb, call.resource, call.subresource] += 1
                same = (call.verb, call.resource, call.subresource) == (verb, resource, subresource)
                return left.pop() if same and left else None

            plane = ControlPlane(tmp_path, fault=rule)
            running.append(plane)
            plane.add_class(f'device.driver == "{DRIVER}"')
            serving(plane, "gpu-0").start_scheduler()
            plane.add_pod("train", containers=[container(gpu=1)])
            return plane

        yield failing
        for plane in running:
            plane.close()

    @pytest.mark.parametrize(
        ("verb", "resource", "subresource", "made"),
        [
            ("create", "resourceclaims", "", 2),
            ("update", "resourceclaims", "", 2),
            ("update", "resourceclaims", "status", 2),
            ("patch", "pods", "status", 2),
            ("create", "pods", "binding", 2),
        ],
    )
    def test_leaves_no_claim(self, failing, writes, verb, resource, subresource, made):
        plane = failing(verb, resource, subresource, api_options.Fault(status=500))
        claim = made_for(plane, "train")
        assert plane.devices_of(claim["metadata"]["name"]) == ["node-a/gpu-0"]
        assert writes["create", "resourceclaims", ""] == made
        until(lambda: len(plane.claims()) == 1, what="one claim")

    def test_keeps_the_claim_of_a_pod_that_is_bound_all_the_same(self, failing, writes):
        plane = failing("create", "pods", "binding", api_options.Fault(drop="after"))
        claim = made_for(plane, "train")
        # What comes after the attempt: another pod is tried.
        plane.add_pod("other", containers=[container(gpu=1)])
        plane.refusal_of("other")
        assert list(plane.claims()) == [claim["metadata"]["name"]]
        assert writes["delete", "resourceclaims", ""] == 0

    def test_of_an_earlier_scheduler_is_cleared_away(self, plane):
        serving(plane, "gpu-0")
        pod = plane.add_pod("train", containers=[container(gpu=1)])
        plane.client.create(
            kube.CLAIMS,
            {
                "metadata": {
                    "name": "left-over",
                    "annotations": {ANNOTATION: "true"},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": "train", "controller": True,
                         "uid": pod["metadata"]["uid"]}
                    ],
                },
                "spec": {"devices": {"requests": [request()]}},
            },
            "default",
        )  # fmt: skip
        result = {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}}
        plane.client.patch(
            kube.CLAIMS, "left-over", {"status": status}, "default", subresource="status"
        )
        plane.start_scheduler()
        claim = made_for(plane, "train")
        assert claim["metadata"]["name"] != "left-over"
        assert list(plane.claims()) == [claim["metadata"]["name"]]
