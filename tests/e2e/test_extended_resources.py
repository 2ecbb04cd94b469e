"""Pods that ask for `nvidia.com/gpu` in their limits, and get a claim made for them."""

import pytest
from e2e_site import RUN, SUCCEEDED

from dra_driver.adapters.kube import kube

NAME = "nvidia.com/gpu"


def asking(scratch, *amounts, run=RUN, **spec):
    """The spec of a pod whose containers have so much in their limits."""
    made = scratch.pod_spec({}, containers={f"c{n}": [] for n in range(len(amounts))}, run=run)
    for container, amount in zip(made["containers"], amounts, strict=True):
        container["resources"] = {"limits": {NAME: str(amount)}}
    return made | spec


@pytest.fixture(autouse=True)
def _serves(scratch):
    """Skips where the class has no such name: the gate is off."""
    classes, _ = scratch.site.client.list(kube.CLASSES)
    if NAME not in [body["spec"].get("extendedResourceName") for body in classes]:
        pytest.skip(f"no class has extendedResourceName {NAME}: DRAExtendedResource is off")


@pytest.fixture
def make_pod(scratch):
    def make(name, *amounts, **options):
        return scratch.create(kube.PODS, "Pod", name, spec=asking(scratch, *amounts, **options))

    return make


@pytest.mark.covers("bats extres: legacy request", "e2e/dra: extended resources, explicit")
def test_containers_get_the_gpus_of_their_limits(scratch, make_pod):
    make_pod("pod", 1, 2)
    scratch.wait_running("pod")
    assert [len(scratch.sees("pod", name)) for name in ("c0", "c1")] == [1, 2]
    [claim] = scratch.claims()
    metadata = claim["metadata"]
    assert metadata["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert metadata["name"].startswith("pod-extended-resources-")
    status = scratch.get("pod")["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == metadata["name"]
    assert [one["containerName"] for one in status["requestMappings"]] == ["c0", "c1"]


@pytest.mark.covers("e2e/dra: extended resources: cleanup when completed")
def test_the_claim_goes_with_the_pod_that_is_done(scratch, make_pod):
    make_pod("pod", 1, run="nvidia-smi -L; sleep 1")
    scratch.wait_phase("pod", SUCCEEDED)
    scratch.site.wait(lambda: not scratch.claims(), "the claim to be gone")


@pytest.mark.covers("e2e/dra: extended resources: no overcommit")
def test_more_than_a_node_has_is_waited_for(scratch, make_pod):
    make_pod("pod", 100)
    scratch.wait_unschedulable("pod")
    assert scratch.claims() == []
