"""GPUs that come back from virtual machines, or do not; and those that somebody else had bound."""

import dataclasses
import errno

import pytest

from dra_driver import errors
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import handing_over
from dra_driver.apps.preparing import preparing
from dra_driver.apps.upkeep import orphans
from dra_driver.logic.preparing import cdi
from dra_driver.model import bindings
from dra_driver.sim.gpus import gpu_faults
from dra_driver.sim.pci import changing, faults

SECONDS = 0.3
"""What may work in a moment is tried again for no longer."""


@pytest.fixture
def node(new_node, monkeypatch):
    """Two H100, each also for virtual machines."""
    monkeypatch.setattr(preparing, "LOOK_AGAIN", 0.02)
    monkeypatch.setattr(handing_over, "SEEN_SECONDS", 0.1)
    monkeypatch.setattr(handing_over, "LOOK_SECONDS", 0.02)
    return new_node(vfio="on")


@pytest.fixture
def ref(node, api):
    """A claim that has the first card as a VFIO device."""
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    return ref


def address(node, number=0):
    return node.card(number).pci_address


def fails(node, ref):
    """Why it is not unprepared; the claim is remembered still."""
    with pytest.raises(errors.Retryable) as caught:
        node.unprepare(ref, seconds=SECONDS)
    assert bindings.of(node.record(ref))
    assert node.preparer.leaving() == [ref.uid]
    return str(caught.value)


def is_back(node, ref):
    node.unprepare(ref)
    assert node.files() == []
    return node.is_clean() and node.card(0).persistence_mode


def test_a_virtual_machine_that_has_not_ended_keeps_the_card(node, ref):
    [binding] = bindings.of(node.record(ref))
    held = node.proc / "4711" / "fd"
    held.mkdir(parents=True)
    (held.parent / "comm").write_text("qemu-kvm\n")
    (held / "9").symlink_to(node.pci.seen(binding.nodes[0]))
    assert "is held open by qemu-kvm (pid 4711): end it, or delete its pod" in fails(node, ref)
    assert node.driver(0) == "vfio-pci"
    (held / "9").unlink()
    assert is_back(node, ref)


@pytest.mark.parametrize(
    ("action", "driver"), [("unbind", "vfio-pci"), ("bind", "nvidia"), ("override", None)]
)
def test_what_the_kernel_refuses_is_told_and_tried_again(node, ref, action, driver):
    faults.fail(node.simulation, action, errno.EIO, address=address(node), driver=driver)
    assert "Input/output error" in fails(node, ref)
    assert node.driver(0) == (None if action == "bind" else "vfio-pci")
    faults.clear(node.simulation)
    assert is_back(node, ref)


@pytest.mark.parametrize("action", ["unbind", "bind"])
def test_what_the_kernel_does_not_come_back_from_is_waited_for(node, ref, action):
    faults.hang(node.simulation, action, address=address(node))
    fails(node, ref)
    assert f"the kernel is at work on {address(node)} still" in fails(node, ref)
    faults.clear(node.simulation)
    assert is_back(node, ref)


def test_a_card_that_nvml_does_not_tell_of_again_is_not_back(node, ref):
    gpu_faults.remove(node.simulation, node.uuid())
    text = fails(node, ref)
    assert f"{address(node)} is bound to nvidia again, and NVML does not tell of" in text
    gpu_faults.clear(node.simulation)
    assert is_back(node, ref)


def test_a_card_without_its_device_nodes_is_not_back(node, ref, monkeypatch):
    lacking = "/dev/nvidia0 is missing (make it with: nvidia-modprobe -c 0)"
    tools = node.effects.passthrough._handover._tools
    monkeypatch.setattr(type(tools), "missing", property(lambda _: lambda _gpus: lacking))
    assert f"device 'gpu-vfio-0' is back, and {lacking}" in fails(node, ref)
    monkeypatch.undo()
    assert is_back(node, ref)


def test_a_card_that_was_pulled_out_is_nobody_s_any_more(node, ref):
    changing.pull(node.simulation, address(node))
    node.unprepare(ref)
    assert node.files() == []
    assert node.books.handed_over() == {}


def test_a_card_that_somebody_else_has_bound_meanwhile_stays_theirs(node, ref):
    changing.bind(node.simulation, address(node), "nouveau")
    node.unprepare(ref, seconds=SECONDS)
    assert node.driver(0) == "nouveau"
    assert node.files() == []


def test_a_card_that_somebody_took_from_the_vfio_driver_is_brought_back(node, ref):
    changing.bind(node.simulation, address(node), None)
    assert is_back(node, ref)


def test_several_cards_come_back_each_for_itself(node, api):
    ref = api.make("gpu-vfio-0", "gpu-vfio-1")
    node.prepare(ref)
    faults.fail(node.simulation, "bind", errno.EIO, address=address(node, 1), driver="nvidia")
    fails(node, ref)
    assert (node.driver(0), node.driver(1)) == ("nvidia", None)
    faults.clear(node.simulation)
    assert is_back(node, ref)


def test_a_claim_that_is_asked_for_again_meanwhile_has_its_card(node, ref):
    faults.fail(node.simulation, "bind", errno.EIO, address=address(node), driver="nvidia")
    fails(node, ref)
    faults.clear(node.simulation)
    node.prepare(ref)
    assert node.driver(0) == "vfio-pci"
    assert is_back(node, ref)


def test_a_restarted_driver_offers_the_same_and_brings_the_card_back(node, new_node, ref):
    before = node.gpus.snapshot.offered
    after = new_node(vfio="on")
    assert after.gpus.snapshot.offered.keys() == before.keys()
    assert after.gpus.snapshot.offered["gpu-vfio-0"].vfio == before["gpu-vfio-0"].vfio
    assert is_back(after, ref)


def test_a_driver_that_hands_nothing_over_any_more_brings_back_what_it_had(new_node, node, ref):
    assert is_back(new_node(vfio="off"), ref)


def test_a_claim_whose_card_is_bound_otherwise_is_told_of(node, ref):
    key = "gpu-vfio-0"
    [effect] = [one for one in node.effects.listed if one is node.effects.passthrough]
    assert effect.troubles(node.record(ref), anew=True) == {}
    changing.bind(node.simulation, address(node), None)
    assert effect.troubles(node.record(ref), anew=False) == {}
    found = effect.troubles(node.record(ref), anew=True)
    assert found[key].reason == "NotBound"
    assert found[key].message.startswith(f"{address(node)} is not bound to vfio-pci")
    assert effect.troubles(node.record(ref), anew=False) == found
    node.prepare(ref)
    assert effect.troubles(node.record(ref), anew=True) == {}


# After a crash that took the record too


def test_a_card_that_no_record_tells_of_is_brought_back_once_no_claim_has_it(node, ref):
    node.store.records.remove(ref.uid)
    (node.cdi / cdi.file_name("gpu.nvidia.com", ref.uid)).unlink()
    assert node.books.handed_over() == {node.uuid(): address(node)}
    for allocated, driver in (({"gpu-vfio-0"}, "vfio-pci"), (set(), "nvidia")):
        node.gpus.look()
        node.orphans.sweep()
        node.orphans.settle()
        assert node.orphans.needs_view()
        node.orphans.remove(frozenset(allocated))
        assert node.driver(0) == driver
    assert node.books.handed_over() == {}
    # The ledger knows it still.
    assert node.card(0).persistence_mode


def test_a_card_of_which_the_record_alone_tells_is_reserved_for_no_driver_afterwards(node, ref):
    for page in (node.root / "gpus").iterdir():
        page.unlink()
    assert is_back(node, ref)
    assert node.override(address(node)) is None


@pytest.mark.parametrize(("held", "driver"), [("gpu-0", "vfio-pci"), ("gpu-1", "nvidia")])
def test_it_is_brought_back_with_its_own_lock_and_no_other_held(
    node, ref, monkeypatch, held, driver
):
    """It may take long, and is not offered meanwhile."""
    monkeypatch.setattr(orphans, "LOCK_SECONDS", 0.1)
    node.store.records.remove(ref.uid)
    (node.cdi / cdi.file_name("gpu.nvidia.com", ref.uid)).unlink()
    node.gpus.look()
    assert "gpu-0" not in {card.name for card in node.gpus.snapshot.cards}
    with node.held.hold([held], patience.Patience(1)):
        node.orphans.remove(frozenset())
    assert node.driver(0) == driver


def test_a_card_that_a_record_tells_of_is_no_leftover_though_no_claim_is_listed(node, ref):
    node.orphans.sweep()
    node.orphans.remove(frozenset())
    assert node.driver(0) == "vfio-pci"
    assert node.books.handed_over() == {node.uuid(): address(node)}


def test_a_virtual_machine_that_no_record_tells_of_keeps_its_card(node, ref):
    [binding] = bindings.of(node.record(ref))
    held = node.proc / "4711" / "fd"
    held.mkdir(parents=True)
    (held / "9").symlink_to(node.pci.seen(binding.nodes[0]))
    node.store.records.remove(ref.uid)
    (node.cdi / cdi.file_name("gpu.nvidia.com", ref.uid)).unlink()
    node.gpus.look()
    node.orphans.remove(frozenset())
    assert node.driver(0) == "vfio-pci"
    (held / "9").unlink()
    node.orphans.remove(frozenset())
    assert node.driver(0) == "nvidia"


def test_a_card_that_is_ours_by_its_ledger_is_never_taken_for_one_that_somebody_else_bound(
    node, ref
):
    offer = node.gpus.snapshot.offered["gpu-vfio-0"]
    seen = dataclasses.replace(offer, vfio=dataclasses.replace(offer.vfio, is_found=True))
    binding = node.effects.passthrough._handover.planned(seen)
    assert not binding.found
    assert binding.functions == (bindings.Function(address=address(node), driver="nvidia"),)


# After a boot


def test_after_a_boot_nothing_is_bound_and_the_claim_is_prepared_anew(node, new_node, ref):
    changing.reboot(node.simulation)
    after = new_node(vfio="on", boot="boot-2")
    after.recover()
    assert after.store.records.contents().records == {}
    after.prepare(ref)
    assert after.driver(0) == "vfio-pci"
    after.unprepare(ref)
    assert after.is_clean()


# Found bound


@pytest.fixture
def found(new_node, node):
    """The first card was given to vfio-pci by somebody else."""
    changing.load(node.simulation, "vfio-pci")
    changing.bind(node.simulation, address(node), "vfio-pci")
    return new_node(vfio="on")


def test_a_card_that_somebody_has_bound_is_offered_to_virtual_machines_alone(found):
    names = [name for name in found.gpus.snapshot.offered if name.endswith("-0")]
    assert "gpu-0" not in names
    assert "gpu-vfio-0" in names


def test_it_is_handed_over_as_it_is_and_left_bound_at_the_end(found, api):
    ref = api.make("gpu-vfio-0")
    found.prepare(ref)
    [binding] = bindings.of(found.record(ref))
    assert (binding.found, binding.functions) == (True, ())
    assert binding.nodes == (f"/dev/vfio/{binding.group}",)
    found.unprepare(ref)
    assert found.driver(0) == "vfio-pci"
    assert found.files() == []


def test_a_card_that_somebody_has_bound_since_the_last_look_is_left_bound_too(node, api):
    changing.bind(node.simulation, address(node), "vfio-pci")
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    [binding] = bindings.of(node.record(ref))
    assert (binding.found, binding.functions) == (True, ())
    node.unprepare(ref)
    assert node.driver(0) == "vfio-pci"
    assert node.files() == []


def test_it_is_not_taken_for_bound_once_somebody_has_given_it_back(found, api):
    ref = api.make("gpu-vfio-0")
    changing.bind(found.simulation, address(found), "nvidia")
    with pytest.raises(errors.Retryable, match="is not bound to a VFIO driver any more"):
        found.prepare(ref, seconds=SECONDS)
    assert found.files() == []
