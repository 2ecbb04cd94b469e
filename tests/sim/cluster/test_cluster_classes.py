"""What a pod gets by the class that it asks for, from the scheduler of the embedded cluster."""

import pathlib
import tempfile
import threading
from collections import Counter

import kubelet_node
import pytest
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import cluster, runtime

pytestmark = pytest.mark.sampled(7)

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


def make_pod(running, name, device_class):
    """A pod with a device of the class."""
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


def node_of(running, name):
    """The node of a pod that runs; WAITS once the scheduler has found none."""
    found = running.client.get(kube.PODS, name, "default")
    status = found.get("status") or {}
    if status.get("phase") == "Running":
        return found["spec"]["nodeName"]
    reasons = [condition.get("reason") for condition in status.get("conditions") or ()]
    return WAITS if "Unschedulable" in reasons else None


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
        for name in names:
            make_pod(running, name, device_class)
        # What pods of another test had may be free a moment later than they are gone.
        until(
            lambda: Counter(node_of(running, name) for name in names) == Counter(nodes),
            what=f"pods on {nodes}",
        )
    finally:
        for name in names:
            running.client.delete(kube.PODS, name, "default", grace_period=0)
            running.client.delete(kube.CLAIMS, name, "default")
