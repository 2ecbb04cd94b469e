"""API servers that offer less: other versions of the API, feature gates that are off."""

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.model import claims
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(11)

UNKNOWN = claims.ClaimRef("default", "unknown", claims.ClaimUid("0-unknown"))
DROPPED = (
    "the API server dropped fields of ResourceSlices; going on without them. "
    "Is the feature gate off?"
)


@pytest.fixture
def scene():
    """Makes an API server with these options and a plugin at it."""
    made = []

    def make(rule=None, **settings):
        cluster = api_cluster.Cluster(**settings)
        cluster.faults.rule = rule
        machine = plugin_process.Machine()
        plugin = plugin_process.Plugin(machine, cluster)
        made.append((cluster, machine, plugin))
        plugin.start()
        return made[-1]

    yield make
    for cluster, machine, plugin in made:
        plugin.kill()
        complaints = plugin.complaints()
        cluster.close()
        machine.close()
        assert complaints == []


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_an_api_server_of_an_earlier_kubernetes_gets_its_version(scene, version):
    cluster, _machine, plugin = scene(resource_versions=(version,))
    plugin.wait_log("publishing", api_version=version)
    before = cluster.wait_devices("gpu-0", "gpu-1")
    wire = cluster.slices()[0]["spec"]["devices"][0]
    facts = wire["basic"] if version == "v1beta1" else wire
    assert facts["attributes"]["productName"] == {"string": "NVIDIA H100 80GB HBM3"}
    assert facts["capacity"] == {"memory": {"value": "81559Mi"}}

    ref = cluster.claim("gpu-1", {"device": "gpu-0", "request": "other"})
    answer = plugin.kubelet.prepare(ref)
    assert answer == [
        plugin_process.device(ref, "gpu-1"),
        plugin_process.device(ref, "gpu-0", "other"),
    ]

    writes, watches = len(cluster.slice_writes()), cluster.slice_watches()
    plugin.kill()
    plugin.start()
    api_cluster.wait_for(lambda: cluster.slice_watches() > watches, "a watch")
    assert plugin.kubelet.prepare(ref) == answer
    cluster.client.delete_collection(cluster.slice_resource, field_selector="spec.nodeName=node-1")
    api_cluster.wait_for(cluster.slices, "slices")
    assert cluster.wait_devices("gpu-0", "gpu-1")[0]["spec"] == before[0]["spec"]
    assert cluster.slice_writes()[writes:] == ["create"]


def test_the_newest_version_that_is_offered_is_taken(scene):
    _cluster, _machine, plugin = scene(resource_versions=("v1beta1", "v1", "v1beta2"))
    plugin.wait_log("publishing", api_version="v1")


def test_an_api_server_without_the_api_is_told_of_with_what_to_do(scene):
    def rule(call):
        absent = call.path.startswith("/apis/resource.k8s.io")
        return options.Fault(status=404, reason="NotFound") if absent else None

    cluster, _machine, plugin = scene(rule)
    line = plugin.wait_log("ResourceSlices not published")[0]
    assert "offers resource.k8s.io in no version; needed is one of v1, v1beta2" in line["reason"]
    assert "--runtime-config" in line["reason"]
    assert "resource.k8s.io" in plugin.kubelet.refusal(UNKNOWN, timeout=4)
    cluster.faults.rule = None
    cluster.wait_devices("gpu-0", "gpu-1")


def test_a_control_plane_that_is_upgraded_under_the_driver_goes_on_with_the_new_version(scene):
    cluster, _machine, plugin = scene(resource_versions=("v1beta1",))
    old = cluster.claim("gpu-1")
    plugin.kubelet.prepare(old)
    cluster.wait_devices("gpu-0", "gpu-1")
    cluster.restart_with(resource_versions=("v1",))
    cluster.create_node()
    cluster.wait_devices("gpu-0", "gpu-1")
    ref = cluster.claim("gpu-0")
    assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]


def test_a_taint_that_the_server_drops_is_told_once_and_not_written_again_and_again(scene):
    cluster, machine, plugin = scene(disabled_gates=frozenset({"DRADeviceTaints"}))
    held = cluster.claim("gpu-0", "gpu-1")
    plugin.kubelet.prepare(held)
    cluster.wait_devices("gpu-0", "gpu-1")
    machine.lose_gpus("gpu-1")
    assert plugin.wait_log(DROPPED)[0]["fields"] == ["devices[].taints"]
    # Each of these makes the driver compare again.
    for _ in range(5):
        plugin.kubelet.unprepare(UNKNOWN)
    machine.lose_gpus("gpu-0")
    plugin.wait_log("GPU is no longer offered", device="gpu-0")
    cluster.delete_claim(held)
    plugin.kubelet.unprepare(held)
    cluster.wait_devices()
    # What it drops is tried once and not for each taint, and never if it was asked before.
    assert cluster.slice_writes() in (["create", "update", "update"], ["create", "update"])
    assert len(plugin.log(DROPPED)) == 1


def test_what_the_server_drops_is_dropped_after_a_restart_too_and_said_again(scene):
    cluster, machine, plugin = scene(disabled_gates=frozenset({"DRADeviceTaints"}))
    plugin.kubelet.prepare(cluster.claim("gpu-1"))
    cluster.wait_devices("gpu-0", "gpu-1")
    machine.lose_gpus("gpu-1")
    plugin.wait_log(DROPPED)
    before = cluster.slices()[0]["metadata"]["resourceVersion"]
    plugin.kill()
    plugin.start()
    plugin.wait_log(DROPPED, count=2)
    assert cluster.slices()[0]["metadata"]["resourceVersion"] == before
    assert [device["name"] for device in cluster.slices()[0]["spec"]["devices"]] == [
        "gpu-0",
        "gpu-1",
    ]


def test_a_server_that_keeps_taints_sees_one_with_the_time_that_it_gave(scene):
    cluster, machine, plugin = scene()
    plugin.kubelet.prepare(cluster.claim("gpu-1"))
    cluster.wait_devices("gpu-0", "gpu-1")
    machine.lose_gpus("gpu-1")
    lost = api_cluster.wait_for(
        lambda: cluster.slices()[0]["spec"]["devices"][1].get("taints"), "a taint"
    )
    assert [{key: taint[key] for key in ("key", "effect")} for taint in lost] == [
        {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}
    ]
    body = cluster.slices()[0]
    body["spec"]["devices"][0]["attributes"]["index"] = {"int": 9}
    cluster.client.replace(kube.SLICES, body)
    api_cluster.wait_for(
        lambda: cluster.slices()[0]["spec"]["devices"][0]["attributes"]["index"] == {"int": 0},
        "the right index",
    )
    assert cluster.slices()[0]["spec"]["devices"][1]["taints"] == lost
