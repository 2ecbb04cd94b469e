"""This driver's slices as cluster-autoscaler and Karpenter read them.

Cluster-autoscaler: kubernetes/autoscaler 55c37cd5, cluster-autoscaler/docs/dra_support.md (what
drivers have to publish, utilisation, the wait for pools of a new node). Karpenter:
kubernetes-sigs/karpenter 22664681, pkg/controllers/nodeclaim/lifecycle/initialization.go.
"""

import collections
import statistics

import api_cluster
import neighbour_fleet
import plugin_process
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.logic.cel import selection
from dra_driver.model import quantities, slices

NODES = [spec.name for spec in neighbour_fleet.SPECS]


def pools(published):
    """The slices of the newest generation, by driver and pool."""
    found = collections.defaultdict(list)
    for body in published:
        found[body["spec"]["driver"], body["spec"]["pool"]["name"]].append(body["spec"])
    newest = {key: max(s["pool"]["generation"] for s in specs) for key, specs in found.items()}
    return {
        key: [spec for spec in specs if spec["pool"]["generation"] == newest[key]]
        for key, specs in found.items()
    }


def is_complete(specs):
    return 0 < len(specs) == specs[0]["pool"]["resourceSliceCount"]


# Cluster-autoscaler


def complete_pools(published, node):
    """How many complete pools of each driver a node has; a new one waits for so many."""
    local = [body for body in published if body["spec"].get("nodeName") == node]
    done = [driver for (driver, _), specs in pools(local).items() if is_complete(specs)]
    return dict(collections.Counter(done))


def utilisation(published, node, taken):
    """The largest of the pools of a node; `taken` are names of devices that are allocated.

    Of a pool with counters: the mean over its sets of the counter that is used most.
    """
    local = [body for body in published if body["spec"].get("nodeName") == node]
    return max(_used(specs, taken) for specs in pools(local).values())


def _used(specs, taken):
    devices = [device for spec in specs for device in spec.get("devices", ())]
    used = [device for device in devices if device["name"] in taken]
    sets = {
        one["name"]: one["counters"] for spec in specs for one in spec.get("sharedCounters", ())
    }
    if not sets:
        return len(used) / len(devices)
    spent = {name: collections.Counter() for name in sets}
    for device in used:
        for entry in device["consumesCounters"]:
            for name, counter in entry["counters"].items():
                spent[entry["counterSet"]][name] += quantities.parse(counter["value"]).value
    return statistics.mean(
        max(spent[name][each] / quantities.parse(c["value"]).value for each, c in counters.items())
        for name, counters in sets.items()
    )


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_one_complete_pool_of_the_driver_which_is_named_after_it(fleet, node):
    published = fleet.slices()
    assert complete_pools(published, node) == {neighbour_fleet.DRIVER: 1}
    assert [key for key in pools(published) if key[1] == node] == [(neighbour_fleet.DRIVER, node)]


def test_devices_are_those_of_one_node_and_of_no_others(fleet):
    for body in fleet.slices():
        spec = body["spec"]
        assert spec["nodeName"] in NODES
        assert {"nodeSelector", "allNodes", "perDeviceNodeSelection"}.isdisjoint(spec)


def test_cards_of_one_model_have_the_same_counters(fleet):
    sets = [
        one["counters"]
        for body in fleet.slices()
        if body["spec"]["nodeName"] == "mig"
        for one in body["spec"].get("sharedCounters", ())
    ]
    assert len(sets) == 2
    assert sets[0] == sets[1]


@pytest.mark.parametrize(
    ("node", "request_", "expected"),
    [
        ("plain", {"deviceClassName": "gpu.nvidia.com"}, 0.5),
        ("mig", {"deviceClassName": "exclusive.gpu.nvidia.com"}, 0.5),
        ("mig", {"deviceClassName": "exclusive.gpu.nvidia.com", "count": 2}, 1.0),
    ],
)
def test_utilisation_is_the_part_of_the_cards_that_is_taken(fleet, node, request_, expected):
    pod = fleet.pod([{"name": "gpu", "exactly": request_}], node=node).wait_running()
    taken = {result["device"] for result in pod.results()}
    assert utilisation(fleet.slices(), node, taken) == pytest.approx(expected)
    pod.delete()


def test_a_small_partition_counts_by_the_counter_that_it_takes_most_of(fleet):
    small = {"cel": {"expression": 'device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'}}
    asked = {"deviceClassName": "mig.nvidia.com", "selectors": [small]}
    pod = fleet.pod([{"name": "gpu", "exactly": asked}]).wait_running()
    taken = {result["device"] for result in pod.results()}
    # Its memory slice is one whole counter.
    assert utilisation(fleet.slices(), "mig", taken) == pytest.approx(0.5)
    pod.delete()


MADE_UP = slices.Device("gpu-0", {"type": "gpu"}, {})
"""A device of a node group without nodes: cluster-autoscaler/cloudprovider/clusterapi,
`InstanceResourceSlices`."""


def meets(class_body, *selectors):
    """Whether the made-up device has what is asked for; None: that cannot be told, an error."""
    listed = [*class_body["spec"]["selectors"], *({"cel": {"expression": s}} for s in selectors)]
    try:
        return all(
            selection.compile(each["cel"]["expression"]).matches(MADE_UP, neighbour_fleet.DRIVER)
            for each in listed
        )
    except selection.EvaluationError:
        return None


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("gpu.nvidia.com", True),
        ("exclusive.gpu.nvidia.com", True),
        ("mig.nvidia.com", False),
        ("shared.gpu.nvidia.com", False),
        ("shared-mps.gpu.nvidia.com", False),
        ("time-sliced.gpu.nvidia.com", None),
        ("mps.gpu.nvidia.com", None),
    ],
)
def test_which_classes_have_devices_of_a_node_that_is_not_there_yet(fleet, class_name, expected):
    assert meets(fleet.classes()[class_name]) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ('device.attributes["gpu.nvidia.com"].type == "gpu"', True),
        ('!("enforcement" in device.attributes["gpu.nvidia.com"])', True),
        ('device.attributes["gpu.nvidia.com"].productName == "Tesla T4"', None),
        ('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("1Gi")) >= 0', None),
    ],
)
def test_selectors_on_what_is_not_made_up_keep_a_group_at_zero(fleet, selector, expected):
    assert meets(fleet.classes()["gpu.nvidia.com"], selector) is expected


# Karpenter


def drivers_published(requested, published, node):
    """Whether each driver of `karpenter.sh/requested-dra-drivers` has a complete pool."""
    local = [
        body
        for body in published
        if body["spec"].get("nodeName") == node
        or any(
            owner["kind"] == "Node" and owner["name"] == node
            for owner in body["metadata"].get("ownerReferences", ())
        )
    ]
    complete = {driver for (driver, _), specs in pools(local).items() if is_complete(specs)}
    return {name.strip() for name in requested.split(",") if name.strip()} <= complete


@pytest.mark.parametrize("node", NODES)
def test_a_node_is_initialized_once_its_pool_is_complete(fleet, node):
    published = fleet.slices()
    assert drivers_published(neighbour_fleet.DRIVER, published, node)
    assert not drivers_published(f"{neighbour_fleet.DRIVER}, nic.example", published, node)
    own = [body for body in published if body["spec"]["nodeName"] == node]
    assert not drivers_published(neighbour_fleet.DRIVER, own[1:], node)


def test_counters_and_devices_are_in_slices_of_their_own(fleet):
    for body in fleet.slices():
        assert not (body["spec"].get("sharedCounters") and body["spec"].get("devices"))


# Both: how a pool comes to be


def test_a_pool_becomes_complete_in_one_sequence_of_writes(own_cluster, own_machine):
    plugin = plugin_process.Plugin(
        own_machine, own_cluster, gpus="h100-80gb-hbm3:2", mig_mode="dynamic"
    )
    plugin.start()
    try:
        plugin_process.register(plugin.registration_socket)
        [found] = api_cluster.wait_for(
            lambda: [
                specs
                for specs in pools(own_cluster.client.list(kube.SLICES)[0]).values()
                if is_complete(specs)
            ],
            "a complete pool",
        )
        # Each slice is written once, and all of them say how many there will be.
        assert own_cluster.slice_writes() == ["create"] * len(found)
        assert {spec["pool"]["generation"] for spec in found} == {1}
        assert {spec["pool"]["resourceSliceCount"] for spec in found} == {len(found)}
    finally:
        plugin.stop()
