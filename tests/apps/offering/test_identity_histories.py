"""Whatever happens to the cards of a node: no claim ever gets another than it was allocated."""

import contextlib
import pathlib
import tempfile

import effort
import hypothesis
import identity_scene
import mig_node
import pytest
from hypothesis import strategies

from dra_driver import errors
from dra_driver.logic.offering import naming
from dra_driver.sim.gpus import gpu_operations

CARDS = 3
MODELS = ("h100-80gb-hbm3", "t4")
HOUR = 3600.0
AT_ONCE = 0.0
"""Seconds of a call that has time for one attempt."""

numbers = strategies.integers(0, 5)


def happens(*names, argument=numbers):
    return strategies.tuples(strategies.sampled_from(names), argument)


steps = strategies.one_of(
    happens("allocate", "prepare", "allocate", "prepare", "unprepare", "release"),
    happens("exchange", "exchange_twice", "take_out", "put_back"),
    happens("renumber", "reboot", argument=strategies.permutations(range(CARDS + 1))),
    happens("wait", "look", "restart"),
    happens("wipe", "away", "back", "lose", "damage"),
)


PUT_BACK_FROM_MIG = [
    *(("prepare", 0), ("allocate", 0), ("renumber", (1, 0, 2, 3)), ("renumber", (1, 0, 2, 3))),
    *(("allocate", 1), ("prepare", 5), ("back", 4), ("take_out", 0), ("allocate", 2)),
    *(("take_out", 0), ("wait", 5), ("allocate", 4), ("prepare", 2), ("put_back", 3)),
    ("restart", 0),
]
"""A card is taken out with an instance on it, and put in again without."""


class History:
    def __init__(self, root):
        self.root, self.api = root, mig_node.Claims()
        self.nodes, self.out = [], []
        self.claims, self.seen = [], []
        self.hidden = None
        self.scene = identity_scene.Scene(self._make, self.api, gpus="h100-80gb-hbm3:2,t4:1")

    def _make(self, gpus, **options):
        self.nodes.append(mig_node.Node(self.root, gpus, self.api, **options))
        return self.nodes[-1]

    def uuids(self):
        return [card.uuid for card in self.scene.state()]

    def pick(self, among, number):
        return among[number % len(among)] if among else None

    # What happens

    def allocate(self, number):
        """The scheduler sees what is published, and what is allocated already."""
        taken = {
            result.device.device.partition("-mig-")[0]
            for claim in self.api.everywhere()
            for result in claim.allocation.results
        }
        published = () if isinstance(self.api.published, Exception) else self.api.published
        free = [one.name for one in published if one.name.partition("-mig-")[0] not in taken]
        # Few partitions and all whole cards.
        free = [name for name in free if "-mig-" not in name or "-mig-7g" in name]
        if device := self.pick(sorted(free), number):
            self.claims.append(self.scene.claim(device))

    def prepare(self, number):
        if ref := self.pick(self.claims, number):
            self.scene.node.prepare(ref, AT_ONCE)
            assert self.scene.given(ref) == self.scene.meant[ref.uid]

    def unprepare(self, number):
        if ref := self.pick(self.claims, number):
            self.scene.node.unprepare(ref, AT_ONCE)

    def release(self, number):
        """The pod is deleted: the claim is unprepared, and then gone."""
        if ref := self.pick(self.claims, number):
            self.scene.node.unprepare(ref, AT_ONCE)
            self.api.delete(ref)
            self.claims.remove(ref)

    def look(self, _):
        self.scene.look()

    def restart(self, _):
        self.scene.restart()

    def renumber(self, order):
        uuids = self.uuids()
        chosen = [uuids[number] for number in order if number < len(uuids)]
        gpu_operations.renumber(self.scene.node.simulation, *chosen)
        self.scene.look()

    def reboot(self, order):
        self.scene.reboot(lambda: self.renumber(order))

    def take_out(self, number):
        if uuid := self.pick(self.uuids(), number):
            self.out.append(gpu_operations.remove_card(self.scene.node.simulation, uuid))
            self.scene.look()

    def put_back(self, number):
        if card := self.pick(self.out, number):
            self.out.remove(card)
            there = {one.pci_address for one in self.scene.state()}
            if card.pci_address not in there:
                off = {"gpu_instances": [], "mig_enabled": False, "mig_pending": False}
                card = card.model_copy(update=off)
                gpu_operations.insert_card(self.scene.node.simulation, card)
                self.scene.look()

    def exchange(self, number):
        if uuid := self.pick(self.uuids(), number):
            model = MODELS[number % len(MODELS)]
            gpu_operations.exchange(self.scene.node.simulation, uuid, model)
            self.scene.look()

    def exchange_twice(self, number):
        """A new card is no better, and gives way to another one a day later."""
        place = number % max(len(self.uuids()), 1)
        self.exchange(place)
        self.wait(0)
        self.exchange(place)

    def wipe(self, _):
        """The kubelet starts."""
        if not isinstance(self.api.published, Exception):
            self.scene.wiped()

    def away(self, _):
        if not isinstance(self.api.published, Exception):
            self.hidden = self.api.published
            self.api.published = errors.Retryable("no API server")

    def back(self, _):
        if isinstance(self.api.published, Exception):
            self.api.published = self.hidden

    def lose(self, _):
        """All that is on disk of names is gone, and the driver with it, while others tell."""
        if self._others_tell():
            for path in self.scene.names_on_disk().iterdir():
                path.unlink()
            self.scene.restart()

    def damage(self, number):
        if self._others_tell():
            path = self.pick(sorted(self.scene.names_on_disk().glob("*.json")), number)
            if path is not None:
                path.write_text("damaged")
            self.scene.restart()

    def _others_tell(self):
        """Whether what is published tells what each claim means."""
        told = {} if isinstance(self.api.published, Exception) else self.api.published
        told = {one.gpu for one in naming.published(told).values()}
        return all(self.scene.meant[ref.uid] <= told for ref in self.claims)

    def wait(self, _):
        for _ in range(2):
            self.scene.clean_up_after(HOUR)

    # What has to be true

    def holds(self):
        snapshot = self.scene.snapshot
        by_card = {}
        for card in snapshot.cards:
            assert by_card.setdefault(card.gpu.uuid, card.name) == card.name
        names = [card.name for card in snapshot.cards]
        assert len(set(names)) == len(names)
        # What a claim has here, or is to have, is called what it was called.
        for ref in self.claims:
            [device] = {r.device.device for r in self.api.known[ref.name].allocation.results}
            [uuid] = self.scene.meant[ref.uid]
            name = device.partition("-mig-")[0]
            assert by_card.get(uuid, name) == name
            assert name not in by_card.values() or by_card.get(uuid) == name
        self.seen.append(
            sorted((card.name, card.gpu.uuid, card.gpu.minor) for card in snapshot.cards)
        )

    def run(self, history):
        for name, argument in history:
            with contextlib.suppress(errors.DriverError):
                getattr(self, name)(argument)
            self.holds()
        return self.seen

    def end(self):
        """When all is well again, each claim gets its card or a refusal that says why not."""
        self.back(0)
        self.scene.look()
        there = {card.gpu.uuid for card in self.scene.snapshot.cards}
        for ref in list(self.claims):
            [uuid] = self.scene.meant[ref.uid]
            if uuid in there:
                self.scene.node.prepare(ref, mig_node.SECONDS)
                assert self.scene.given(ref) == {uuid}
            else:
                with pytest.raises(errors.DriverError):
                    self.scene.node.prepare(ref, AT_ONCE)
            self.scene.node.unprepare(ref, mig_node.SECONDS)


def told(history):
    """The names after each step of a history on a new machine."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        story = History(pathlib.Path(directory))
        try:
            seen = story.run(history)
            story.end()
        finally:
            for node in story.nodes:
                node.held.close()
    return seen


@hypothesis.settings(max_examples=effort.examples(30), deadline=None)
@hypothesis.given(strategies.lists(steps, min_size=10, max_size=24))
@hypothesis.example(PUT_BACK_FROM_MIG)
def test_in_no_history_does_a_claim_get_another_card_and_the_same_history_gives_the_same_names(
    history,
):
    assert told(history) == told(history)
