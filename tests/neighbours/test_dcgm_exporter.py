"""To which claims dcgm-exporter gives the series of a GPU, by this driver's slices.

The rules are those of NVIDIA/dcgm-exporter d5e5f510, internal/pkg/transformation/dra.go (devices by
pool and name) and kubernetes.go (`toDeviceToPodsDRA`); partitions are told apart by the UUID of
their card and their own, and one without a UUID is passed over (issue 714).
"""

import dataclasses

import api_cluster
import neighbour_fleet
import plugin_process
import pytest

from dra_driver.sim.gpus import gpu_operations, gpu_state

DRIVER = "gpu.nvidia.com"
"""It is written into the exporter: no other driver's slices are read."""


@dataclasses.dataclass(frozen=True)
class Partition:
    parent: str
    profile: str
    uuid: str


class Exporter:
    """What it knows of devices."""

    def __init__(self, published):
        self._cards, self._partitions = {}, {}
        for body in published:
            spec = body["spec"]
            for device in spec.get("devices", ()) if spec["driver"] == DRIVER else ():
                self._take((spec["pool"]["name"], device["name"]), device["attributes"])

    def _take(self, key, attributes):
        def text(name):
            return attributes.get(name, {}).get("string", "")

        if text("type") == "gpu" and text("uuid"):
            self._cards[key] = text("uuid")
        if text("type") == "mig" and text("parentUUID"):
            self._partitions[key] = Partition(text("parentUUID"), text("profile"), text("uuid"))

    def series(self, result):
        """What the series of an allocated device are found by; None: they have no claim."""
        if result["driver"] != DRIVER:
            return None
        key = (result["pool"], result["device"])
        part = self._partitions.get(key)
        if part is not None:
            return (part.parent, part.uuid) if part.uuid else None
        return self._cards.get(key)

    def profile(self, result):
        return self._partitions[result["pool"], result["device"]].profile


def uuids(published, node):
    return {
        device["name"]: device["attributes"]["uuid"]["string"]
        for body in published
        if body["spec"]["nodeName"] == node
        for device in body["spec"].get("devices", ())
        if device["attributes"]["type"]["string"] == "gpu"
    }


@pytest.mark.parametrize(("node", "count"), [("plain", 2), ("mig", 1)])
def test_whole_gpus_are_found_by_their_uuid(fleet, node, count):
    asked = {"deviceClassName": "exclusive.gpu.nvidia.com", "count": count}
    pod = fleet.pod([{"name": "gpu", "exactly": asked}], node=node).wait_running()
    published = fleet.slices()
    exporter, known = Exporter(published), uuids(published, node)
    found = [exporter.series(result) for result in pod.results()]
    assert found == [known[result["device"]] for result in pod.results()]
    # The container sees the cards of those UUIDs.
    assert all(any(uuid in line for line in pod.output()) for uuid in found)
    pod.delete()


def test_shares_of_a_card_have_the_series_of_the_card(fleet):
    share = {"requests": {"memory": "1Gi", "cores": "5"}}
    asked = {"deviceClassName": "shared.gpu.nvidia.com", "capacity": share}
    pods = [fleet.pod([{"name": "gpu", "exactly": asked}]).wait_running() for _ in range(2)]
    exporter = Exporter(fleet.slices())
    found = {exporter.series(pod.results()[0]) for pod in pods}
    assert found == set(uuids(fleet.slices(), "shared").values())
    for pod in pods:
        pod.delete()


def test_partitions_that_are_made_on_demand_are_passed_over_for_want_of_a_uuid(fleet):
    selector = {"cel": {"expression": 'device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'}}
    asked = {"deviceClassName": "mig.nvidia.com", "selectors": [selector]}
    pod = fleet.pod([{"name": "gpu", "exactly": asked}]).wait_running()
    exporter = Exporter(fleet.slices())
    [result] = pod.results()
    assert exporter.series(result) is None
    assert exporter.profile(result) == "1g.10gb"
    pod.delete()


def test_instances_of_an_administrator_are_found_by_card_and_uuid(own_cluster, own_machine):
    plugin = plugin_process.Plugin(
        own_machine, own_cluster, gpus="h100-80gb-hbm3:1", mig_mode="static"
    )
    plugin.start()
    try:
        own_cluster.wait_devices("gpu-0")
        card = own_machine.uuid("gpu-0")
        made = gpu_operations.create_instance(own_machine.simulation, card, "1g.10gb", 0)
        [found] = api_cluster.wait_for(
            lambda: [
                device
                for body in own_cluster.slices()
                for device in body["spec"].get("devices", ())
                if device["attributes"]["type"]["string"] == "mig"
            ],
            "the instance is offered",
        )
        result = {"driver": DRIVER, "pool": api_cluster.NODE, "device": found["name"]}
        exporter = Exporter(own_cluster.slices())
        state = gpu_state.open_file(own_machine.simulation).read()
        [instance] = [
            compute.uuid
            for gpu in state.gpus
            for one in gpu.gpu_instances
            if one.id == made.id
            for compute in one.compute_instances
        ]
        assert exporter.series(result) == (card, instance)
    finally:
        plugin.stop()


def test_another_driver_name_is_not_read():
    renamed = {
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node"},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-1"}},
                }
            ],
        }
    }
    result = {"driver": "gpu.example.com", "pool": "node", "device": "gpu-0"}
    assert Exporter([renamed]).series(result) is None
    assert neighbour_fleet.DRIVER == DRIVER
