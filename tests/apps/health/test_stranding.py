"""GPUs of virtual machines that are not where they should be, on a simulated PCI bus."""

import errno

import mig_node
import pytest

from dra_driver import errors
from dra_driver.adapters.system import patience
from dra_driver.apps.health import stranding
from dra_driver.sim.pci import changing, faults

NOT_BACK = "the GPU was bound for a virtual machine and could not be brought back"


class Place:
    """A node whose first GPU a claim has as a VFIO device, and who looks at it."""

    def __init__(self, node, api):
        self.node, self.scans = node, 0
        self.ref = api.make("gpu-vfio-0")
        self.stranding = stranding.Stranding(
            node.store.records,
            node.held,
            self.scan,
            node.gpus,
            taken=node.books.handed_over,
            leaving=node.preparer.leaving,
        )

    def scan(self):
        self.scans += 1
        return self.node.pci.scan()

    @property
    def address(self):
        return self.node.card(0).pci_address

    def stranded(self):
        """Why the GPU is; None where it is not."""
        self.node.gpus.look()
        found = self.stranding.look()
        assert found.stranded.keys() <= {self.node.uuid(0)}
        return found.stranded.get(self.node.uuid(0))


@pytest.fixture
def place(new_node, api):
    return Place(new_node(vfio="on"), api)


def test_without_virtual_machines_the_bus_is_not_asked(place):
    assert place.stranded() is None
    assert place.scans == 0


def test_a_gpu_that_a_claim_has_and_then_has_no_more_is_where_it_should_be(place):
    place.node.prepare(place.ref)
    assert place.stranded() is None
    assert place.scans == 1
    place.node.unprepare(place.ref)
    assert place.stranded() is None
    assert place.node.is_clean()


def test_a_gpu_that_does_not_come_back_is_told_until_a_later_try_brings_it_back(place):
    place.node.prepare(place.ref)
    faults.fail(place.node.simulation, "bind", errno.EIO, driver="nvidia")
    with pytest.raises(errors.Retryable):
        place.node.unprepare(place.ref, seconds=0.5)
    assert place.stranded().startswith(NOT_BACK)
    assert "no driver) is to be bound to nvidia" in place.stranded()
    faults.clear(place.node.simulation)
    place.node.unprepare(place.ref)
    assert place.stranded() is None
    assert place.node.is_clean()


def test_a_gpu_of_a_restarted_driver_that_was_brought_back_in_part_is_told(place, new_node):
    place.node.prepare(place.ref)
    changing.bind(place.node.simulation, place.address, None)
    again = Place(new_node(vfio="on"), place.node.api)
    assert "a virtual machine is to have the GPU by vfio-pci" in again.stranded()
    again.node.unprepare(place.ref)
    assert again.stranded() is None


def test_a_gpu_that_somebody_gave_to_another_driver_is_told_with_its_name(place):
    place.node.prepare(place.ref)
    changing.bind(place.node.simulation, place.address, "nouveau")
    assert "nouveau) is not bound to that" in place.stranded()


def test_a_gpu_that_was_pulled_out_is_told(place):
    place.node.prepare(place.ref)
    changing.pull(place.node.simulation, place.address)
    assert f"{place.address} is not on the PCI bus any more" in place.stranded()


def test_a_gpu_that_a_call_is_at_work_on_is_not_told(place):
    place.node.prepare(place.ref)
    changing.bind(place.node.simulation, place.address, None)
    waiting = patience.Patience(mig_node.SECONDS)
    for name in ("gpu-0", f"claim {place.ref.uid}"):
        with place.node.held.hold([name], waiting):
            assert place.stranding.look().stranded == {}
            assert place.stranding.look().unknown == {place.node.uuid(0)}
    assert place.stranded() is not None


def test_a_call_that_began_during_the_look_is_noticed(place):
    place.node.prepare(place.ref)

    def scan():
        found = place.node.pci.scan()
        place.node.unprepare(place.ref)
        return found

    place.stranding._scan = scan
    changing.bind(place.node.simulation, place.address, None)
    assert place.stranding.look().stranded == {}
    assert place.stranding.look().stranded == {}


def test_a_gpu_of_which_the_record_is_lost_is_told(place):
    place.node.prepare(place.ref)
    place.node.store.records.remove(place.ref.uid)
    assert "of its claim nothing is known any more" in place.stranded()


def test_a_bus_that_cannot_be_read_says_nothing(place):
    place.node.prepare(place.ref)

    def scan():
        raise OSError(errno.EIO, "input/output error")

    place.stranding._scan = scan
    assert place.stranding.look() is None


def test_a_gpu_of_which_the_record_is_lost_is_not_told_while_it_is_brought_back(place):
    place.node.prepare(place.ref)
    place.node.store.records.remove(place.ref.uid)
    with place.node.held.hold(["gpu-0"], patience.Patience(mig_node.SECONDS)):
        assert place.stranding.look().stranded == {}
    waiting, taken = place.stranding._taken, []

    def once():
        taken.append(None)
        return waiting() if len(taken) == 1 else {}

    # It was brought back during the look.
    place.stranding._taken = once
    assert place.stranding.look().stranded == {}
