"""Sick GPUs of a plugin that runs: what is published of them, and when that goes."""

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.kubelet import dra_client
from dra_driver.model import health
from dra_driver.sim.gpus import gpu_event_log, gpu_health_state, gpu_operations

pytestmark = pytest.mark.sampled(4)


def taints(cluster):
    """The taints of each device that has any, by its name."""
    found = {
        device["name"]: {
            f"{taint['key'].partition('/')[2]}={taint.get('value', '')}:{taint['effect']}"
            for taint in device.get("taints") or ()
        }
        for item in cluster.slices()
        for device in item["spec"].get("devices") or ()
    }
    return {name: has for name, has in found.items() if has}


def since(cluster, name):
    return {
        taint["key"]: taint["timeAdded"]
        for item in cluster.slices()
        for device in item["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if device["name"] == name
    }


def wait(cluster, wanted):
    api_cluster.wait_for(lambda: taints(cluster) == wanted, f"taints {wanted}")


def xid(machine, number, name="gpu-0", gi=None):
    told = gpu_event_log.Told(machine.uuid(name), health.EventKind.XID, number, gi)
    gpu_event_log.tell(machine.simulation, told)


def is_(machine, name="gpu-0", **facts):
    """From now on these facts are those of a card."""
    with gpu_health_state.open_file(machine.simulation).edit() as cards:
        for fact, value in facts.items():
            setattr(cards.of(machine.uuid(name)), fact, value)


@pytest.fixture
def listening(plugin, cluster, machine):
    """The plugin hears its GPUs, which are well before and after."""
    cluster.wait_devices("gpu-0", "gpu-1")
    plugin.wait_log("listening to GPUs")
    yield plugin
    machine.heal_gpus()
    with gpu_health_state.open_file(machine.simulation).edit() as cards:
        cards.cards.clear()
    wait(cluster, {})


def test_a_gpu_whose_recovery_the_driver_asks_for_is_withdrawn_with_its_cause(
    listening, cluster, machine
):
    is_(machine, recovery=2)
    xid(machine, 79)
    wait(cluster, {"gpu-0": {"xid=79:NoSchedule", "recovery=reboot:NoSchedule"}})
    is_(machine, recovery=0)
    wait(cluster, {})


def test_an_application_that_fails_withdraws_nothing_and_is_told_until_its_claim_ends(
    listening, kubelet, cluster, machine
):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    xid(machine, 31)
    wait(cluster, {"gpu-0": {"xid=31:None"}})
    kubelet.unprepare(ref)
    wait(cluster, {})


def test_facts_without_an_event_are_seen_by_the_next_look(listening, cluster, machine):
    is_(machine, "gpu-0", remap_pending=True)
    is_(machine, "gpu-0", thermal=True)
    wait(cluster, {"gpu-0": {"memory=remap-pending:NoSchedule", "thermal=slowdown:None"}})


def test_gpus_are_heard_again_after_their_driver_was_loaded_anew(listening, cluster, machine):
    before = len(listening.log("listening to GPUs"))
    gpu_operations.unload_driver(machine.simulation)
    listening.expects("no GPU can be seen")
    listening.wait_log("GPUs are not listened to for now")
    gpu_operations.load_driver(machine.simulation)
    listening.wait_log("listening to GPUs", count=before + 1)
    cluster.wait_devices("gpu-0", "gpu-1")
    wait(cluster, {})
    is_(machine, recovery=1)
    xid(machine, 48)
    wait(cluster, {"gpu-0": {"xid=48:NoSchedule", "recovery=reset:NoSchedule"}})


def test_a_gpu_that_is_lost_silences_no_other(listening, cluster, machine):
    before = len(listening.log("listening to GPUs", gpus=1))
    machine.lose_gpus("gpu-1")
    listening.wait_log("listening to GPUs", count=before + 1, gpus=1)
    is_(machine, recovery=1)
    xid(machine, 48)
    wait(cluster, {"gpu-0": {"xid=48:NoSchedule", "recovery=reset:NoSchedule"}})
    machine.heal_gpus()
    cluster.wait_devices("gpu-0", "gpu-1")


def test_a_restart_neither_loses_a_taint_nor_renews_its_time_and_a_boot_clears_it(
    own_cluster, own_machine
):
    cluster, machine = own_cluster, own_machine
    is_wanted = {"gpu-0": {"xid=79:NoSchedule", "recovery=reboot:NoSchedule"}}

    def started():
        plugin = plugin_process.Plugin(machine, cluster, health_hold_seconds=3600).start()
        plugin.wait_log("listening to GPUs")
        return plugin

    plugin = started()
    try:
        is_(machine, recovery=2)
        xid(machine, 79)
        wait(cluster, is_wanted)
        times = since(cluster, "gpu-0")
        versions = [item["metadata"]["resourceVersion"] for item in cluster.slices()]
        plugin.kill()
        plugin = started()
        plugin.wait_log("publishing")
        api_cluster.wait_for(lambda: plugin.log("GPU is unwell"), "what was known")
        assert [item["metadata"]["resourceVersion"] for item in cluster.slices()] == versions
        assert since(cluster, "gpu-0") == times
        plugin.kill()
        machine.boot("boot-2")
        is_(machine, recovery=0)
        plugin = started()
        wait(cluster, {})
    finally:
        plugin.kill()


def test_a_storm_of_events_does_not_flood_the_slices(own_cluster, own_machine):
    cluster, machine = own_cluster, own_machine
    plugin = plugin_process.Plugin(machine, cluster).start()
    try:
        plugin.wait_log("listening to GPUs")
        is_(machine, recovery=1)
        before = len(plugin.log("ResourceSlices written"))
        uuid = machine.uuid("gpu-0")
        for burst in range(20):
            told = [
                gpu_event_log.Told(uuid, health.EventKind.XID, 1000 + burst % 5) for _ in range(100)
            ]
            gpu_event_log.tell(machine.simulation, *told)
        last = {f"xid={1000 + number}:NoSchedule" for number in range(5)}
        wait(cluster, {"gpu-0": last | {"recovery=reset:NoSchedule"}})
        # Of 2000 events five were news, and what is published follows twice a second at most.
        assert len(plugin.log("ResourceSlices written")) - before <= 6
    finally:
        plugin.kill()


def test_the_kubelet_and_the_claim_are_told_in_words_that_a_user_understands(
    listening, kubelet, cluster, machine
):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    is_(machine, recovery=2)
    xid(machine, 79)
    words = "XID 79: the GPU has fallen off the bus; the node needs a reboot"

    def told():
        with dra_client.Client(str(listening.service_socket)) as client:
            first = next(client.watch_health("v1.DRAResourceHealth"))
        return {one.device: (one.health, words in one.message) for one in first}

    wanted = {"gpu-0": ("Unhealthy", True), "gpu-1": ("Healthy", False)}
    api_cluster.wait_for(lambda: told() == wanted, lambda: str(told()))

    def condition():
        entries = cluster.get_claim(ref)["status"].get("devices") or ()
        found = [one for entry in entries for one in entry["conditions"]]
        return next((one for one in found if one["type"] == "Healthy"), {})

    api_cluster.wait_for(lambda: words in condition().get("message", ""), "the condition")
    api_cluster.wait_for(lambda: since(cluster, "gpu-0"), "the taint")
    assert (condition()["status"], condition()["reason"]) == ("False", "Xid79")
    assert condition()["lastTransitionTime"] == min(since(cluster, "gpu-0").values())


def test_what_only_informs_leaves_a_device_healthy_with_a_message(listening, kubelet, machine):
    xid(machine, 63)

    def told():
        with dra_client.Client(str(listening.service_socket)) as client:
            first = next(client.watch_health("v1alpha1.DRAResourceHealth"))
        return {one.device: (one.health, one.message[:7]) for one in first}

    wanted = {"gpu-0": ("Healthy", "XID 63:"), "gpu-1": ("Healthy", "")}
    api_cluster.wait_for(lambda: told() == wanted, lambda: str(told()))
