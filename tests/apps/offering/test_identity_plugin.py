"""The plugin as the node runs it, through boots after which cards are not where they were."""

import shutil

import api_cluster
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options
from dra_driver.sim.gpus import gpu_operations, gpu_state

pytestmark = pytest.mark.sampled(11)

H100, T4 = "gpu-0", "gpu-1"
NAMELESS = "names of cards are not remembered for now"


def uuids(machine):
    return [gpu.uuid for gpu in gpu_state.open_file(machine.simulation).read().gpus]


def published(cluster):
    """Whole cards by name: their UUIDs and minors."""
    return {
        device["name"]: (
            device["attributes"]["uuid"]["string"], device["attributes"]["minor"]["int"],
        )
        for item in cluster.slices()
        for device in item["spec"].get("devices") or ()
    }  # fmt: skip


def reboot(machine, plugin, change):
    """The machine is off while `change` happens; the kubelet starts before the plugin does."""
    plugin.kill()
    shutil.rmtree(machine.cdi)
    gpu_operations.reboot(machine.simulation)
    change()
    machine.boot("boot-2")


def given(machine, ref):
    """What the containers of a claim find in their environment."""
    return [
        text
        for device in machine.spec(ref)["devices"]
        for text in device["containerEdits"].get("env", [])
    ]


def wait_for_published(cluster, wanted):
    api_cluster.wait_for(
        lambda: published(cluster) == wanted, lambda: f"{wanted}; there is {published(cluster)}"
    )


def test_claims_have_their_cards_after_a_boot_that_changed_all_minors(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    own_cluster.wait_devices(H100, T4)
    h100, t4 = uuids(own_machine)
    held, waiting = own_cluster.claim(H100), own_cluster.claim(T4)
    plugin.kubelet.prepare(held)
    before = own_cluster.slice_writes()
    reboot(own_machine, plugin, lambda: gpu_operations.renumber(own_machine.simulation, t4, h100))
    plugin.start()
    wait_for_published(own_cluster, {H100: (h100, 1), T4: (t4, 0)})
    # What changed are attributes of one slice.
    assert own_cluster.slice_writes()[len(before) :] == ["update"]
    plugin.kubelet.prepare(held, waiting)
    assert given(own_machine, held) == [f"SIMULATED_GPU_1=NVIDIA H100 80GB HBM3|{h100}"]
    assert given(own_machine, waiting) == [f"SIMULATED_GPU_0=Tesla T4|{t4}"]
    assert own_machine.record(held).gpus == {H100: h100}


def test_a_claim_whose_card_was_replaced_is_refused_and_its_status_says_so(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    own_cluster.wait_devices(H100, T4)
    h100, t4 = uuids(own_machine)
    ref = own_cluster.claim(T4, {"device": H100, "request": "large"})
    reboot(own_machine, plugin, lambda: None)
    # Another card where the H100 was.
    plugin = own_plugin(gpus="t4:2").start()
    error = plugin.kubelet.refusal(ref)
    new, same = uuids(own_machine)
    assert same == t4
    assert f"device 'gpu-0' was published for NVIDIA H100 80GB HBM3 {h100}" in error
    assert "is not on this node any more" in error
    assert own_machine.record(ref) is None
    # What a claim has stays listed.
    wait_for_published(own_cluster, {H100: (h100, 0), T4: (t4, 1), "gpu-2": (new, 0)})

    def conditions():
        status = own_cluster.get_claim(ref)["status"]
        return [
            (entry["device"], entry["conditions"][0]["status"], entry["conditions"][0]["reason"])
            for entry in status.get("devices") or ()
        ]

    api_cluster.wait_for(lambda: conditions() == [(H100, "False", "WrongCard")], conditions)
    [entry] = own_cluster.get_claim(ref)["status"]["devices"]
    assert entry["conditions"][0]["message"] == error
    fitting = own_cluster.claim("gpu-2")
    plugin.kubelet.prepare(fitting)
    assert given(own_machine, fitting) == [f"SIMULATED_GPU_0=Tesla T4|{new}"]


def test_a_first_start_after_an_older_driver_writes_no_slice(own_plugin, own_cluster, own_machine):
    plugin = own_plugin().start()
    own_cluster.wait_devices(H100, T4)
    slices, writes = own_cluster.slices(), own_cluster.slice_writes()
    plugin.kill()
    # An older driver remembers no names.
    shutil.rmtree(own_machine.plugin / "names")
    plugin.start()
    plugin.kubelet.prepare(own_cluster.claim(H100))
    plugin.wait_log("name of a card", count=4)
    assert own_cluster.slices() == slices
    assert own_cluster.slice_writes() == writes


def test_an_upgrade_and_a_boot_at_once_go_on_with_the_names_that_are_published(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    own_cluster.wait_devices(H100, T4)
    h100, t4 = uuids(own_machine)
    waiting = own_cluster.claim(H100)

    def change():
        shutil.rmtree(own_machine.plugin / "names")
        gpu_operations.renumber(own_machine.simulation, t4, h100)

    reboot(own_machine, plugin, change)
    plugin.start()
    plugin.kubelet.prepare(waiting)
    assert given(own_machine, waiting) == [f"SIMULATED_GPU_1=NVIDIA H100 80GB HBM3|{h100}"]
    wait_for_published(own_cluster, {H100: (h100, 1), T4: (t4, 0)})


@pytest.mark.parametrize("claim_first", [True, False])
def test_nothing_is_published_or_prepared_before_it_is_known_what_names_meant(
    own_plugin, own_cluster, own_machine, claim_first
):
    plugin = own_plugin().start()
    own_cluster.wait_devices(H100, T4)
    h100, t4 = uuids(own_machine)
    waiting, slices = own_cluster.claim(H100), own_cluster.slices()

    def change():
        shutil.rmtree(own_machine.plugin / "names")
        gpu_operations.renumber(own_machine.simulation, t4, h100)

    reboot(own_machine, plugin, change)
    refused = options.Fault(status=403, reason="Forbidden", message="not yet")

    def rule(call):
        return refused if (call.resource, call.verb) == ("resourceslices", "list") else None

    with own_cluster.faults.where(rule):
        plugin.start()
        [line] = plugin.wait_log(NAMELESS)
        assert "not yet" in line["reason"]
        error = plugin.kubelet.refusal(waiting, timeout=4)
        assert "device 'gpu-0' is not known for now" in error
        assert "has no name yet" in error
    assert own_cluster.slices() == slices
    if claim_first:
        plugin.kubelet.prepare(waiting)
    wait_for_published(own_cluster, {H100: (h100, 1), T4: (t4, 0)})
    plugin.kubelet.prepare(waiting)
    assert given(own_machine, waiting) == [f"SIMULATED_GPU_1=NVIDIA H100 80GB HBM3|{h100}"]


def test_slices_that_the_kubelet_wiped_are_back_with_the_names_that_are_remembered(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    own_cluster.wait_devices(H100, T4)
    h100, t4 = uuids(own_machine)

    def change():
        own_cluster.client.delete_collection(
            kube.SLICES, field_selector=f"spec.driver={api_cluster.DRIVER}"
        )
        gpu_operations.renumber(own_machine.simulation, t4, h100)

    reboot(own_machine, plugin, change)
    plugin.start()
    wait_for_published(own_cluster, {H100: (h100, 1), T4: (t4, 0)})
