"""The health of simulated cards, with a clock of its own, and facts that a test sets."""

import types

import mig_cards

from dra_driver import errors
from dra_driver.adapters.disk import health_records, records
from dra_driver.apps.health import book, card_health
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import conditions, meaning
from dra_driver.model import devices, health, prepared

FINE = health.Facts(recovery=0, remap_pending=False, thermal_slowdown=False)
XID = health.EventKind.XID


class Clock:
    """A monotonic clock, and a date, that go as a test says."""

    def __init__(self):
        self.seconds, self.text = 1000.0, "2026-11-30T10:00:00Z"

    def __call__(self):
        return conditions.Now(self.seconds, self.text)

    def go(self, seconds):
        self.seconds += seconds
        minutes, rest = divmod(int(self.seconds), 60)
        self.text = f"2026-11-30T{10 + minutes // 60:02}:{minutes % 60:02}:{rest:02}Z"


class Scene:
    """The health of a node, whose threads are not started: a test says when they think and look."""

    def __init__(
        self, directory, *, spec="h100-80gb-hbm3:2", policy=None, clock=None, interval=10.0
    ):
        self.directory = directory
        self.policy = policy or meaning.Policy()
        self.clock, self.interval = clock or Clock(), interval
        self.looks = 0
        self.gpus = mig_cards.node(spec)
        self.cards = tuple(mig_cards.dynamic(spec))
        self.inventory = types.SimpleNamespace(snapshot=inventory.Snapshot(self.cards))
        self.facts_of = {gpu.uuid: FINE for gpu in self.gpus}
        self.problem = None
        self.faulted = ()
        self.during = lambda _gpu: None
        """What happens while a GPU is asked."""
        self.load = "1"
        self.claims = records.Records(directory / "claims")
        self.told, self.published = [], []
        self.may_write = True
        self.start("boot-1")

    def start(self, boot, *, load=True):
        """The driver starts, or starts again, in a boot of the node."""
        self.boot = boot
        self.health = card_health.CardHealth(
            card_health.Sources(
                self.inventory, self.claims, self, lambda _: self.faulted, lambda: self.load
            ),
            book.Kept(
                health_records.opened(self.directory / "health"), boot, lambda: self.may_write
            ),
            self.policy,
            interval=self.interval,
            listeners=book.Listeners(
                lambda: self.told.append(self.said()),
                lambda: self.published.append(self.said(self.health.settled)),
            ),
            clock=self.clock,
        )
        if load:
            self.health.book.load()

    def facts(self, gpus, asks=lambda _: None):
        """See `card_health.FactsSource`."""
        self.looks += 1
        for gpu in gpus:
            asks(gpu)
            self.during(gpu)
        if self.problem is not None:
            raise errors.Retryable(self.problem)
        return {gpu: self.facts_of[gpu] for gpu in gpus}

    def xid(self, number, *, gpu=0, gi=None):
        self.health.heard(health.Event(XID, self.gpus[gpu].uuid, number, gi))
        self.health.think()

    def look(self, seconds=0.0):
        self.clock.go(seconds)
        self.health.look()
        return self.said()

    def said(self, view=None):
        """What is wrong, by device name of the card."""
        names = {gpu.uuid: gpu.name for gpu in self.gpus}
        return {
            f"{names[one.finding.gpu]} {one.finding.key}={one.finding.value}"
            for one in (view or self.health.view).conditions
        }

    def lose(self, number):
        """A GPU is not seen any more."""
        left = tuple(card for card in self.cards if card.name != f"gpu-{number}")
        gone = dict(self.cards[number].offers)
        self.inventory.snapshot = inventory.Snapshot(left, gone)

    def find(self):
        """All GPUs are seen."""
        self.inventory.snapshot = inventory.Snapshot(self.cards)

    def claim(self, uid, number=0, *, mps=()):
        """A claim has a whole GPU, in MPS domains."""
        name = f"gpu-{number}"
        device = prepared.PreparedDevice(requests=("r",), pool="n", device=name, cdi_ids=())
        self.claims.write(
            prepared.Record(
                uid=uid,
                namespace="ns",
                name=uid,
                phase=prepared.Phase.COMPLETED,
                boot_id=self.boot,
                devices=(device,),
                sharing=prepared.Sharing(
                    mps=tuple(
                        prepared.MpsUse(domain=one, keys=(name,), devices=(name,)) for one in mps
                    )
                ),
                gpus={name: self.gpus[number].uuid},
            )
        )

    def since(self, number=0):
        """When what is wrong with a GPU began."""
        found = self.health.view.of(devices.Offer(self.gpus[number]))
        return {f"{one.finding.key}={one.finding.value}": one.since for one in found}
