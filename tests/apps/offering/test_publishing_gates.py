"""Feature gates of the API server that are off, while the plugin starts, runs and is restarted."""

import api_cluster
import plugin_process
import pytest

from dra_driver.model import claims

pytestmark = pytest.mark.sampled(13)

COUNTERS, SHARES, TAINTS = "DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"
LOST = "gpu.nvidia.com/gpu-lost"
UNKNOWN = claims.ClaimRef("default", "unknown", claims.ClaimUid("0-unknown"))


class Scene:
    """A plugin that publishes partitions, shares and a taint, at a server without some gates."""

    def __init__(self, machine, gates, **flags):
        self.cluster = api_cluster.Cluster(disabled_gates=frozenset(gates))
        self.machine = machine
        flags = {"mig_mode": "dynamic", "shares": "8", "share_enforcement": "None"} | flags
        flags = {"gpus": "h100-80gb-hbm3:2", "health_hold_seconds": 0} | flags
        self.plugin = plugin_process.Plugin(machine, self.cluster, **flags)

    def close(self):
        self.plugin.kill()
        complaints = self.plugin.complaints()
        self.cluster.close()
        assert complaints == []

    def specs(self):
        return [body["spec"] for body in self.cluster.slices()]

    def devices(self):
        return {one["name"]: one for spec in self.specs() for one in spec.get("devices") or ()}

    def lose_a_held_gpu(self, *results):
        """A claim has a device of gpu-1, which falls off the bus."""
        ref = self.cluster.claim(*results)
        self.plugin.kubelet.prepare(ref)
        api_cluster.wait_for(lambda: self.devices().keys() >= {"gpu-0", "gpu-1"}, "both GPUs")
        self.machine.lose_gpus("gpu-1")
        self.plugin.wait_log("GPU is no longer offered", device="gpu-1")
        api_cluster.wait_for(
            lambda: [name for name in self.devices() if name.startswith("gpu-1")] == ["gpu-1"],
            "the held device of the lost GPU alone",
        )
        # Until then nobody is heard of that GPU, and that is told too.
        self.plugin.wait_log("listening to GPUs", gpus=1)
        api_cluster.wait_for(lambda: self.taints() in ([], [LOST]), lambda: f"{self.taints()}")

    def taints(self):
        return [taint["key"] for taint in self.devices()["gpu-1"].get("taints", ())]

    def put_wrong_and_wait_until_it_is_right(self):
        specs = self.specs()
        body = self.cluster.slices()[-1]
        # What is held of a GPU that is gone is kept as it is published.
        [device] = [one for one in body["spec"]["devices"] if one["name"] == "gpu-0"]
        device["attributes"]["index"] = {"int": 99}
        self.cluster.client.replace(self.cluster.slice_resource, body)
        api_cluster.wait_for(
            lambda: self.specs() == specs, lambda: f"slices as they were; {self.specs()}"
        )


@pytest.fixture
def scene(own_machine):
    made = []

    def make(*gates, **flags):
        made.append(Scene(own_machine, gates, **flags))
        made[-1].plugin.start()
        return made[-1]

    yield make
    for each in made:
        each.close()


def share(device):
    return {
        "device": device,
        "shareID": "0cf7ab2e-0000-4000-8000-000000000001",
        "consumedCapacity": {"memory": "10Gi"},
    }


@pytest.mark.parametrize("gate", [COUNTERS, SHARES, TAINTS])
def test_a_restart_writes_nothing_whichever_gate_is_off(scene, gate):
    made = scene(gate)
    device = share("gpu-1") if gate != SHARES else "gpu-1"
    made.lose_a_held_gpu(device)
    made.plugin.kubelet.unprepare(UNKNOWN)
    before, writes = made.cluster.slices(), len(made.cluster.slice_writes())
    made.plugin.kill()
    made.plugin.start()
    made.plugin.wait_log("publishing", count=2)
    # What is wrong from now on is put right by one write, and nothing else was written.
    made.put_wrong_and_wait_until_it_is_right()
    assert made.cluster.slice_writes()[writes:] == ["update"]
    assert [body["spec"] for body in made.cluster.slices()] == [body["spec"] for body in before]


def is_shared(made):
    there = {name: one for name, one in made.devices().items() if name != "gpu-1"}
    return all(one.get("allowMultipleAllocations") for one in there.values())


def has_partitions(made):
    counters = any(spec.get("sharedCounters") for spec in made.specs())
    return counters and len(made.devices()) > 2


def has_taint(made):
    return bool(made.devices().get("gpu-1", {}).get("taints"))


@pytest.mark.parametrize(
    ("gate", "device", "is_there"),
    [
        (COUNTERS, share("gpu-1"), has_partitions),
        (SHARES, "gpu-1", is_shared),
        (TAINTS, share("gpu-1"), has_taint),
    ],
    ids=[COUNTERS, SHARES, TAINTS],
)
def test_a_gate_that_is_opened_under_the_driver_lets_publish_what_it_kept_back(
    scene, gate, device, is_there
):
    made = scene(gate)
    made.lose_a_held_gpu(device)
    assert not is_there(made)
    made.cluster.upgrade(disabled_gates=frozenset())
    api_cluster.wait_for(lambda: is_there(made), f"what {gate} lets be published")
    pools = {tuple(spec["pool"].values()) for spec in made.specs()}
    assert len(pools) == 1
