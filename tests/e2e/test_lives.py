"""Claims through the lives of pods: restarts, crowds, and claims that others have already."""

import pytest
from e2e_site import RUN, RUNNING, exactly

from dra_driver.adapters.kube import kube

A = "device.attributes['gpu.nvidia.com']"
WHOLE = f"{A}.type == 'gpu' && !('enforcement' in {A})"
CROWD, ROUNDS = 12, 2


def whole():
    return exactly("gpu", "gpu.nvidia.com", WHOLE)


@pytest.mark.covers("bats stress: shared claim", "e2e/dra: supports sharing a claim concurrently")
def test_many_pods_come_and_go_with_one_claim(scratch):
    scratch.claim("shared", whole())
    for number in range(ROUNDS):
        names = [f"pod-{number}-{index}" for index in range(CROWD)]
        for name in names:
            scratch.pod(name, {"gpu": "claim/shared"})
        scratch.wait_running(*names)
        assert len({tuple(scratch.sees(name)) for name in names}) == 1
        for name in names:
            scratch.site.client.delete(kube.PODS, name, scratch.namespace, grace_period=1)
        scratch.empty()


@pytest.mark.covers("e2e/dra: does not delete generated claims when pod is restarting")
def test_a_container_that_is_restarted_keeps_its_gpu(scratch):
    scratch.template("one", whole())
    scratch.pod(
        "pod", {"gpu": "template/one"}, run="nvidia-smi -L; sleep 1", restartPolicy="Always"
    )
    scratch.wait_running("pod")
    [before] = scratch.claims()

    def restarted():
        statuses = (scratch.get("pod").get("status") or {}).get("containerStatuses") or ()
        return any(one["restartCount"] >= 1 for one in statuses)

    scratch.site.wait(restarted, lambda: f"a restart: {scratch.told('pod')}")
    [after] = scratch.claims()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["allocation"] == before["status"]["allocation"]


@pytest.mark.covers("e2e/dra: requests an already allocated and a new claim for a pod")
def test_a_pod_takes_a_claim_that_is_in_use_and_one_of_its_own(scratch):
    scratch.claim("shared", whole())
    scratch.template("one", whole())
    scratch.pod("first", {"gpu": "claim/shared"})
    scratch.wait_running("first")
    scratch.pod("second", {"shared": "claim/shared", "own": "template/one"})
    scratch.wait_running("second")
    assert set(scratch.sees("first")) < set(scratch.sees("second"))
    assert len(scratch.sees("second")) == 2


@pytest.mark.covers("e2e/dra: supports init containers with external claims")
def test_an_init_container_sees_the_gpu_of_the_claim(scratch):
    if scratch.site.is_embedded:
        pytest.skip("the embedded kubelet runs no init containers")
    scratch.claim("one", whole())
    spec = scratch.pod_spec({"gpu": "claim/one"}, containers={"init": [{"name": "gpu"}]}, run=RUN)
    first = spec["containers"][0] | {"command": ["sh", "-c", "nvidia-smi -L"]}
    main = first | {"name": "main", "command": ["sh", "-c", RUN]}
    spec |= {"initContainers": [first], "containers": [main]}
    scratch.create(kube.PODS, "Pod", "pod", spec=spec)
    scratch.wait_running("pod")
    assert scratch.sees("pod", "init") == scratch.sees("pod", "main")


@pytest.mark.covers("e2e_node: health reflects changes", "e2e/dra: should report device health")
def test_a_pod_is_told_that_its_gpu_is_healthy(scratch):
    if not scratch.site.tells_health:
        pytest.skip("Kubernetes 1.36 has device health in a pod's status, if its gate is not off")
    scratch.template("one", whole())
    scratch.pod("pod", {"gpu": "template/one"})
    scratch.wait_running("pod")

    def told():
        statuses = (scratch.get("pod").get("status") or {}).get("containerStatuses") or ()
        return [
            (entry["name"], one["health"])
            for status in statuses
            for entry in status.get("allocatedResourcesStatus") or ()
            for one in entry.get("resources") or ()
        ]

    def healthy():
        return told() == [("claim:gpu", "Healthy")] or told() == [("claim:gpu/gpu", "Healthy")]

    scratch.site.wait(healthy, lambda: f"the health of the GPU: {told()}")
    assert scratch.phase("pod") == RUNNING
