"""Partitions in ResourceSlices: as servers of several versions take them."""

import api_cluster
import plugin_process
import pytest

from dra_driver.logic.offering import publishing
from dra_driver.model import claims
from dra_driver.sim.gpus import gpu_operations

pytestmark = pytest.mark.sampled(11)

GATE = "DRAPartitionableDevices"
UNKNOWN = claims.ClaimRef("default", "unknown", claims.ClaimUid("0-unknown"))
REFUSED = (
    "the API server drops the counters of partitions, so none are offered. Switch on the "
    "feature gate DRAPartitionableDevices of API server and scheduler; it is on by default from "
    "Kubernetes 1.36 on"
)
FIRST = "gpu-0-mig-1g10gb-19-6"
WHOLE = ["gpu-0", "gpu-1"]
WRITTEN = "ResourceSlices written"


class Scene:
    """An API server with these options, and a plugin at it on a node with an H100 and a T4."""

    def __init__(self, *, flags=(), **options):
        self.cluster = api_cluster.Cluster(**options)
        self.machine = plugin_process.Machine()
        flags = {"mig_mode": "dynamic", "repacking_seconds": "0"} | dict(flags)
        self.plugin = plugin_process.Plugin(self.machine, self.cluster, **flags)

    def close(self):
        self.plugin.kill()
        complaints = self.plugin.complaints()
        self.cluster.close()
        self.machine.close()
        assert complaints == []

    def slices(self):
        """In publishing order, as v1."""
        found = [
            publishing.from_version(item, self.cluster.version) for item in self.cluster.slices()
        ]
        return sorted(found, key=lambda item: item["metadata"]["name"])

    def names(self):
        return [
            device["name"] for item in self.slices() for device in item["spec"].get("devices") or ()
        ]

    def wait_names(self, condition, what):
        return api_cluster.wait_for(
            lambda: condition(names := self.names()) and names, f"{what}: {self.names()}"
        )

    def wait_partitions(self):
        """The slices, once the pool is complete and has partitions."""

        def complete():
            found = self.slices()
            sizes = {item["spec"]["pool"]["resourceSliceCount"] for item in found}
            there = sum(len(item["spec"].get("devices") or ()) for item in found)
            return found if sizes == {len(found)} and there > 2 else None

        return api_cluster.wait_for(complete, "partitions")


@pytest.fixture
def scene():
    made = []

    def make(**options):
        made.append(Scene(**options))
        made[-1].plugin.start()
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_partitions_share_the_counters_of_their_gpu_and_come_before_whole_gpus(scene):
    made = scene()
    first, *others = made.wait_partitions()
    assert "devices" not in first["spec"]
    assert [one["name"] for one in first["spec"]["sharedCounters"]] == ["gpu-0-counter-set"]
    assert all("sharedCounters" not in item["spec"] for item in others)
    devices = [device for item in others for device in item["spec"]["devices"]]
    names = [device["name"] for device in devices]
    assert names[-2:] == ["gpu-1", "gpu-0"]
    assert all(name.startswith("gpu-0-mig-1g10gb-19-") for name in names[:7])
    sets = {
        device["name"]: [entry["counterSet"] for entry in device.get("consumesCounters") or ()]
        for device in devices
    }
    assert sets.pop("gpu-1") == []
    assert set(map(tuple, sets.values())) == {("gpu-0-counter-set",)}
    counters = first["spec"]["sharedCounters"][0]["counters"]
    [everything] = devices[-1]["consumesCounters"]
    assert everything["counters"] == counters


def test_with_the_gate_off_whole_gpus_are_offered_and_that_is_said_once(scene):
    made = scene(disabled_gates=frozenset({GATE}))
    made.cluster.wait_devices(*WHOLE)
    made.plugin.wait_log(REFUSED)
    # Each of these makes the driver look again.
    for _ in range(5):
        made.plugin.kubelet.unprepare(UNKNOWN)
    ref = made.cluster.claim("gpu-0")
    assert made.plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    made.plugin.kubelet.unprepare(ref)
    assert len(made.plugin.log(REFUSED)) == 1
    assert len(made.plugin.log("partitions are not offered: the API server takes no counters")) == 1
    assert made.cluster.slice_writes() == ["create"]
    assert "sharedCounters" not in made.slices()[0]["spec"]


def test_kubernetes_1_34_gets_counters_and_devices_of_a_gpu_in_one_slice(scene):
    made = scene(kubernetes_version="v1.34.2-sim", enabled_gates=frozenset({GATE}))
    found = made.wait_partitions()
    with_counters = [item for item in found if item["spec"].get("sharedCounters")]
    [one] = with_counters
    sets = {
        entry["counterSet"]
        for device in one["spec"]["devices"]
        for entry in device["consumesCounters"]
    }
    assert sets == {one["spec"]["sharedCounters"][0]["name"]} == {"gpu-0-counter-set"}
    assert {"gpu-0", FIRST} <= {device["name"] for device in one["spec"]["devices"]}
    ref = made.cluster.claim(FIRST)
    assert made.plugin.kubelet.prepare(ref) == [plugin_process.device(ref, FIRST)]


def test_kubernetes_1_34_with_the_gate_off_gets_whole_gpus(scene):
    made = scene(kubernetes_version="v1.34.2-sim")
    made.cluster.wait_devices(*WHOLE)
    made.plugin.wait_log(REFUSED)


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_a_kubernetes_before_1_34_gets_whole_gpus_and_static_instances(scene, mode):
    made = scene(
        kubernetes_version="v1.33.4-sim",
        resource_versions=("v1beta1",),
        flags={"mig_mode": mode, "gpus": "h100-80gb-hbm3:1,t4:1"},
    )
    made.cluster.wait_devices(*WHOLE)
    gpu_operations.create_instance(
        made.machine.simulation, made.machine.uuid("gpu-0"), "1g.10gb", 6
    )
    if mode == "dynamic":
        made.cluster.wait_devices("gpu-1")
        return
    made.wait_names(lambda names: names == [FIRST, "gpu-1"], "the instance")
    ref = made.cluster.claim(FIRST)
    assert made.plugin.kubelet.prepare(ref) == [plugin_process.device(ref, FIRST)]


def test_a_gate_that_is_switched_off_under_the_driver_withdraws_the_partitions(scene):
    made = scene()
    made.wait_partitions()
    made.cluster.restart_with(disabled_gates=frozenset({GATE}), resource_versions=("v1",))
    made.cluster.create_node()
    made.wait_names(lambda names: sorted(names) == WHOLE, "whole GPUs")
    assert all("sharedCounters" not in item["spec"] for item in made.slices())


def test_a_control_plane_that_goes_from_1_34_to_1_36_gets_its_slices(scene):
    made = scene(kubernetes_version="v1.34.2-sim", enabled_gates=frozenset({GATE}))
    made.wait_partitions()
    made.cluster.restart_with(
        kubernetes_version="v1.36.2-sim", enabled_gates=frozenset(), resource_versions=("v1",)
    )
    made.cluster.create_node()
    found = made.wait_partitions()
    assert "devices" not in found[0]["spec"]


def test_a_prepare_changes_the_order_inside_slices_and_no_generation(scene):
    made = scene(flags={"gpus": "h100-80gb-hbm3:2"})
    before = made.wait_partitions()
    made.plugin.wait_log(WRITTEN)
    writes = len(made.cluster.slice_writes())
    made.plugin.kubelet.prepare(made.cluster.claim("gpu-0-mig-1g10gb-19-0"))
    line = made.plugin.wait_log(WRITTEN, count=2)[1]
    after = made.slices()
    changed = [
        (old, new) for old, new in zip(before, after, strict=True) if old["spec"] != new["spec"]
    ]
    # One write for each profile whose order is another one now.
    assert (line["created"], line["updated"], line["deleted"]) == (0, len(changed), 0)
    assert made.cluster.slice_writes()[writes:] == ["update"] * len(changed)
    assert "gpu-0-mig-1g10gb-19-0" in device_names(changed[0][0])
    for old, new in changed:
        assert old["spec"]["pool"] == new["spec"]["pool"]
        assert device_names(old) != device_names(new)
        assert sorted(device_names(old)) == sorted(device_names(new))


def device_names(item):
    return [device["name"] for device in item["spec"].get("devices") or ()]


def test_an_instance_that_others_make_and_remove_is_seen_without_a_restart(scene):
    made = scene()
    made.wait_partitions()
    uuid = made.machine.uuid("gpu-0")
    foreign = gpu_operations.create_instance(made.machine.simulation, uuid, "1g.10gb", 6)
    made.wait_names(lambda names: FIRST not in names and "gpu-0" not in names, "less")
    gpu_operations.destroy_instance(made.machine.simulation, uuid, foreign.id)
    made.wait_names(lambda names: FIRST in names, "what was taken")


def test_a_restart_with_a_prepared_partition_writes_nothing(scene):
    made = scene()
    made.wait_partitions()
    made.plugin.wait_log(WRITTEN)
    ref = made.cluster.claim(FIRST)
    answer = made.plugin.kubelet.prepare(ref)
    made.plugin.kill()
    made.plugin.start()
    made.plugin.kubelet.unprepare()
    before, writes = made.slices(), len(made.cluster.slice_writes())
    assert made.plugin.kubelet.prepare(ref) == answer
    # The first thing that it writes is what is made necessary now.
    body = made.slices()[-1]
    body["spec"]["devices"][0]["attributes"]["index"] = {"int": 9}
    made.cluster.client.replace(made.cluster.slice_resource, body)
    api_cluster.wait_for(
        lambda: [item["spec"] for item in made.slices()] == [item["spec"] for item in before],
        "the slices as they were",
    )
    assert made.cluster.slice_writes()[writes:] == ["update"]
