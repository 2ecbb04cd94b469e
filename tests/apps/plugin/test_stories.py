"""Whole stories of a node with pods of every kind: in the end all is offered as by a fresh node.

A card in parts, a whole one with MPS, one in shares and a plain one are in use all the time.
"""

import api_cluster
import pytest
import sharing_claims
import sharing_node

from dra_driver.adapters.kube import kube
from dra_driver.adapters.mps import mps_domain
from dra_driver.model import claims, slices
from dra_driver.sim.gpus import gpu_faults, gpu_operations

pytestmark = pytest.mark.sampled(13)

GATES = ("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints")
PARTITION = "gpu-0-mig-1g10gb-19-6"
WHOLE, SHARED, PLAIN = "gpu-1", "gpu-2", "gpu-3"
HELD = (PARTITION, WHOLE, SHARED, PLAIN)
LOST = "gpu.nvidia.com/gpu-lost"
DRIVER = "gpu.nvidia.com/driver"
DRIVER_NOT_LOADED = 9
UNKNOWN = claims.ClaimRef("default", "unknown", claims.ClaimUid("0-unknown"))
SETTINGS = """
migMode: dynamic
gpus:
- selector: device.attributes['gpu.nvidia.com'].minor == 2
  shares: "8"
  shareEnforcement: None
"""


class Node:
    """A node with four GPUs and the plugin, each GPU with a pod that uses it."""

    def __init__(self, machine, cluster, new_plugin):
        self.machine, self.cluster = machine, cluster
        self.settings = machine.root / "settings.yaml"
        self.settings.write_text(SETTINGS)
        self.plugin = new_plugin(
            gpus="h100-80gb-hbm3:2,t4:2",
            config=self.settings,
            # It is in the settings file.
            mig_mode=None,
        ).start()
        self.refs = [
            cluster.claim(PARTITION),
            cluster.claim(WHOLE, config=[sharing_claims.mps_gpu()]),
            cluster.claim(sharing_claims.share(SHARED, memory=1)),
            cluster.claim(PLAIN),
        ]
        self.prepare()
        self.fresh = api_cluster.wait_for(self.whole_offer, "a whole pool")

    def close(self):
        """The pods end; daemons that are left are ended."""
        try:
            self.plugin.kubelet.unprepare(*self.refs)
        finally:
            self.end_daemons()

    def prepare(self):
        """As the kubelet does for each pod, in this order."""
        self.devices = [self.plugin.kubelet.prepare(ref) for ref in self.refs]

    def end_daemons(self):
        for path in (self.machine.plugin / "mps").glob("*"):
            process = mps_domain.Domain(path).supervisor()
            if process is not None:
                sharing_node.kill(process)

    def restart(self, **settings):
        """The plugin is started anew, with this content of the settings file."""
        self.plugin.kill()
        if settings:
            self.settings.write_text(settings["content"])
        self.plugin.start()

    def offer(self):
        """Devices and counter sets by name, as published, without the times of taints."""
        found = {}
        for body in self.cluster.slices():
            for device in body["spec"].get("devices") or ():
                found[device["name"]] = slices.without_times(device)
            for counters in body["spec"].get("sharedCounters") or ():
                found[counters["name"]] = counters
        return found

    def whole_offer(self):
        """The same, of a pool that is whole and has partitions; None while it is not."""
        pools = [body["spec"]["pool"] for body in self.cluster.slices()]
        is_whole = pools and all(
            pool == pools[0] and pool["resourceSliceCount"] == len(pools) for pool in pools
        )
        offer = self.offer()
        return offer if is_whole and len(offer) > 20 else None

    def tainted(self):
        """The devices that are said to be lost, or to have no driver that answers."""
        return {
            name
            for name, device in self.offer().items()
            if {LOST, DRIVER} & {taint["key"] for taint in device.get("taints") or ()}
        }

    def wait_offer(self, *names):
        """Wait until just these are offered, devices and counter sets."""
        api_cluster.wait_for(
            lambda: self.offer().keys() == set(names), lambda: f"{names}: {[*self.offer()]}"
        )

    def all_is_well(self):
        """The pods have what they had, and all is offered that a fresh node offers."""
        api_cluster.wait_for(
            lambda: self.whole_offer() == self.fresh,
            lambda: f"{difference(self.whole_offer() or {}, self.fresh)} as by a fresh node",
        )
        before = self.devices
        self.prepare()
        assert self.devices == before
        writes = len(self.cluster.slice_writes())
        self.plugin.kubelet.unprepare(UNKNOWN)
        # What is wrong from now on is the first thing that is written.
        body = self.cluster.slices()[-1]
        body["spec"]["devices"][0]["attributes"]["index"] = {"int": 99}
        self.cluster.client.replace(kube.SLICES, body)
        api_cluster.wait_for(lambda: self.whole_offer() == self.fresh, "what was changed")
        assert self.cluster.slice_writes()[writes:] == ["update"]
        assert self.plugin.complaints() == []


def difference(one, other):
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.fixture
def node(own_machine, own_cluster, own_plugin):
    made = Node(own_machine, own_cluster, own_plugin)
    yield made
    made.close()


def test_the_driver_is_away_for_a_while(node):
    gpu_faults.inject(
        node.machine.simulation, error=DRIVER_NOT_LOADED, function="nvmlInitWithFlags"
    )
    node.wait_offer(*HELD)
    assert node.tainted() == {*HELD}
    node.machine.heal_gpus()
    node.all_is_well()


def test_the_driver_is_away_while_the_plugin_is_started(node):
    node.plugin.kill()
    gpu_faults.inject(
        node.machine.simulation, error=DRIVER_NOT_LOADED, function="nvmlInitWithFlags"
    )
    node.plugin.start()
    node.wait_offer(*HELD)
    node.machine.heal_gpus()
    node.all_is_well()


def test_each_card_is_lost_for_a_while(node):
    for card, held in zip(("gpu-0", "gpu-1", "gpu-2", "gpu-3"), HELD, strict=True):
        node.machine.lose_gpus(card)
        api_cluster.wait_for(lambda held=held: node.tainted() == {held}, f"{held} tainted")
        node.machine.heal_gpus()
        api_cluster.wait_for(lambda: not node.tainted(), "no taint")
    node.all_is_well()


def test_slices_are_deleted_while_cards_are_lost(node):
    node.machine.lose_gpus("gpu-0", "gpu-1")
    api_cluster.wait_for(lambda: node.tainted() == {PARTITION, WHOLE}, "taints")
    node.cluster.client.delete_collection(kube.SLICES, field_selector="spec.nodeName=node-1")
    api_cluster.wait_for(lambda: node.tainted() == {PARTITION, WHOLE}, "the same taints")
    node.machine.heal_gpus()
    node.all_is_well()


def test_feature_gates_are_closed_and_opened(node):
    for gates in (GATES[:1], GATES[1:], GATES):
        node.cluster.upgrade(disabled_gates=frozenset(gates))
        api_cluster.wait_for(
            lambda gates=gates: ("gpu-0-counter-set" in node.offer()) is (GATES[0] not in gates),
            f"counters as {gates} let them be",
        )
    node.machine.lose_gpus("gpu-1")
    node.plugin.wait_log("GPU is no longer offered", device="gpu-1")
    node.machine.heal_gpus()
    node.cluster.upgrade(disabled_gates=frozenset())
    node.all_is_well()


def test_the_api_server_is_away_while_a_card_is_lost_and_comes_back(node):
    node.cluster.upgrade()
    node.machine.lose_gpus("gpu-0")
    node.plugin.wait_log("GPU is no longer offered", device="gpu-0")
    node.cluster.upgrade()
    api_cluster.wait_for(lambda: node.tainted() == {PARTITION}, "the taint")
    node.machine.heal_gpus()
    node.all_is_well()


def test_the_settings_are_others_for_a_while(node):
    node.restart(content='migMode: "off"\n')
    api_cluster.wait_for(
        lambda: not any("counter-set" in name for name in node.offer()), "no counters"
    )
    node.restart(content=f"packing: spread\n{SETTINGS}")
    api_cluster.wait_for(node.whole_offer, "partitions")
    node.restart(content=SETTINGS)
    node.all_is_well()


def test_the_node_is_rebooted(node):
    node.plugin.kill()
    node.end_daemons()
    gpu_operations.reboot(node.machine.simulation)
    node.machine.boot("boot-2")
    for path in node.machine.cdi.iterdir():
        path.unlink()
    node.plugin.start()
    node.prepare()
    node.all_is_well()


def test_the_pods_end_and_nothing_is_left(node, own_cluster):
    node.plugin.kubelet.unprepare(*node.refs)
    api_cluster.wait_for(lambda: node.whole_offer() == node.fresh, "all that a node offers")
    assert node.machine.files() == []
