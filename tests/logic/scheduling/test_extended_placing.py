"""Where a pod with `nvidia.com/gpu: 1` goes: by device plugins of a node, or by a claim."""

import pytest
from dra_objects import GPU_CLASS, claim, exactly, gpus, share_ids, slice_of

from dra_driver.logic.scheduling import (
    device_plugins,
    extended_resources,
    placing,
    pools,
    scheduling,
    usage,
)
from dra_driver.model import nodes

GPU, FPGA = "example.com/gpu", "example.com/fpga"
CLASSES = extended_resources.Classes({GPU: "gpu"}, {"gpu"})


def asking(amounts, **used):
    body = {
        "metadata": {"namespace": "default", "name": "train", "uid": "u"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": amounts}}]},
    }
    held = {node.replace("_", "-"): taken for node, taken in used.items()}
    return device_plugins.Demand(body, CLASSES, held)


def node(name, **offered):
    return nodes.Node(name, offered={f"example.com/{key}": n for key, n in offered.items()})


def place(demand, *on, named=(), gpus_of=("node-a", "node-b", "node-c")):
    published = [slice_of(*gpus(2), name=f"slice-{name}", pool=name, node=name) for name in gpus_of]
    view = scheduling.View(
        pools.Inventory.of(published), {"gpu": GPU_CLASS}, on, usage.InUse(), share_ids()
    )
    return scheduling.place(placing.parse(demand.pod), named, view, demand)


def devices(found):
    return [
        [(result.request, str(result.device)) for result in each.results]
        for each in found.allocations
    ]


def test_a_claim_gives_what_no_device_plugin_offers():
    found = place(asking({GPU: 2}), node("node-a", gpu=0))
    assert (found.node, found.served) == ("node-a", frozenset())
    assert [[request for request, _ in given] for given in devices(found)] == [
        ["container-0-request-0"] * 2
    ]


def test_a_device_plugin_that_offers_it_is_used_and_needs_no_claim():
    found = place(asking({GPU: 1}), node("node-a", gpu=1))
    assert (found.node, found.allocations, found.served) == ("node-a", (), {GPU})


def test_what_pods_have_of_a_device_plugin_is_not_given_again():
    demand = asking({GPU: 2}, node_a={GPU: 3}, node_b={GPU: 2})
    found = place(demand, node("node-a", gpu=4), node("node-b", gpu=4))
    assert (found.node, found.served) == ("node-b", {GPU})


def test_a_device_plugin_without_enough_is_told_though_devices_are_free():
    found = place(asking({GPU: 2}, node_a={GPU: 3}), node("node-a", gpu=4))
    assert found.message == f"0/1 nodes are available: 1 Insufficient {GPU}."


def test_one_resource_may_come_from_a_device_plugin_and_another_by_a_claim():
    demand = asking({GPU: 1, FPGA: 1})
    found = place(demand, node("node-a"), node("node-b", fpga=1))
    assert (found.node, found.served) == ("node-b", {FPGA})
    assert [[request for request, _ in given] for given in devices(found)] == [
        ["container-0-request-1"]
    ]


def test_nodes_are_asked_each_in_its_own_way():
    """The first lacks devices, the second has a device plugin."""
    found = place(asking({GPU: 3}), node("node-a"), node("node-b", gpu=4))
    assert (found.node, found.served) == ("node-b", {GPU})


@pytest.mark.parametrize("on", [node("node-a"), nodes.Node("node-a")])
def test_what_nobody_serves_is_insufficient(on):
    found = place(asking({FPGA: 1}), on)
    assert found.message == f"0/1 nodes are available: 1 Insufficient {FPGA}."


def test_all_that_a_node_lacks_is_told():
    found = place(asking({FPGA: 1, "example.com/nic": 1}), node("node-a", fpga=0))
    assert found.message == (
        f"0/1 nodes are available: 1 Insufficient {FPGA}, Insufficient example.com/nic."
    )


def test_the_claims_that_the_pod_names_come_first():
    named = [claim(exactly(count=2))]
    found = place(asking({GPU: 1}), node("node-a"), named=named)
    assert 'request "container-0-request-0" of claim train-extended-resources-*' in found.message
    found = place(asking({GPU: 1}), node("node-a"), named=[claim(exactly())])
    assert devices(found) == [
        [("gpu", "gpu.example.com/node-a/gpu-0")],
        [("container-0-request-0", "gpu.example.com/node-a/gpu-1")],
    ]


def test_without_extended_resources_nothing_is_asked_of_device_plugins():
    found = place(asking({"cpu": 1}), node("node-a"))
    assert (found.node, found.allocations) == ("node-a", ())
