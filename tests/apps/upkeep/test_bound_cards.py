"""Upkeep with cards that a VFIO driver has: NVML is not asked about them, and nothing is lost."""

import pytest

from dra_driver import errors
from dra_driver.adapters.disk import records
from dra_driver.logic.preparing import device_numbers
from dra_driver.model import bindings
from dra_driver.sim.pci import changing

VM = "gpu-vfio-0"
QEMU = 4711


@pytest.fixture
def vm_node(new_node):
    return new_node(vfio="on")


@pytest.fixture
def ref(vm_node, api):
    """A claim that has the first GPU for a virtual machine."""
    made = api.make(VM)
    vm_node.prepare(made)
    vm_node.gpus.look()
    return made


def run_vm(node, ref):
    """A process has the device node of the GPU's group open."""
    [binding] = bindings.of(node.record(ref))
    folder = node.proc / str(QEMU)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("qemu-kvm\n")
    (folder / "fd" / "5").symlink_to(node.pci.seen(binding.nodes[0]))


def test_a_card_of_a_virtual_machine_is_among_the_cards_and_not_among_those_to_be_asked(
    vm_node, ref
):
    snapshot = vm_node.gpus.snapshot
    assert [card.name for card in snapshot.cards] == ["gpu-0", "gpu-1"]
    assert [card.name for card in snapshot.served] == ["gpu-1"]
    assert snapshot.bound == {vm_node.uuid(0): "gpu-0"}


def test_who_has_a_virtual_machine_s_gpu_open_uses_the_claim_s_device(vm_node, ref):
    assert vm_node.users.of_claim(vm_node.record(ref), []) is None
    run_vm(vm_node, ref)
    assert vm_node.users.of_claim(vm_node.record(ref), []) == "qemu-kvm (pid 4711)"
    assert vm_node.users.of_devices([vm_node.uuid(0)]) == "qemu-kvm (pid 4711)"
    assert vm_node.users.of_devices([vm_node.uuid(1)]) is None


def test_a_card_of_a_virtual_machine_is_not_put_back_to_what_it_was(vm_node, ref):
    """As nothing can be set on it; what is left over elsewhere is."""
    ledger = vm_node.books.get(vm_node.uuid(0)).model_copy(update={"time_slice_before": 2})
    vm_node.books.put(ledger)
    vm_node.orphans.settle()
    assert vm_node.books.get(vm_node.uuid(0)) == ledger


def test_a_damaged_page_of_its_ledger_tells_by_its_name_that_it_is_ours(vm_node, ref, tmp_path):
    before = vm_node.books.handed_over()
    [page] = (tmp_path / "gpus").glob("*handed-over*")
    page.write_text("{")
    assert vm_node.books.handed_over() == before == {vm_node.uuid(0): vm_node.card(0).pci_address}
    assert vm_node.books.get(vm_node.uuid(0)).handed_over == vm_node.card(0).pci_address
    vm_node.unprepare(ref)
    assert vm_node.driver(0) == "nvidia"
    assert vm_node.files() == []


def test_a_damaged_ledger_of_it_is_rebuilt_with_that_it_is_ours(vm_node, ref, tmp_path):
    uuid, before = vm_node.uuid(0), vm_node.books.handed_over()
    [page] = (tmp_path / "gpus").glob("*handed-over*")
    page.rename(page.with_name(f"{uuid}{page.suffix}"))
    (tmp_path / "gpus" / f"{uuid}{page.suffix}").write_text("{")
    assert vm_node.books.handed_over() == {}
    vm_node.orphans.settle()
    assert vm_node.books.handed_over() == before


def test_a_spec_that_is_gone_is_written_again(vm_node, ref):
    [spec] = vm_node.cdi.glob("k8s.*")
    text = spec.read_text()
    spec.unlink()
    vm_node.restorer.look()
    assert spec.read_text() == text


def test_another_card_that_has_its_number_now_takes_nothing_from_it(vm_node, ref):
    other = vm_node.gpus.snapshot.served[0].gpu
    minors = vm_node.record(ref).model_copy(update={"minors": {"gpu-0": other.minor}})
    assert not device_numbers.are_taken(minors, [other])
    assert device_numbers.now(minors, [other]) == {"gpu-0": other.minor}


def lose_record(node, ref):
    """The record of a claim is damaged, and rebuilt; what it is then."""
    node.store.records.remove(ref.uid)
    node.mender.mend()
    return node.record(ref)


def test_a_record_that_was_lost_brings_the_gpu_back_all_the_same(vm_node, ref):
    [before] = bindings.of(vm_node.record(ref))
    rebuilt = lose_record(vm_node, ref)
    assert rebuilt.rebuilt
    assert rebuilt.devices[0].kind == "vfio"
    [binding] = bindings.of(rebuilt)
    unknown = {"functions": before.functions[:1], "facts": before.facts}
    assert binding.model_copy(update=unknown) == before.model_copy(update=unknown)
    assert binding.functions[0] == before.functions[0]
    vm_node.unprepare(ref)
    assert vm_node.driver(0) == "nvidia"
    assert vm_node.files() == []


def test_a_record_that_an_older_driver_wrote_anew_brings_the_gpu_back_all_the_same(vm_node, ref):
    """Of an update: it takes the record for a damaged one, and knows no devices of that kind."""
    whole = vm_node.record(ref)
    [entry] = whole.devices
    written = whole.model_copy(
        update={
            "devices": (entry.model_copy(update={"kind": "gpu", "requests": ()}),),
            "rebuilt": True,
            "parts": {},
        }
    )
    records.Records(vm_node.root / "claims").write(written)
    vm_node.mender.mend()
    [binding] = bindings.of(vm_node.record(ref))
    assert (binding.driver, binding.found) == ("vfio-pci", False)
    vm_node.unprepare(ref)
    assert vm_node.driver(0) == "nvidia"


def test_a_record_that_was_lost_of_a_gpu_that_somebody_else_bound_leaves_it_so(new_node, api):
    node = new_node(vfio="on")
    changing.bind(node.simulation, node.card(0).pci_address, "vfio-pci")
    node.gpus.look()
    ref = api.make(VM)
    node.prepare(ref)
    [binding] = bindings.of(lose_record(node, ref))
    assert binding.found
    node.unprepare(ref)
    assert node.driver(0) == "vfio-pci"


def test_a_record_is_not_rebuilt_without_its_binding_while_the_bus_cannot_be_read(
    vm_node, ref, monkeypatch
):
    def fail(_device, _gpu, _nodes):
        raise errors.Retryable("the bus does not answer")

    monkeypatch.setattr(vm_node.mender._rebuilder, "_recall", fail)
    assert lose_record(vm_node, ref) is None
    monkeypatch.undo()
    vm_node.mender.mend()
    assert bindings.of(vm_node.record(ref))
