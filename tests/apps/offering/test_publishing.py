"""The node's ResourceSlices: what is in them, and that they stay as they have to be."""

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(13)

TAINTED = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}


@pytest.fixture
def published(plugin, cluster):
    """The slices, as they are when nothing has happened to them."""
    return cluster.wait_devices("gpu-0", "gpu-1")


@pytest.fixture
def changed(published, cluster):
    """Changes the slice from outside, and waits until that is put right."""

    def change(edit):
        body = cluster.wait_devices("gpu-0", "gpu-1")[0]
        edit(body)
        version = cluster.client.replace(kube.SLICES, body)["metadata"]["resourceVersion"]
        return api_cluster.wait_for(
            lambda: [
                item
                for item in cluster.slices()
                if item["metadata"]["resourceVersion"] != version
                and item["spec"] == published[0]["spec"]
            ],
            "the slice as it was",
        )[0]

    return change


def test_a_slice_holds_the_gpus_of_the_node_and_belongs_to_the_node(
    own_plugin, own_cluster, own_machine
):
    own_plugin().start()
    published = own_cluster.wait_devices("gpu-0", "gpu-1")
    assert len(published) == 1
    metadata = published[0]["metadata"]
    assert metadata["generateName"] == "00000-gpu.nvidia.com-node-1-"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "node-1",
            "uid": own_cluster.node_uid(),
            "controller": True,
        }
    ]
    common = {
        "type": {"string": "gpu"},
        "brand": {"string": "Nvidia"},
        "addressingMode": {"string": "None"},
        "driverVersion": {"version": "580.159.4"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "mpsCapable": {"bool": True},
        "timeSliceCapable": {"bool": True},
    }
    h100 = common | {
        "uuid": {"string": own_machine.uuid("gpu-0")},
        "index": {"int": 0},
        "minor": {"int": 0},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "numaNode": {"int": 0},
        "resource.kubernetes.io/numaNode": {"int": 0},
        "resource.kubernetes.io/pciBusID": {"string": "0000:04:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:02"},
        "migCapable": {"bool": True},
    }
    t4 = common | {
        "uuid": {"string": own_machine.uuid("gpu-1")},
        "index": {"int": 1},
        "minor": {"int": 1},
        "productName": {"string": "Tesla T4"},
        "architecture": {"string": "Turing"},
        "cudaComputeCapability": {"version": "7.5.0"},
        "numaNode": {"int": 1},
        "resource.kubernetes.io/numaNode": {"int": 1},
        "resource.kubernetes.io/pciBusID": {"string": "0000:07:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:05"},
        "migCapable": {"bool": False},
    }
    assert published[0]["spec"] == {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {"name": "gpu-0", "attributes": h100, "capacity": {"memory": {"value": "81559Mi"}}},
            {"name": "gpu-1", "attributes": t4, "capacity": {"memory": {"value": "15Gi"}}},
        ],
    }


def test_slices_that_are_wiped_as_by_a_kubelet_that_starts_are_back(published, cluster):
    before = published[0]["metadata"]["uid"]
    cluster.client.delete_collection(kube.SLICES, field_selector="spec.nodeName=node-1")
    again = api_cluster.wait_for(cluster.slices, "slices")
    assert again[0]["metadata"]["uid"] != before
    assert again[0]["spec"] == published[0]["spec"]


def test_a_slice_that_someone_else_has_edited_is_put_right(changed, cluster):
    def edit(body):
        body["spec"]["devices"][0]["attributes"]["index"] = {"int": 7}
        del body["spec"]["devices"][1]

    before = len(cluster.slice_writes())
    changed(edit)
    assert cluster.slice_writes()[before:] == ["update"]


def test_slices_of_the_driver_that_are_not_ours_are_removed(published, cluster):
    spec = published[0]["spec"]
    for name, pool in (
        ("by-hand", spec["pool"]),
        ("00000-again", spec["pool"]),
        ("00001-out-of-range", spec["pool"]),
        ("00000-old", spec["pool"] | {"generation": 0}),
        ("00000-pool", spec["pool"] | {"name": "old-pool"}),
    ):
        body = published[0] | {"metadata": {"name": name}, "spec": spec | {"pool": pool}}
        cluster.client.create(kube.SLICES, body)
    items = api_cluster.wait_for(
        lambda: len(found := cluster.slices()) == 1 and found, "our slice alone"
    )
    assert items[0]["spec"] == spec


def test_slices_of_other_drivers_and_nodes_are_left_alone(published, changed, cluster):
    spec = published[0]["spec"]
    others = [
        published[0] | {"metadata": {"name": name}, "spec": spec | change}
        for name, change in (
            ("00000-nic", {"driver": "nic.example.com"}),
            ("00000-node-2", {"nodeName": "node-2", "pool": spec["pool"] | {"name": "node-2"}}),
        )
    ]
    versions = [
        cluster.client.create(kube.SLICES, body)["metadata"]["resourceVersion"] for body in others
    ]
    # A correction shows that the driver has looked at everything since.
    changed(lambda body: body["spec"]["devices"].pop())
    for body, version in zip(others, versions, strict=True):
        name = body["metadata"]["name"]
        assert cluster.client.get(kube.SLICES, name)["metadata"]["resourceVersion"] == version
        cluster.client.delete(kube.SLICES, name)


@pytest.mark.parametrize(
    "fault",
    [
        options.Fault(status=409, reason="Conflict"),
        options.Fault(status=503, reason="ServiceUnavailable"),
        options.Fault(status=403, reason="Forbidden"),
        options.Fault(drop="before"),
        options.Fault(drop="after"),
    ],
    ids=lambda fault: str(fault.status or fault.drop),
)
def test_a_write_that_fails_is_done_again_and_there_is_one_slice(own_plugin, own_cluster, fault):
    left = ["create", "update", "update"]

    def rule(call):
        ours = call.resource == "resourceslices" and call.user_agent.startswith("dra-driver/")
        if not ours or call.dry_run or call.verb != (left or [""])[0]:
            return None
        left.pop(0)
        return fault

    with own_cluster.faults.where(rule):
        own_plugin().start()
        body = own_cluster.wait_devices("gpu-0", "gpu-1")[0]
        while left:
            body["spec"]["devices"].pop()
            own_cluster.client.replace(kube.SLICES, body)
            body = own_cluster.wait_devices("gpu-0", "gpu-1")[0]
        assert len(own_cluster.slices()) == 1


def test_a_slice_with_values_that_this_driver_does_not_know_is_put_right():
    cluster = api_cluster.Cluster(enabled_gates=frozenset({"DRAListTypeAttributes"}))
    machine = plugin_process.Machine()
    plugin = plugin_process.Plugin(machine, cluster)
    try:
        plugin.start()
        published = cluster.wait_devices("gpu-0", "gpu-1")[0]
        body = cluster.slices()[0]
        body["spec"]["devices"][0]["attributes"]["numaNode"] = {"ints": [0]}
        cluster.client.replace(kube.SLICES, body)
        api_cluster.wait_for(
            lambda: cluster.slices()[0]["spec"] == published["spec"], "the slice as it was"
        )
        assert plugin.complaints() == []
    finally:
        plugin.kill()
        machine.close()
        cluster.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_writes_nothing_and_slices_stay_meanwhile(own_plugin, own_cluster, end):
    plugin = own_plugin().start()
    before = own_cluster.wait_devices("gpu-0", "gpu-1")
    if end == "stop":
        assert plugin.stop() == 0
    else:
        plugin.kill()
    assert own_cluster.slices() == before
    writes, watches = len(own_cluster.slice_writes()), own_cluster.slice_watches()
    plugin.start()
    api_cluster.wait_for(lambda: own_cluster.slice_watches() > watches, "a watch")
    assert own_cluster.slices() == before
    # The first thing that it writes is what is made necessary now.
    body = own_cluster.slices()[0]
    body["spec"]["devices"].pop()
    own_cluster.client.replace(kube.SLICES, body)
    own_cluster.wait_devices("gpu-0", "gpu-1")
    assert own_cluster.slice_writes()[writes:] == ["update"]


def test_a_node_object_that_comes_late_is_waited_for(own_machine):
    cluster = api_cluster.Cluster(with_node=False)
    plugin = plugin_process.Plugin(own_machine, cluster)
    try:
        plugin.start()
        plugin.wait_log("ResourceSlices not published")
        uid = cluster.create_node()
        items = cluster.wait_devices("gpu-0", "gpu-1")
        assert items[0]["metadata"]["ownerReferences"][0]["uid"] == uid
    finally:
        plugin.kill()
        cluster.close()


def test_a_node_object_that_is_made_anew_gets_slices_of_its_own(own_plugin, own_cluster):
    own_plugin().start()
    before = own_cluster.wait_devices("gpu-0", "gpu-1")[0]
    own_cluster.client.delete(kube.NODES, api_cluster.NODE)
    uid = own_cluster.create_node()
    after = api_cluster.wait_for(
        lambda: [
            item
            for item in own_cluster.slices()
            if item["metadata"]["ownerReferences"][0]["uid"] == uid
        ],
        "a slice that belongs to the new Node",
    )
    assert [item["spec"] for item in after] == [before["spec"]]
    own_cluster.client.delete_collection(kube.SLICES, field_selector="spec.nodeName=node-1")
    own_cluster.wait_devices("gpu-0", "gpu-1")


def test_an_api_server_that_was_away_gets_the_slices_again(own_plugin, own_cluster):
    own_plugin().start()
    published = own_cluster.wait_devices("gpu-0", "gpu-1")
    own_cluster.stop()
    own_cluster.start()
    own_cluster.create_node()
    assert own_cluster.wait_devices("gpu-0", "gpu-1")[0]["spec"] == published[0]["spec"]
