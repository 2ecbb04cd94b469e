"""Claims of whole GPUs, from a pod that asks to what its containers see."""

import pytest
from e2e_site import DEPLOYMENTS, DRIVER, JOBS, PENDING, SUCCEEDED, exactly

from dra_driver.adapters.kube import kube

A, C = f"device.attributes['{DRIVER}']", f"device.capacity['{DRIVER}']"
WHOLE = f"{A}.type == 'gpu' && !('enforcement' in {A})"
"""A card that goes to one claim."""


def whole(name="gpu", *selectors, **fields):
    return exactly(name, DRIVER, WHOLE, *selectors, **fields)


@pytest.mark.covers(
    "e2e/dra: simple pod", "bats basic: 1 pod 1 GPU", "bats robustness: claim lifecycle"
)
def test_a_pod_gets_a_gpu_and_gives_it_back(scratch):
    scratch.template("one", whole())
    scratch.pod("pod", {"gpu": "template/one"})
    scratch.wait_running("pod")
    assert len(scratch.sees("pod")) == 1
    [claim] = scratch.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert result["driver"] == DRIVER
    scratch.delete_pod("pod")
    scratch.site.wait(lambda: not scratch.claims(), "the claim to be gone")


@pytest.mark.covers("bats basic: 2 pods 2 GPUs", "bats robustness: two claims one pod")
def test_claims_get_gpus_of_their_own_in_one_pod_or_in_two(scratch):
    scratch.template("one", whole())
    for name in ("pod-1", "pod-2"):
        scratch.pod(name, {"first": "template/one", "second": "template/one"})
    scratch.wait_running("pod-1", "pod-2")
    seen = [uuid for name in ("pod-1", "pod-2") for uuid in scratch.sees(name)]
    assert len(set(seen)) == len(seen) == 4


@pytest.mark.covers(
    "bats basic: 2 pods share 1 claim",
    "bats basic: 1 pod, 2 containers, 1 claim",
    "e2e/dra: external claim for several containers of several pods",
)
def test_a_claim_is_shared_by_pods_and_by_their_containers(scratch):
    scratch.claim("shared", whole())
    uses = {"one": [{"name": "gpu"}], "two": [{"name": "gpu"}]}
    for name in ("pod-1", "pod-2"):
        scratch.pod(name, {"gpu": "claim/shared"}, containers=uses)
    scratch.wait_running("pod-1", "pod-2")
    seen = [scratch.sees(pod, container) for pod in ("pod-1", "pod-2") for container in uses]
    assert seen == [seen[0]] * 4
    [claim] = scratch.claims()
    assert {user["name"] for user in claim["status"]["reservedFor"]} == {"pod-1", "pod-2"}


@pytest.mark.covers("e2e/dra: must map configs and devices to the right containers")
def test_a_container_sees_the_requests_that_it_names(scratch):
    scratch.template("two", whole("first"), whole("second"))
    uses = {
        "first": [{"name": "gpus", "request": "first"}],
        "second": [{"name": "gpus", "request": "second"}],
        "both": [{"name": "gpus"}],
    }
    scratch.pod("pod", {"gpus": "template/two"}, containers=uses)
    scratch.wait_running("pod")
    seen = {name: set(scratch.sees("pod", name)) for name in uses}
    assert [len(seen[name]) for name in uses] == [1, 1, 2]
    assert seen["both"] == seen["first"] | seen["second"]


@pytest.mark.covers(
    "ginkgo: cel/productName", "ginkgo: cel/driverVersion", "ginkgo: cel/memory",
    "bats robustness: CEL match",
)  # fmt: skip
@pytest.mark.parametrize(
    ("fact", "selector"),
    [
        ("productName", A + ".productName.lowerAscii() == '{}'.lowerAscii()"),
        ("driverVersion", A + ".driverVersion.compareTo(semver('{}')) >= 0"),
        ("architecture", A + ".architecture == '{}'"),
        ("memory", C + ".memory.compareTo(quantity('{}')) == 0"),
    ],
    ids=["product", "driver", "architecture", "memory"],
)
def test_a_gpu_is_chosen_by_what_it_is(scratch, fact, selector):
    def told(device):
        [value] = (device["attributes"] | device["capacity"])[fact].values()
        return str(value)

    wanted = told(scratch.site.devices()[scratch.site.nodes[0], "gpu-0"])
    scratch.template("one", whole("gpu", selector.format(wanted)))
    scratch.pod("pod", {"gpu": "template/one"})
    scratch.wait_running("pod")
    [place] = scratch.allocated("pod")
    assert told(scratch.site.devices()[tuple(place.split("/"))]) == wanted


@pytest.mark.covers("ginkgo: negative", "bats robustness: CEL no match")
def test_a_pod_that_no_gpu_suits_waits_and_is_told_why(scratch):
    scratch.template("none", whole("gpu", f"{A}.productName == 'NVIDIA H300'"))
    scratch.pod("pod", {"gpu": "template/none"})
    assert "cannot allocate" in scratch.wait_unschedulable("pod")
    [claim] = scratch.claims()
    assert "allocation" not in (claim.get("status") or {})
    assert scratch.phase("pod") == PENDING


@pytest.mark.covers("e2e/dra: keeps pod pending because of CEL runtime errors")
def test_a_selector_that_fails_on_one_device_stops_the_pod(scratch):
    scratch.template("broken", exactly("gpu", DRIVER, f"{A}.noSuchAttribute == 1"))
    scratch.pod("pod", {"gpu": "template/broken"})
    assert scratch.wait_unschedulable("pod")


@pytest.mark.covers(
    "e2e/dra: must deallocate after use",
    "e2e/dra: removes reservation from claim when pod is done",
    "e2e/dra: deletes generated claims when pod is done",
)
def test_a_pod_that_is_done_leaves_its_gpu_to_others(scratch):
    scratch.claim("own", whole())
    scratch.template("one", whole())
    scratch.pod("pod", {"own": "claim/own", "made": "template/one"}, run="nvidia-smi -L; sleep 1")
    scratch.wait_phase("pod", SUCCEEDED)

    def free():
        claims = scratch.claims()
        return [one["metadata"]["name"] for one in claims] == ["own"] and not (
            claims[0].get("status") or {}
        )

    scratch.site.wait(free, lambda: f"one claim that is free: {scratch.claims()}")


@pytest.mark.covers("e2e/dra: must call NodePrepareResources even if not used by any container")
def test_a_claim_that_no_container_uses_is_prepared(scratch):
    scratch.template("one", whole())
    scratch.pod("pod", {"gpu": "template/one"}, containers={"main": []})
    scratch.wait_running("pod")
    [claim] = scratch.claims()

    def told():
        return (scratch.claims()[0].get("status") or {}).get("devices")

    [entry] = scratch.site.wait(told, "the driver to tell of the device")
    assert entry["conditions"][0]["reason"] == "Prepared"
    assert claim["status"]["reservedFor"][0]["name"] == "pod"


@pytest.mark.covers("integration/dra: ResourceClaimDeviceStatus")
def test_the_status_of_a_claim_tells_which_card_it_is(scratch):
    scratch.template("one", whole())
    scratch.pod("pod", {"gpu": "template/one"})
    scratch.wait_running("pod")

    def told():
        return (scratch.claims()[0].get("status") or {}).get("devices")

    [entry] = scratch.site.wait(told, "the driver to tell of the device")
    assert [entry["data"]["uuid"]["string"]] == scratch.sees("pod")


@pytest.mark.covers("e2e/dra: must not run a pod if a claim is not ready")
def test_a_pod_that_was_put_on_a_node_past_the_scheduler_does_not_run_without_its_claim(scratch):
    scratch.claim("free", whole())
    scratch.pod("pod", {"gpu": "claim/free"}, nodeName=scratch.site.nodes[0])
    scratch.wait_event("FailedPrepareDynamicResources")
    assert scratch.phase("pod") == PENDING


@pytest.mark.covers("e2e/dra: selects the first subrequest that can be satisfied")
def test_the_first_alternative_that_can_be_met_is_taken(scratch):
    alternatives = [
        {"name": name, "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": text}}]}
        for name, text in [
            ("none", f"{A}.productName == 'NVIDIA H300'"),
            ("tesla", f"{WHOLE} && {A}.architecture == 'Turing'"),
            ("any", WHOLE),
        ]
    ]
    scratch.template("list", {"name": "gpu", "firstAvailable": alternatives})
    scratch.pod("pod", {"gpu": "template/list"})
    scratch.wait_running("pod")
    [claim] = scratch.claims()
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "gpu/tesla"
    assert len(scratch.sees("pod")) == 1


@pytest.mark.covers("e2e/dra: supports reusing resources", "bats robustness: re-acquire, churn")
def test_a_gpu_goes_from_one_pod_to_the_next(scratch):
    scratch.claim("one", whole())
    for number in range(5):
        name = f"pod-{number}"
        scratch.pod(name, {"gpu": "claim/one"})
        scratch.wait_running(name)
        assert len(scratch.sees(name)) == 1
        scratch.delete_pod(name)


@pytest.mark.covers("e2e/dra: uses all resources")
def test_all_gpus_are_used_and_one_more_pod_waits_for_the_first_that_ends(scratch):
    free = [
        device
        for device in scratch.site.devices().values()
        if device["attributes"]["type"] == {"string": "gpu"}
        and "enforcement" not in device["attributes"]
    ]
    scratch.template("one", whole())
    names = [f"pod-{number}" for number in range(len(free))]
    for name in names:
        scratch.pod(name, {"gpu": "template/one"})
    scratch.wait_running(*names)
    assert len({place for name in names for place in scratch.allocated(name)}) == len(free)
    scratch.pod("late", {"gpu": "template/one"})
    scratch.wait_unschedulable("late")
    scratch.delete_pod(names[0])
    scratch.wait_running("late")


@pytest.mark.covers("e2e/dra: retries pod scheduling after creating device class")
def test_a_pod_whose_class_comes_later_runs_then(scratch):
    scratch.template("one", exactly("gpu", "e2e-later.example.com"))
    scratch.pod("pod", {"gpu": "template/one"})
    scratch.wait_unschedulable("pod")
    text = f"device.driver == '{DRIVER}' && {WHOLE}"
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "e2e-later.example.com"},
        "spec": {"selectors": [{"cel": {"expression": text}}]},
    }
    scratch.site.client.create(kube.CLASSES, body)
    try:
        scratch.wait_running("pod")
    finally:
        scratch.site.delete([body])


@pytest.mark.covers("bats cuda: Job")
def test_a_job_runs_to_its_end(scratch):
    scratch.template("one", whole())
    spec = scratch.pod_spec({"gpu": "template/one"}, run="nvidia-smi -L; sleep 1")
    scratch.create(
        JOBS, "Job", "job",
        spec={"completions": 2, "parallelism": 1, "backoffLimit": 0, "template": {"spec": spec}},
    )  # fmt: skip

    def done():
        status = scratch.site.client.get(JOBS, "job", scratch.namespace).get("status") or {}
        return (
            status if any(c["type"] == "Complete" for c in status.get("conditions") or ()) else {}
        )

    status = scratch.site.wait(done, "the Job to be complete")
    assert (status["succeeded"], status.get("failed", 0)) == (2, 0)


@pytest.mark.covers("bats cuda: Deployment", "ginkgo: sharing")
def test_the_pods_of_a_deployment_have_gpus_of_their_own(scratch):
    scratch.template("one", whole())
    spec = scratch.pod_spec({"gpu": "template/one"}, restartPolicy="Always")
    template = {"metadata": {"labels": {"app": "two"}}, "spec": spec}
    selector = {"matchLabels": {"app": "two"}}
    scratch.create(
        DEPLOYMENTS, "Deployment", "two",
        spec={"replicas": 2, "selector": selector, "template": template},
    )  # fmt: skip

    def ready():
        body = scratch.site.client.get(DEPLOYMENTS, "two", scratch.namespace)
        return (body.get("status") or {}).get("readyReplicas") == 2

    scratch.site.wait(ready, "two replicas to be ready")
    pods = [
        one["metadata"]["name"] for one in scratch.site.client.list(kube.PODS, scratch.namespace)[0]
    ]
    assert len({uuid for pod in pods for uuid in scratch.sees(pod)}) == 2


@pytest.mark.covers("bats misc: unknown opaque field", "e2e_node: NodePrepareResources fails")
def test_a_config_that_is_wrong_is_told_in_the_pod_s_events(scratch):
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "unexpectedField": "x",
    }
    config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    scratch.template("wrong", whole(), config=config)
    scratch.pod("pod", {"gpu": "template/wrong"})
    scratch.wait_event("FailedPrepareDynamicResources", "unexpectedField")
    assert scratch.phase("pod") == PENDING
