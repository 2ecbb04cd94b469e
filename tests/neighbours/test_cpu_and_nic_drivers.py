"""GPUs, CPUs and NICs of three drivers in one claim, aligned by what all of them publish.

The others publish as kubernetes-sigs/dra-driver-cpu and dranet do, with the standard names
`resource.kubernetes.io/numaNode` and `.../pcieRoot`. Their plugins are stand-ins; the GPUs are this
driver's own.
"""

import neighbour_fleet
import pytest
import scripted_plugin
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.model import prepared

NODE = "mig"
CPU, NIC = "dra.cpu", "dra.net"
NUMA, ROOT = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"
MTU = {"opaque": {"driver": NIC, "parameters": {"mtu": 9000}}, "requests": ["nic"]}


def gpus(fleet):
    """The attributes of the whole GPUs of the node, by name."""
    return {
        device["name"]: device["attributes"]
        for body in fleet.slices()
        if (body["spec"]["driver"], body["spec"]["nodeName"]) == (neighbour_fleet.DRIVER, NODE)
        for device in body["spec"].get("devices", ())
        if device["attributes"]["type"]["string"] == "gpu"
    }


def answer(driver):
    def prepare(ref):
        made = prepared.PreparedDevice(requests=(), pool=NODE, device="any", cdi_ids=())
        return dra_grpc.Answer((made,))

    return prepare


@pytest.fixture(scope="module")
def others(fleet):
    """The plugins of the other drivers on the node, by name; a NIC and cores beside each GPU."""
    cards = gpus(fleet)
    offered = {
        CPU: [
            {"name": f"cores-{name}", "attributes": {NUMA: card[NUMA]}}
            for name, card in sorted(cards.items())
        ],
        NIC: [
            {"name": f"nic-{name}", "attributes": {NUMA: card[NUMA], ROOT: card[ROOT]}}
            for name, card in sorted(cards.items())
        ],
    }
    registry = fleet.running.nodes[NODE]._directory / "kubelet" / "plugins_registry"
    plugins = {}
    for driver, devices in offered.items():
        spec = {
            "driver": driver,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        fleet.client.create(kube.SLICES, {"metadata": {"name": f"{driver}-{NODE}"}, "spec": spec})
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        made = {"metadata": {"name": driver}, "spec": {"selectors": [selector]}}
        fleet.client.create(kube.CLASSES, made)
        plugins[driver] = scripted_plugin.ScriptedPlugin(registry, name=driver)
        plugins[driver].on_prepare = answer(driver)
        plugins[driver].start()
    yield plugins
    for driver, plugin in plugins.items():
        plugin.stop()
        fleet.client.delete(kube.SLICES, f"{driver}-{NODE}")
        fleet.client.delete(kube.CLASSES, driver)


def request(name, class_name, *expressions):
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return {"name": name, "exactly": {"deviceClassName": class_name, "selectors": selectors}}


@pytest.mark.parametrize("card", ["gpu-0", "gpu-1"])
@pytest.mark.parametrize(
    "wanted",
    [
        request("gpu", "exclusive.gpu.nvidia.com"),
        request("gpu", "mig.nvidia.com", 'device.attributes["gpu.nvidia.com"].memorySlices == 1'),
    ],
    ids=["whole", "partition"],
)
def test_a_gpu_of_the_socket_and_pcie_root_of_a_nic_is_found(fleet, others, wanted, card):
    """The NIC is on one side of the machine; what belongs to it has to be there too."""
    root = gpus(fleet)[card][ROOT]["string"]
    here = f'device.attributes["resource.kubernetes.io"].pcieRoot == "{root}"'
    pod = fleet.pod(
        [wanted, request("cores", CPU), request("nic", NIC, here)],
        devices={
            "constraints": [
                {"requests": ["gpu", "nic"], "matchAttribute": ROOT},
                {"requests": ["gpu", "cores", "nic"], "matchAttribute": NUMA},
            ]
        },
    ).wait_running()
    found = {result["request"]: result["device"] for result in pod.results()}
    assert found["gpu"].startswith(card)
    assert (found["cores"], found["nic"]) == (f"cores-{card}", f"nic-{card}")
    pod.delete()


def test_devices_and_configs_of_others_in_a_claim_are_left_to_them(fleet, others):
    pod = fleet.pod(
        [request("gpu", "exclusive.gpu.nvidia.com"), request("nic", NIC)],
        devices={"config": [MTU]},
    ).wait_running()
    claim = pod.claim()
    uid = claim["metadata"]["uid"]
    found = [one for one in fleet.specs(NODE) if uid in one["devices"][0]["name"]]
    [spec] = [one for one in found if one["kind"].endswith("/claim")]
    # The driver's files have its own device alone, and what is told in the status is of its own.
    [gpu] = [r["device"] for r in pod.results() if r["driver"] == neighbour_fleet.DRIVER]
    assert [device["name"] for device in spec["devices"]] == [f"{uid}-{gpu}"]
    told = {entry["driver"] for entry in claim["status"].get("devices", ())}
    assert told <= {neighbour_fleet.DRIVER}
    name = claim["metadata"]["name"]
    assert ("prepare", [name]) in others[NIC].calls
    assert all(name not in names for _, names in others[CPU].calls)
    pod.delete()
    until(
        lambda: all(uid not in one["devices"][0]["name"] for one in fleet.specs(NODE)),
        what="the spec is gone",
    )
