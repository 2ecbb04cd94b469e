"""Partitions with the real plugin: sockets, API server, restarts, kills."""

import functools
import itertools

import api_cluster
import plugin_process
import plugin_victim
import pytest

from dra_driver.sim.api.serving import options
from dra_driver.sim.gpus import gpu_faults, gpu_operations, gpu_state

pytestmark = pytest.mark.sampled(11)

FIRST, SECOND = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-0"
ADOPTING = "MIG instance of others adopted"
REFUSED = options.Fault(status=403, reason="Forbidden")


@pytest.fixture
def plugin(own_plugin):
    return own_plugin(mig_mode="dynamic").start()


def card(machine):
    return gpu_state.open_file(machine.simulation).read().gpus[0]


def made_by_others(machine):
    """An instance that is there before the plugin is."""
    gpu_state.install(machine.simulation, ("h100-80gb-hbm3", "t4"), node=api_cluster.NODE)
    return gpu_operations.create_instance(machine.simulation, machine.uuid("gpu-0"), "1g.10gb", 6)


def told(cluster, ref):
    """The UUIDs that the claim's status tells."""
    entries = cluster.get_claim(ref)["status"].get("devices") or ()
    return {entry.get("data", {}).get("uuid", {}).get("string") for entry in entries}


def is_clean(machine):
    assert machine.files() == []
    assert list((machine.plugin / "gpus").iterdir()) == []
    assert (card(machine).gpu_instances, card(machine).mig_enabled) == ([], False)


def test_a_claim_of_two_requests_gets_two_instances_and_gives_them_back(
    plugin, own_cluster, own_machine
):
    ref = own_cluster.claim(
        {"device": FIRST, "request": "one"}, {"device": SECOND, "request": "two"}
    )
    assert plugin.kubelet.prepare(ref) == [
        plugin_process.device(ref, FIRST, "one"),
        plugin_process.device(ref, SECOND, "two"),
    ]
    uuids = {one.uuid for one in own_machine.record(ref).partitions}
    assert uuids == {
        ci.uuid for gi in card(own_machine).gpu_instances for ci in gi.compute_instances
    }
    api_cluster.wait_for(lambda: told(own_cluster, ref) == uuids, lambda: told(own_cluster, ref))
    plugin.kubelet.unprepare(ref)
    is_clean(own_machine)


def test_an_instance_that_is_in_use_is_an_answer_that_names_the_process(
    plugin, own_cluster, own_machine
):
    ref = own_cluster.claim(FIRST)
    plugin.kubelet.prepare(ref)
    uuid = own_machine.uuid("gpu-0")
    gpu_operations.start_process(own_machine.simulation, uuid, 4711, gi=0, ci=0)
    answer = plugin.kubelet.ask_unprepare(ref, timeout=4)[ref.uid]
    assert "4711" in answer.error
    assert own_machine.record(ref) is not None
    gpu_operations.end_process(own_machine.simulation, uuid, 4711)
    plugin.kubelet.unprepare(ref)
    is_clean(own_machine)


def test_a_prepare_that_nvml_refuses_is_an_answer_and_leaves_nothing(
    plugin, own_cluster, own_machine
):
    function = "nvmlGpuInstanceCreateComputeInstance"
    gpu_faults.inject(own_machine.simulation, error=4, function=function)
    error = plugin.kubelet.refusal(own_cluster.claim(FIRST))
    assert "run the plugin as root and privileged" in error
    is_clean(own_machine)


def test_foreign_instances_are_adopted_after_a_complete_list_alone(
    own_plugin, own_cluster, own_machine
):
    made_by_others(own_machine)
    plugin = own_plugin(mig_mode="dynamic", adopt_foreign_mig="true")

    def rule(call):
        listed = call.resource == "resourceclaims" and call.verb == "list"
        return REFUSED if listed else None

    with own_cluster.faults.where(rule):
        plugin.start()
        plugin.wait_log("claims cannot be read; nothing is cleaned up meanwhile")
        assert len(card(own_machine).gpu_instances) == 1
        plugin.kill()
    assert plugin.log(ADOPTING) == []
    plugin.start()
    plugin.wait_log(ADOPTING, device=FIRST)
    ledgers = own_machine.plugin / "gpus"
    # The ledger is written first, and goes last.
    api_cluster.wait_for(lambda: not card(own_machine).gpu_instances, "the instance to go")
    api_cluster.wait_for(lambda: not list(ledgers.iterdir()), "nothing to be ours any more")
    is_clean(own_machine)


def test_static_instances_stay_whatever_happens(own_plugin, own_cluster, own_machine):
    theirs = made_by_others(own_machine)
    plugin = own_plugin(mig_mode="static", adopt_foreign_mig="true").start()
    own_cluster.wait_devices(FIRST, "gpu-1")
    ref = own_cluster.claim(FIRST)
    plugin.kubelet.prepare(ref)
    plugin.kubelet.unprepare(ref)
    assert card(own_machine).gpu_instances == [theirs]


def test_a_gpu_with_a_rule_of_its_own_follows_that(own_plugin, own_cluster):
    rule = '[{"selector": "device.attributes[\'gpu.nvidia.com\'].index == 1", "migMode": "off"}]'
    plugin = own_plugin(
        gpus="h100-80gb-hbm3:2", mig_mode="dynamic", environment={"DRA_DRIVER_GPUS": rule}
    )
    plugin.start()

    def names():
        return {
            device["name"]
            for item in own_cluster.slices()
            for device in item["spec"].get("devices") or ()
        }

    found = api_cluster.wait_for(lambda: "gpu-1" in names() and names(), "devices")
    assert FIRST in found
    assert [name for name in found if name.startswith("gpu-1")] == ["gpu-1"]


def test_a_plugin_killed_between_any_two_changes_of_a_gpu_goes_on_when_asked_again(
    own_machine, own_cluster
):
    victim = plugin_victim.Victim(own_machine, own_cluster, only_gpus=True)
    try:
        kubelet = victim.start(1)
        for number in itertools.count(2):
            ref = own_cluster.claim(FIRST)
            if not victim.dies_in(functools.partial(kubelet.prepare, ref)):
                break
            kubelet = victim.start(number)
            kubelet.prepare(ref)
            [partition] = own_machine.record(ref).partitions
            [instance] = card(own_machine).gpu_instances
            assert [ci.uuid for ci in instance.compute_instances] == [partition.uuid]
            kubelet.unprepare(ref)
            is_clean(own_machine)
        steps = victim.steps(ref)
        names = ("set_mode", "create", "create_compute")
        wanted = [text for name in names for text in (f"nvml {name}", f"after nvml {name}")]
        assert steps == [*wanted, "answer"]
    finally:
        victim.plugin.kill()
        assert victim.plugin.complaints() == []
