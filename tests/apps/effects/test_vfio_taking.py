"""GPUs that are taken for virtual machines: what is done; what is in the way is beside this."""

import dataclasses
import errno
import json

import pytest

from dra_driver import errors
from dra_driver.adapters.driver import persistence_daemon
from dra_driver.apps.preparing import preparing
from dra_driver.logic.preparing import cdi
from dra_driver.model import bindings, devices, sharing
from dra_driver.sim.pci import changing, faults

SECONDS = 0.3
"""What may work in a moment is tried again for no longer."""


@pytest.fixture
def node(new_node, monkeypatch):
    """An H100 and an L4, which has a sound device in its group, each also for virtual machines."""
    monkeypatch.setattr(preparing, "LOOK_AGAIN", 0.02)
    return new_node(gpus="h100-80gb-hbm3:1,l4:1", vfio="on")


def address(node, number=0):
    return node.card(number).pci_address


def sound(node):
    """The L4's other function."""
    return devices.PciAddress(address(node, 1).replace(".0", ".1"))


def mounted(node, ref):
    """What containers of the claim find, with the file of this machine."""
    spec = json.loads((node.cdi / cdi.file_name("gpu.nvidia.com", ref.uid)).read_text())
    [device] = spec["devices"]
    return {one["containerPath"]: one["hostPath"] for one in device["containerEdits"]["mounts"]}


def test_a_card_is_bound_to_the_vfio_driver_and_its_group_handed_over(node, api):
    ref = api.make("gpu-vfio-0")
    [entry] = node.prepare(ref)
    assert entry.kind == "vfio"
    assert node.driver(0) == "vfio-pci"
    [binding] = bindings.of(node.record(ref))
    path = f"/dev/vfio/{binding.group}"
    assert mounted(node, ref) == {path: str(node.simulation / path.lstrip("/"))}
    assert (binding.module, binding.driver, binding.nodes) == ("vfio_pci", "vfio-pci", (path,))


def test_a_container_finds_nothing_of_nvidia_s_driver(node, api):
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    spec = json.loads((node.cdi / cdi.file_name("gpu.nvidia.com", ref.uid)).read_text())
    assert spec["containerEdits"] == {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}


def test_beside_a_gpu_of_the_same_claim_a_container_finds_what_that_needs(node, api):
    ref = api.make("gpu-vfio-0", "gpu-1")
    node.prepare(ref)
    spec = json.loads((node.cdi / cdi.file_name("gpu.nvidia.com", ref.uid)).read_text())
    assert [one["containerPath"] for one in spec["containerEdits"]["mounts"]] == [
        "/usr/bin/nvidia-smi"
    ]
    assert {one["name"] for one in spec["devices"]} == {f"{ref.uid}-gpu-vfio-0", f"{ref.uid}-gpu-1"}


def test_the_other_functions_of_the_card_go_along_and_come_back(node, api):
    ref = api.make("gpu-vfio-1")
    node.prepare(ref)
    assert node.pci.function(sound(node)).driver == "vfio-pci"
    assert node.driver(1) == "vfio-pci"
    node.unprepare(ref)
    assert node.pci.function(sound(node)).driver == "snd_hda_intel"
    assert node.override(sound(node)) is None
    assert node.is_clean()


def test_the_card_itself_comes_back_last(node, api):
    """While it is bound, all that it had is known: so is the driver of the function that failed."""
    ref = api.make("gpu-vfio-1")
    node.prepare(ref)
    faults.fail(node.simulation, "bind", errno.EIO, address=sound(node), driver="snd_hda_intel")
    with pytest.raises(errors.Retryable, match=sound(node)):
        node.unprepare(ref, seconds=SECONDS)
    assert node.driver(1) == "vfio-pci"
    faults.clear(node.simulation)
    node.prepare(ref)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_function_that_somebody_has_bound_otherwise_meanwhile_is_not_taken(node):
    offer = node.gpus.snapshot.offered["gpu-vfio-1"]
    handover = node.effects.passthrough._handover
    binding = handover.planned(offer)
    changing.bind(node.simulation, sound(node), "nvidia")
    with pytest.raises(errors.Retryable, match="whoever has bound it since then may use it"):
        handover.take(binding, offer, sharing.Vfio())
    assert node.driver(1) == "nvidia"


def test_persistence_mode_goes_off_and_comes_on_again_only_where_it_was_on(node, api):
    for was_on in (True, False):
        with node.editing() as state:
            state.gpus[0].persistence_mode = was_on
        ref = api.make("gpu-vfio-0")
        node.prepare(ref)
        assert bindings.of(node.record(ref))[0].persistence is was_on
        node.unprepare(ref)
        assert node.card(0).persistence_mode is was_on


def test_a_daemon_that_keeps_cards_open_is_told_too(node, api, monkeypatch):
    told = []
    monkeypatch.setattr(
        persistence_daemon.PersistenceDaemon,
        "tell",
        lambda _, gpu, *, on: told.append((gpu, on)),
    )
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    assert told == [(node.uuid(), False)]
    node.unprepare(ref)
    assert told == [(node.uuid(), False), (node.uuid(), True)]


def test_nvml_tells_of_the_card_no_more_and_then_again(node, api):
    ref = api.make("gpu-vfio-0")
    before = node.hardware()
    node.prepare(ref)
    assert [gpu.uuid for gpu in node.discover()] == [node.uuid(1)]
    node.unprepare(ref)
    assert [gpu.uuid for gpu in node.discover()] == [node.uuid(0), node.uuid(1)]
    assert node.hardware() == before


def test_that_persistence_mode_was_on_is_written_down_before_it_goes_off(node, api, monkeypatch):
    modes, known = node.effects.passthrough._handover._modes, []
    switch = modes.set_persistence

    def watched(gpu, *, on):
        known.append((on, node.books.get(gpu).persistence_off))
        switch(gpu, on=on)

    monkeypatch.setattr(modes, "set_persistence", watched)
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    node.unprepare(ref)
    assert known == [(False, True), (True, True)]
    assert not node.books.get(node.uuid()).persistence_off


def test_that_persistence_mode_was_on_is_known_after_a_crash_that_left_it_off(node, api):
    """As between switching it off and giving the card away, with the record lost."""
    ledger = node.books.get(node.uuid())
    node.books.put(ledger.model_copy(update={"persistence_off": True}))
    with node.editing() as state:
        state.gpus[0].persistence_mode = False
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    [binding] = bindings.of(node.record(ref))
    assert binding.persistence
    node.unprepare(ref)
    assert node.card(0).persistence_mode


def test_several_cards_of_a_claim_are_handed_over_together(node, api):
    ref = api.make("gpu-vfio-0", "gpu-vfio-1")
    node.prepare(ref)
    assert [node.driver(0), node.driver(1)] == ["vfio-pci", "vfio-pci"]
    node.unprepare(ref)
    assert node.is_clean()


def test_one_of_several_that_cannot_be_taken_brings_the_others_back(node, api):
    node.occupy(4711, 1)
    ref = api.make("gpu-vfio-0", "gpu-vfio-1")
    with pytest.raises(errors.Retryable, match="trainer"):
        node.prepare(ref, seconds=SECONDS)
    node.end(4711, 1)
    assert node.is_clean()


def test_the_mig_mode_that_this_driver_switched_on_goes_off_first(node, api):
    small = api.make("gpu-0-mig-1g10gb-19-6")
    node.prepare(small)
    node.unprepare(small)
    node.set_mig_mode(on=True)
    node.books.put(node.books.get(node.uuid()).switched(on=True))
    node.gpus.look()
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    assert not node.card(0).mig_enabled
    assert node.driver(0) == "vfio-pci"
    # As it is while the virtual machine has it.
    [binding] = bindings.of(node.record(ref))
    assert binding.facts.mig_enabled is binding.facts.mig_pending is False


def test_what_is_remembered_of_the_gpu_is_what_nvml_told_of_it(node, api):
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    [binding] = bindings.of(node.record(ref))
    [card] = [one for one in node.gpus.snapshot.cards if one.name == "gpu-0"]
    # That it is the first of a baseboard is told where Fabric Manager is asked.
    assert binding.facts == dataclasses.replace(
        card.gpu, mig_enabled=False, mig_pending=False, module_id=None
    )


def test_that_the_card_is_ours_is_written_down_before_it_goes(node, api, monkeypatch):
    known, unbind = [], node.pci.unbind

    def watched(address):
        known.append(node.books.handed_over())
        unbind(address)

    monkeypatch.setattr(node.pci, "unbind", watched)
    node.prepare(api.make("gpu-vfio-0"))
    assert known[0] == {node.uuid(): address(node)}


def test_a_card_that_has_no_driver_any_more_is_ours_before_it_is_bound(node, api, monkeypatch):
    """As after a crash between the two, of which no record tells: it goes back to NVIDIA's."""
    known, allow = [], node.pci.allow

    def watched(address, driver):
        known.append(node.books.handed_over())
        allow(address, driver)

    changing.bind(node.simulation, address(node), None)
    monkeypatch.setattr(node.pci, "allow", watched)
    node.prepare(api.make("gpu-vfio-0"))
    assert known[0] == {node.uuid(): address(node)}
