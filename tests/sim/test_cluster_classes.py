"""What a pod gets by the class that it asks for, from the scheduler of the embedded cluster."""

import pathlib
import tempfile
import threading

import kubelet_node
import pytest
from polling import until

from dra_driver.adapters import kube
from dra_driver.sim import cluster, runtime

WAITS = ""
SHARED = ("--mig-mode=off", "--shares=2")
SPECS = (
    cluster.NodeSpec("limited", "h100-80gb-hbm3:1", SHARED),
    cluster.NodeSpec("unlimited", "t4:1", (*SHARED, "--share-enforcement=None")),
    cluster.NodeSpec("whole", "l4:1"),
)


@pytest.fixture(scope="module")
def running():
    """Nodes with one GPU each, which two claims share, or one has."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        made = cluster.Cluster(
            SPECS,
            pathlib.Path(name),
            runtime_for=lambda cdi_dir, _: runtime.PretendedRuntime(cdi_dir),
        )
        try:
            made.start()
            assert made.wait_ready(threading.Event())
            yield made
        finally:
            made.stop()


def pod(running, name, device_class):
    """A pod with a device of the class, as it is once it runs, or has been found to wait."""
    wanted = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [wanted]}}}
    body = {
        "metadata": {"name": name},
        "spec": {
            "containers": [kubelet_node.container("main", {"name": "gpu"})],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
    }
    running.client.create(kube.CLAIMS, claim, "default")
    running.client.create(kube.PODS, body, "default")

    def decided():
        found = running.client.get(kube.PODS, name, "default")
        status = found.get("status") or {}
        reasons = [condition.get("reason") for condition in status.get("conditions") or ()]
        return found if status.get("phase") == "Running" or "Unschedulable" in reasons else None

    return until(decided, what=f"pod {name} runs, or waits")


@pytest.mark.parametrize(
    ("device_class", "nodes"),
    [
        ("shared.gpu.nvidia.com", ["limited", "limited", "unlimited", "unlimited", WAITS]),
        ("shared-mps.gpu.nvidia.com", ["limited", "limited", WAITS]),
        ("exclusive.gpu.nvidia.com", ["whole", WAITS]),
        ("vfio.gpu.nvidia.com", [WAITS]),
    ],
)
def test_a_class_has_the_devices_that_its_name_says_as_often_as_claims_may_have_them(
    running, device_class, nodes
):
    names = [f"{device_class.partition('.')[0]}-{number}" for number in range(len(nodes))]
    try:
        found = [pod(running, name, device_class)["spec"].get("nodeName", WAITS) for name in names]
        assert sorted(found) == sorted(nodes)
    finally:
        for name in names:
            running.client.delete(kube.PODS, name, "default", grace_period=0)
            running.client.delete(kube.CLAIMS, name, "default")
