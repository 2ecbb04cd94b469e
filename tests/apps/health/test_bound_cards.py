"""What is known of the health of a card that a VFIO driver has: nothing new, and nothing wrong."""

import dataclasses

import pytest
from health_scene import FINE, Scene

from dra_driver.apps.health import card_health
from dra_driver.apps.offering import inventory
from dra_driver.logic.passthrough import standing
from dra_driver.model import bindings, health, prepared

RESET = dataclasses.replace(FINE, recovery=1)
HOT = dataclasses.replace(FINE, thermal_slowdown=True)
LOST = health.Facts(is_lost=True)


class Machine(Scene):
    """The first of two cards goes to a virtual machine, and comes back."""

    stands = standing.Standing()
    asked = ()

    def start(self, boot, *, load=True):
        super().start(boot, load=False)
        self.health._sources = dataclasses.replace(self.health._sources, stands=lambda: self.stands)
        if load:
            self.health.book.load()

    def facts(self, gpus, asks=lambda _: None):
        self.asked = list(gpus)
        return super().facts(gpus, asks)

    def take(self):
        """A claim's record is there, and a VFIO driver has the card."""
        self.give()
        self.bind()

    def bind(self):
        bound = dataclasses.replace(self.cards[0], is_bound=True)
        self.see(bound, self.cards[1])

    def give(self):
        """The record of a claim that is to have the card."""
        self.claim("vm")
        binding = bindings.Binding(
            device="gpu-vfio-0",
            gpu=self.gpus[0].uuid,
            address=self.gpus[0].pci_address,
            group=1,
            driver="vfio-pci",
        )
        self.claims.write(bindings.into(self.claims.get("vm"), (binding,)))

    def see(self, *cards):
        self.inventory.snapshot = inventory.Snapshot(tuple(cards))
        self.health.changed()

    def bring_back(self):
        self.find()
        self.claims.remove("vm")
        self.health.changed()


@pytest.fixture
def scene(tmp_path):
    return Machine(tmp_path)


def test_nvml_is_not_asked_about_it_and_nothing_is_wrong_with_it(scene):
    scene.take()
    scene.facts_of[scene.gpus[0].uuid] = LOST
    assert scene.look(1000) == set()
    assert scene.asked == [scene.gpus[1].uuid]
    assert scene.told == []


def test_between_two_drivers_it_is_not_lost_for_a_moment(scene):
    scene.give()
    scene.facts_of[scene.gpus[0].uuid] = LOST
    assert scene.look(1) == set()
    scene.lose(0)
    scene.health.changed()
    assert scene.look(100) == set()
    scene.bind()
    assert scene.look(1000) == set()
    scene.lose(0)
    scene.claims.remove("vm")
    scene.health.changed()
    assert scene.look(card_health.RETURNING - 1) == set()
    assert scene.told == []


def test_a_card_that_does_not_come_back_to_nvml_is_lost_after_a_while(scene):
    scene.take()
    scene.look()
    scene.claims.remove("vm")
    scene.lose(0)
    scene.health.changed()
    assert scene.look(card_health.RETURNING - 1) == set()
    assert scene.look(1) == {"gpu-0 gpu-lost="}


def test_another_card_that_is_lost_meanwhile_is_told_at_once(scene):
    scene.take()
    scene.inventory.snapshot = inventory.Snapshot(
        scene.inventory.snapshot.cards[:1], dict(scene.cards[1].offers)
    )
    scene.health.changed()
    assert scene.said() == {"gpu-1 gpu-lost="}


def test_what_was_wrong_before_stays_with_its_time_until_it_is_looked_at_again(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.look()
    before = scene.since()
    scene.take()
    scene.facts_of[scene.gpus[0].uuid] = FINE
    assert scene.look(1000) == {"gpu-0 recovery=reset"}
    assert scene.since() == before
    scene.bring_back()
    assert scene.look(1) == {"gpu-0 recovery=reset"}
    assert scene.look(30) == set()


def test_what_was_away_for_a_moment_counts_as_there_until_it_is_looked_at_again(scene):
    scene.facts_of[scene.gpus[0].uuid] = HOT
    scene.look()
    scene.facts_of[scene.gpus[0].uuid] = FINE
    scene.look(1)
    scene.take()
    assert scene.look(1000) == {"gpu-0 thermal=slowdown"}
    scene.bring_back()
    assert scene.look(1) == {"gpu-0 thermal=slowdown"}
    assert scene.look(30) == set()


def test_a_boot_with_the_card_bound_by_somebody_else_forgets_nothing(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.look()
    scene.start("boot-2")
    scene.bind()
    assert scene.look(1000) == {"gpu-0 recovery=reset"}


def test_that_nobody_listens_to_it_is_no_news(scene):
    scene.take()
    scene.health.think()
    scene.health.unwatched({scene.gpus[0].uuid: "NVML does not know it", scene.gpus[1].uuid: "old"})
    scene.health.think()
    assert scene.said() == {"gpu-1 unmonitored="}


def test_a_card_that_is_not_where_it_should_be_is_withdrawn_with_the_reason_until_it_is(scene):
    scene.take()
    gpu = scene.gpus[0].uuid
    scene.stands = standing.Standing({gpu: "it has no driver"})
    assert scene.look() == {"gpu-0 passthrough="}
    [one] = scene.health.view.of_gpu(gpu)
    assert (one.finding.effect, one.finding.message) == ("NoSchedule", "it has no driver")
    before = scene.since()
    scene.stands = standing.Standing({}, frozenset({gpu}))
    assert scene.look(1000) == {"gpu-0 passthrough="}
    scene.stands = None
    assert scene.look(1000) == {"gpu-0 passthrough="}
    assert scene.since() == before
    scene.stands = standing.Standing()
    assert scene.look(1) == {"gpu-0 passthrough="}
    assert scene.look(30) == set()


def test_a_card_that_is_stranded_is_not_told_as_lost_besides(scene):
    scene.give()
    scene.lose(0)
    scene.stands = standing.Standing({scene.gpus[0].uuid: "it has no driver"})
    scene.health.changed()
    assert scene.look(1000) == {"gpu-0 passthrough="}


def test_after_a_boot_a_card_is_stranded_no_more_with_the_first_look(scene):
    scene.take()
    scene.stands = standing.Standing({scene.gpus[0].uuid: "it has no driver"})
    scene.look()
    scene.stands = standing.Standing()
    scene.start("boot-2")
    scene.find()
    assert scene.said() == {"gpu-0 passthrough="}
    assert scene.look() == set()


def test_looks_through_nvml_say_nothing_of_where_a_card_is_bound(scene):
    scene.stands = standing.Standing({scene.gpus[0].uuid: "its audio function is elsewhere"})
    scene.look()
    scene.stands = None
    assert scene.look(1000) == {"gpu-0 passthrough="}


def test_the_record_of_the_claim_may_be_unreadable(scene):
    scene.take()
    scene.look()
    part = prepared.Part(version=bindings.VERSION, content={"kind": "none"})
    scene.claims.write(scene.claims.get("vm").model_copy(update={"parts": {bindings.PART: part}}))
    scene.lose(0)
    scene.health.changed()
    assert scene.look(1) == set()
