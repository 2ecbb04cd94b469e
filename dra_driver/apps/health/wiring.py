"""The health of a node's GPUs, as its settings and its hardware have it."""

from collections.abc import Callable, Collection, Iterable

from dra_driver import errors
from dra_driver.adapters.disk import files, health_records
from dra_driver.adapters.mps import mps_domain
from dra_driver.adapters.nvml import nvml_health, nvml_reset
from dra_driver.apps.effects import partitioning
from dra_driver.apps.health import book, card_health, recovering, resetting, stranding, watching
from dra_driver.apps.node import base
from dra_driver.apps.offering import inventory
from dra_driver.apps.offering import wiring as offering_wiring
from dra_driver.apps.preparing import attempts
from dra_driver.logic.health import conditions, meaning
from dra_driver.model import devices, health

FAULT_SECONDS = 30.0
"""How old what a daemon's log tells of a fault may be to belong to an event."""


def policy(effects: Iterable[str], evict: Iterable[str], hold: float) -> meaning.Policy:
    """What the settings say of effects."""
    return meaning.Policy(
        tuple(health.parse_effect(text) for text in effects),
        tuple(health.parse_cause(text) for text in evict),
        hold,
    )


class Watched:
    """Listens to GPUs, looks at them, and remembers what is wrong."""

    def __init__(
        self,
        on: base.Base,
        gpus: inventory.Inventory,
        *,
        listeners: book.Listeners,
        may_write: Callable[[], bool],
        leaving: Callable[[], Collection[str]] = tuple,
        on_event: Callable[[health.Event], None] = lambda _: None,
    ) -> None:
        """Nothing is started yet. `on_event` is told of each event, by the thread that listens.

        `leaving` tells the UIDs of claims that are, or were in part, unprepared.
        """
        config = on.config
        standing = stranding.Stranding(
            on.records,
            on.locks,
            on.hardware.pci.scan,
            gpus,
            taken=on.books.handed_over,
            leaving=leaving,
        )
        self._mps = config.mps
        self._gpus = gpus
        self.cards = card_health.CardHealth(
            card_health.Sources(
                gpus,
                on.records,
                nvml_health.HealthReader(on.hardware.nvml),
                self._faulted,
                on.hardware.load,
                standing.look,
            ),
            book.Kept(health_records.opened(config.state / "health"), on.boot_id, may_write),
            policy(config.health_effects, config.health_evict, config.health_hold_seconds),
            interval=config.rescan_seconds,
            listeners=listeners,
            on_event=on_event,
        )
        self.events = watching.EventWatch(
            on.hardware.nvml, self._wanted, self.cards, bus=on.hardware.bus, look=gpus.look
        )
        on.hardware.nvml.held_by(self.events.pause, self.events.resume)

    def view(self) -> conditions.View:
        """What is wrong now."""
        return self.cards.view

    def settled(self) -> conditions.View:
        """What is published of that."""
        return self.cards.settled

    def load(self) -> None:
        """Take up what was known, before anything is told or published."""
        self.cards.book.load()

    def start(self) -> None:
        """Begin to listen and to look."""
        self.cards.start()
        self.events.start()

    def stop(self) -> None:
        """Stop."""
        self.events.stop()
        self.cards.stop()

    def _wanted(self) -> Collection[devices.GpuUuid]:
        return [card.gpu.uuid for card in self._gpus.snapshot.served]

    def _faulted(self, domains: Iterable[str]) -> Collection[str]:
        return [domain for domain in domains if self._has_faulted(domain)]

    def _has_faulted(self, name: str) -> bool:
        domain = mps_domain.Domain(self._mps / name)
        try:
            daemon = domain.read()
        except (errors.DriverError, *files.TROUBLE):
            return False
        return daemon is not None and domain.has_faulted(daemon, FAULT_SECONDS)


def recovery(
    on: base.Base,
    watched: Watched,
    offering: offering_wiring.Offering,
    partitioner: partitioning.Partitioner,
    source: recovering.ClaimList,
    on_result: recovering.OnResult,
) -> recovering.Recovering:
    """What resets GPUs, where the settings let it; else it ends what was begun, and no more."""
    config, hardware, gpus = on.config, on.hardware, offering.gpus

    def is_alone() -> bool:
        return offering.serves and not offering.has_others()

    reader = nvml_health.HealthReader(hardware.nvml)
    tools = resetting.Tools(
        hardware.nvml, hardware.nvidia_smi, partitioner, reader, hardware.nodes, config.proc_root
    )
    kept = resetting.Kept(on.resets, on.records, on.books, on.locks, on.boot_id)
    links = nvml_reset.ResetNvml(hardware.nvml)
    return recovering.Recovering(
        recovering.Sources(
            attempts.node(on),
            gpus,
            on.records,
            source,
            on.books,
            links,
        ),
        resetting.Resetter(tools, kept, watched.cards, is_alone=is_alone),
        watched.cards,
        resets=config.recovery == "reset",
        is_alone=is_alone,
        on_result=on_result,
    )
