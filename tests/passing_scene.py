"""A node whose GPUs go to virtual machines: what NVML tells, and a PCI bus that is set by hand."""

import dataclasses

import mig_node
import passed_cards

from dra_driver.apps.offering import offers, passing
from dra_driver.logic.offering import publishing
from dra_driver.model import bindings, devices, prepared
from dra_driver.sim.gpus import gpu_operations

VFIO = "vfio-pci"
FORM = publishing.Form(publishing.Layout.SPLIT)
MODELS = {"h100-80gb-hbm3": passed_cards.H100, "t4": passed_cards.T4}


def told(log, event):
    """The lines of a log of one event."""
    return [line for line in log if line["event"] == event]


def card(scene, number):
    """The card of that number, as it was seen last."""
    [found] = [one for one in scene.node.gpus.snapshot.cards if one.name == f"gpu-{number}"]
    return found


class Bus:
    """The functions by address; `scan` counts, and fails with what `trouble` is."""

    def __init__(self):
        self.functions, self.facts = {}, {}
        self.scans, self.trouble = 0, None

    def scan(self):
        self.scans += 1
        if self.trouble is not None:
            raise self.trouble
        return passed_cards.bus(*self.functions.values(), **self.facts)

    def put(self, address, **facts):
        self.functions[address] = passed_cards.function(address, **facts)

    def change(self, address, **facts):
        self.functions[address] = dataclasses.replace(self.functions[address], **facts)


class Scene:
    """One machine through lives of the driver and boots."""

    def __init__(self, root, gpus="h100-80gb-hbm3:1,t4:1", *, mode=passed_cards.ON, is_on=True):
        self.root, self.api, self.bus = root, mig_node.Claims(), Bus()
        self.mode_of, self.is_on = (lambda _: mode), is_on
        self.boot, self.out, self.nodes = "boot-1", {}, []
        self.begin(gpus)

    def begin(self, gpus=None):
        """The driver starts, and looks."""
        self.node = mig_node.Node(self.root, gpus, self.api, boot=self.boot)
        self.nodes.append(self.node)
        for card in self.state():
            kind = MODELS[card.model]
            if card.pci_address not in self.bus.functions:
                self.bus.put(card.pci_address, device=kind)
        self.passing = passing.Passing(
            self.bus.scan,
            self.node.store.records,
            self.node.books.handed_over,
            lambda gpu: self.mode_of(gpu),  # noqa: PLW0108 - it is set by tests
            boot_id=self.boot,
            is_on=self.is_on,
        )
        looking = dataclasses.replace(self.node.gpus._looking_at, bus=self.passing)
        self.node.gpus._looking_at = looking
        self.offers = offers.Offers(
            self.node.gpus,
            self.node.store.records,
            driver_name=mig_node.DRIVER,
            policy="pack",
            seconds=0,
            later=lambda: None,
        )
        self.published = []
        return self.look()

    def reboot(self):
        """All GPUs come up with NVIDIA's driver, but those that are set by hand."""
        self.boot = f"boot-{int(self.boot[-1]) + 1}"

    def state(self):
        return mig_node.gpu_state.open_file(self.root / "simulation").read().gpus

    def address(self, number):
        return self.state()[number].pci_address

    def look(self):
        """A look, after which what is wanted is published."""
        snapshot = self.node.gpus.look()
        self.contents = self.offers.wanted(self.published, FORM)
        if self.contents is not None:
            self.published = [device for one in self.contents for device in one.devices]
            self.api.published = self.published
        return snapshot

    def names(self, kind=None):
        return sorted(one.name for one in self.published if kind in (None, one.attributes["type"]))

    def device(self, name):
        [found] = [one for one in self.published if one.name == name]
        return found

    def numbers(self):
        """The numbers of cards, by address."""
        return {
            card.gpu.pci_address: devices.number_of(card.name)
            for card in self.node.gpus.snapshot.cards
        }

    # What becomes of a card

    def unbind(self, address):
        """NVIDIA's driver loses it."""
        [card] = [one for one in self.state() if one.pci_address == address]
        self.out[address] = gpu_operations.remove_card(self.root / "simulation", card.uuid)
        self.bus.change(address, driver=None)

    def bind(self, address, driver=VFIO):
        if self.bus.functions[address].driver == "nvidia":
            self.unbind(address)
        self.bus.change(address, driver=driver)

    def bind_back(self, address):
        self.bus.change(address, driver="nvidia")
        gpu_operations.insert_card(self.root / "simulation", self.out.pop(address))

    def exchange(self, address, model):
        gpu_operations.exchange(
            self.root / "simulation",
            next(one.uuid for one in self.state() if one.pci_address == address),
            model,
        )

    # Claims

    def record(self, card, uid="uid-1", *, found=False):
        """A claim has the card for a virtual machine, or is about to."""
        name = devices.vfio_device_name(card.name)
        entry = prepared.PreparedDevice(
            requests=("vm",), pool=mig_node.POOL, device=name, cdi_ids=(), kind="vfio"
        )
        record = prepared.Record(
            uid=uid, namespace="default", name="vm", phase=prepared.Phase.STARTED,
            boot_id=self.boot, devices=(entry,), gpus={card.name: card.gpu.uuid},
        )  # fmt: skip
        binding = bindings.Binding(
            device=name,
            gpu=card.gpu.uuid,
            address=card.gpu.pci_address,
            group=1,
            found=found,
            facts=None if found else card.gpu,
        )
        self.node.store.records.write(bindings.into(record, (binding,)))

    def forget(self, uid="uid-1"):
        self.node.store.records.remove(uid)

    def close(self):
        self.offers.stop()
        for node in self.nodes:
            node.held.close()
