"""What is told of claims whose GPU is gone, and when it is back."""

import api_cluster
import mig_node
import plugin_process
import pytest

from dra_driver.apps.telling import gpu_health
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(7)

DRIVER_NOT_LOADED = 9


def conditions(cluster, ref, kind="Ready"):
    """Device, status, reason and message of each condition of a claim, of one type."""
    entries = (cluster.get_claim(ref).get("status") or {}).get("devices") or ()
    return [
        (entry["device"], one["status"], one["reason"], one["message"])
        for entry in entries
        for one in entry["conditions"]
        if one["type"] == kind
    ]


def wait_conditions(cluster, ref, *wanted):
    api_cluster.wait_for(
        lambda: [one[:3] for one in conditions(cluster, ref)] == [*wanted],
        lambda: f"{wanted}; there are {conditions(cluster, ref)}",
    )


def wait_healthy(cluster, ref, wanted):
    api_cluster.wait_for(
        lambda: [one[:3] for one in conditions(cluster, ref, "Healthy")] == [wanted],
        lambda: f"{wanted}; there is {conditions(cluster, ref, 'Healthy')}",
    )


def test_a_claim_is_told_when_its_gpu_is_lost_and_when_it_is_back(
    own_plugin, own_machine, own_cluster
):
    plugin = own_plugin().start()
    ref, other = own_cluster.claim("gpu-1"), own_cluster.claim("gpu-0")
    plugin.kubelet.prepare(ref, other)
    wait_conditions(own_cluster, ref, ("gpu-1", "True", "Prepared"))
    wait_conditions(own_cluster, other, ("gpu-0", "True", "Prepared"))
    own_machine.lose_gpus("gpu-1")
    wait_conditions(own_cluster, ref, ("gpu-1", "False", "GpuLost"))
    assert conditions(own_cluster, ref)[0][3] == gpu_health.LOST
    wait_healthy(own_cluster, ref, ("gpu-1", "False", "GpuLost"))
    wait_conditions(own_cluster, other, ("gpu-0", "True", "Prepared"))

    # It is told so after a restart too, and not written again.
    before = own_cluster.get_claim(ref)
    plugin.kill()
    plugin.start()
    plugin.kubelet.unprepare(other)
    third = own_cluster.claim("gpu-0")
    plugin.kubelet.prepare(third)
    wait_conditions(own_cluster, third, ("gpu-0", "True", "Prepared"))
    assert own_cluster.get_claim(ref) == before

    own_machine.heal_gpus()
    wait_conditions(own_cluster, ref, ("gpu-1", "True", "Prepared"))
    assert len(plugin.log("GPU of a claim is back")) == 1
    wait_healthy(own_cluster, ref, ("gpu-1", "True", "Well"))
    wait_healthy(own_cluster, third, ("gpu-0", "True", "Well"))


def test_claims_are_told_while_the_driver_is_away(own_plugin, own_machine, own_cluster):
    plugin = own_plugin().start()
    ref = own_cluster.claim("gpu-0")
    plugin.kubelet.prepare(ref)
    gpu_faults.inject(own_machine.simulation, error=DRIVER_NOT_LOADED, function="nvmlInitWithFlags")
    wait_conditions(own_cluster, ref, ("gpu-0", "False", "GpuLost"))
    assert "Driver Not Loaded" in conditions(own_cluster, ref)[0][3]
    own_machine.heal_gpus()
    wait_conditions(own_cluster, ref, ("gpu-0", "True", "Prepared"))
    ref = own_cluster.claim("gpu-1")
    assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-1")]


@pytest.fixture
def told(node):
    """What is told of claims, in order."""
    made = []
    health = gpu_health.GpuHealth(
        node.gpus, on_change=lambda record, gone: made.append((record.uid, gone))
    )
    return health, made


def look(node, health):
    node.gpus.look()
    health.tell(node.store.records.contents().records.values())


def test_only_changes_are_told_and_only_of_claims_that_are_concerned(node, api, told, lose):
    health, made = told
    first, second = api.make("gpu-0", mig_node.OTHER_CARD), api.make(mig_node.FIRST)
    node.prepare(first)
    look(node, health)
    assert made == []
    lose(1)
    look(node, health)
    look(node, health)
    assert made == [(first.uid, {mig_node.OTHER_CARD: gpu_health.LOST})]
    gpu_faults.clear(node.simulation)
    look(node, health)
    assert made[1:] == [(first.uid, {})]
    node.unprepare(first)
    node.prepare(second)
    lose(1)
    look(node, health)
    assert len(made) == 2


def test_what_was_told_otherwise_is_not_told_again_and_is_compared_with(node, api, told, lose):
    health, made = told
    ref = api.make(mig_node.OTHER_CARD)
    node.prepare(ref)
    [record] = node.store.records.contents().records.values()
    lose(1)
    node.gpus.look()
    health.now_told(record, health.gone(record))
    look(node, health)
    assert made == []
    gpu_faults.clear(node.simulation)
    look(node, health)
    assert made == [(ref.uid, {})]


def test_a_gpu_that_is_back_before_it_was_looked_at_is_told_to_be(node, api, told):
    health, made = told
    ref = api.make(mig_node.OTHER_CARD)
    node.prepare(ref)
    [record] = node.store.records.contents().records.values()
    health.now_told(record, {mig_node.OTHER_CARD: gpu_health.LOST})
    look(node, health)
    look(node, health)
    assert made == [(ref.uid, {})]
