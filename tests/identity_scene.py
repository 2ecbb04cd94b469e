"""A node whose cards come, go and change their minor numbers, and claims that mean certain cards.

`mig_node.Node` prepares; what it would publish is put where the driver looks for it after a loss.
"""

import re

import mig_node
import pytest

from dra_driver.logic.offering import naming, offering
from dra_driver.logic.preparing import staleness
from dra_driver.sim.gpus import gpu_operations, gpu_state

_CARD = re.compile(r"GPU-[0-9a-f-]{36}")


class Scene:
    """One machine through its boots; `node` is the driver that runs now."""

    def __init__(self, new_node, api, gpus="h100-80gb-hbm3:2,t4:2"):
        self._new_node, self.api = new_node, api
        self._boots = 1
        self.time = 0.0
        self.meant = {}
        self._begin(gpus)
        self.cards = [card.uuid for card in self.state()]
        self.publish()

    def _begin(self, gpus):
        self.node = self._new_node(gpus, boot=f"boot-{self._boots}")
        self.node.names._clock = lambda: self.time

    def state(self):
        """The cards as they are."""
        return gpu_state.open_file(self.node.simulation).read().gpus

    @property
    def snapshot(self):
        return self.node.gpus.snapshot

    def look(self):
        """Look at the cards, and publish what is there."""
        snapshot = self.node.gpus.look()
        self.publish()
        return snapshot

    def publish(self):
        """What the publisher would write, if it is known what to write."""
        snapshot = self.snapshot
        if isinstance(self.api.published, Exception):
            return
        if snapshot.nameless.keys() & naming.cards(naming.published(self.api.published)):
            return
        known = self.node.store.records.contents().records.values()
        held = frozenset(one.device for record in known for one in record.devices)
        state = offering.State(snapshot.lost, held, self.api.published)
        listed = offering.listing(snapshot.cards)
        offered = offering.offer(listed, state, offering.Policy(mig_node.DRIVER))
        self.api.published = [device for content in offered for device in content.devices]

    def offered(self):
        """The whole cards that are published, by name."""
        return {
            device.name: device.attributes["uuid"]
            for device in self.api.published
            if device.attributes["type"] == "gpu"
        }

    def minors(self):
        """The minors that are published, by name."""
        return {
            device.name: device.attributes["minor"]
            for device in self.api.published
            if device.attributes["type"] == "gpu"
        }

    def claim(self, *devices):
        """A claim that the scheduler allocates now: it means the cards that are published now."""
        ref = self.api.make(*devices)
        cards = naming.published(self.api.published)
        self.meant[ref.uid] = {cards[name.partition("-mig-")[0]].gpu for name in devices}
        return ref

    def given(self, ref):
        """The cards that the containers of a claim are given."""
        return set(_CARD.findall(" ".join(self.node.variables(ref))))

    def prepare(self, ref):
        """It gets the cards that it means."""
        self.node.prepare(ref)
        assert self.given(ref) == self.meant[ref.uid]
        assert set(self.node.record(ref).gpus.values()) == self.meant[ref.uid]

    def refused(self, ref):
        """Why it does not; nothing is left of it that was not there before."""
        before = self.node.files()
        with pytest.raises(naming.WrongCard) as caught:
            self.node.prepare(ref)
        assert self.node.files() == before
        return str(caught.value)

    def restart(self):
        """The driver starts again, on the machine as it is."""
        self._begin(None)
        self.node.recover()
        self.node.orphans.sweep()
        self.publish()

    def reboot(self, change=lambda: None):
        """The machine is off while `change` happens."""
        for path in self.node.cdi.iterdir():
            path.unlink()
        gpu_operations.reboot(self.node.simulation)
        change()
        self._boots += 1
        self.restart()

    def renumber(self, *order):
        """Minors from now on: these cards, as they were counted at first, have 0, 1, …"""
        gpu_operations.renumber(self.node.simulation, *(self.cards[number] for number in order))

    def exchange(self, number, model):
        """The card in this place is another one now; its UUID."""
        return gpu_operations.exchange(self.node.simulation, self.cards[number], model)

    def wiped(self):
        """What the kubelet does to slices when it starts."""
        self.api.published = []

    def clean_up_after(self, seconds):
        """What the reconciler does for names, that much later."""
        self.time += seconds
        if self.node.names.needs_view():
            listed = staleness.devices_here(self.api.everywhere(), self.node.identity)
            self.node.names.remove(listed)

    def names_on_disk(self):
        return self.node.root / "names"

    def remembered(self):
        """Names by card, as the disk has them."""
        found = self.node.names._store.contents()
        assert found.damaged == {}
        return {one.gpu: one.device for one in found.records.values()}
