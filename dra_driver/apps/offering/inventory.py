"""The GPUs of the node, looked at again and again: they, and their driver, come and go."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, ledgers
from dra_driver.adapters.nvml import nvml, nvml_gate
from dra_driver.adapters.system import sysfs, workers
from dra_driver.apps.offering import card_news, names, passing
from dra_driver.logic.offering import catalog, naming, sightings, sites
from dra_driver.logic.preparing import planning
from dra_driver.model import claims, devices, mig, shares

"""How long a look that has begun may take when it is to stop; NVML may hang on a sick card."""
LOOK_AGAIN = 1.0
"""Seconds until a look is confirmed that something has failed at, at most."""
LEAST_LOOK = 2.0
"""Seconds that a look may take that somebody waits for, also at the end of a call."""
SLOW = (
    "the GPUs cannot be looked at now: NVML does not come back. Remedy: dmesg | grep -i -e nvrm -e "
    "xid on the node tells of cards that do not answer"
)
_BLIND = (nvml.Outdated, nvml_gate.Closed)


class Source(Protocol):
    """What can look for GPUs."""

    def discover(self) -> devices.Discovery:
        """The GPUs that are there now.

        Raises:
            nvml.Outdated: this process will not get an answer any more, and another one may.
            nvml_gate.Closed: nobody may look for now.
            errors.Retryable: the NVIDIA driver does not answer; the text says what to do.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """What was seen at one look.

    `cards` are the GPUs that answer, with what can be had of them; `lost` are devices by name whose
    GPU was seen earlier and is not there now; `failures` tells of GPUs that do not answer, or not
    enough, or of which nobody knows what to do with them. `problem` says why nothing could be seen
    at all. `doubts` say why some cards are as they were seen earlier: those are looked at soon.
    `names` is what is remembered of names; `nameless` says why cards have none yet, by UUID.
    """

    cards: tuple[catalog.Card, ...] = ()
    lost: Mapping[str, devices.Offer] = dataclasses.field(default_factory=dict)
    failures: tuple[str, ...] = ()
    problem: str | None = None
    doubts: tuple[str, ...] = ()
    names: naming.Memory = dataclasses.field(default_factory=dict)
    nameless: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def offered(self) -> Mapping[str, devices.Offer]:
        """What can be handed out, by device name."""
        return {name: offer for card in self.cards for name, offer in card.offers.items()}

    @property
    def served(self) -> tuple[catalog.Card, ...]:
        """The cards that NVML tells of; nothing may be asked of the others."""
        return tuple(card for card in self.cards if not card.is_bound)

    @property
    def bound(self) -> Mapping[str, str]:
        """The names of the cards that a VFIO driver has, by UUID."""
        return {card.gpu.uuid: card.name for card in self.cards if card.is_bound}

    def why_missing(self, name: str) -> str | None:
        """Why the device is not offered; None where it is, or where nothing is known."""
        if self.nameless and name not in self.offered:
            return f"device {name!r} is not known for now: {next(iter(self.nameless.values()))}"
        if self.doubts and name not in self.offered:
            return f"device {name!r} is not known for now. {self.doubts[0]}"
        notes = [
            note
            for card in self.cards
            if card.name == devices.card_of(name) and (note := catalog.why_without(card, name))
        ]
        if self.problem is None and notes and name not in self.offered:
            return (
                f"device {name!r} does not exist on this node. {devices.card_of(name)}: {notes[0]}"
            )
        return self.problem

    def refuse_missing(self, ref: claims.ClaimRef, missing: planning.UnknownDevice) -> None:
        """Refuse a device that was missing, if it still is and the reason is known.

        Raises:
            naming.WrongCard: its card is gone, and not about to come back as far as was seen.
            errors.Retryable: it may be offered in a moment.
        """
        card = self.names.get(devices.card_of(missing.device))
        left = {offer.gpu.uuid for offer in self.lost.values()}
        if self.problem is None and card and card.gone_since and card.gpu not in left:
            raise naming.gone(ref, missing.results, card)
        if (reason := self.why_missing(missing.device)) is not None:
            raise errors.Retryable(f"claim {ref}: {reason}") from missing

    @property
    def divisions(self) -> Mapping[str, shares.Shares]:
        """How the devices are divided that many claims consume, by device name."""
        return {
            name: card.division
            for card in self.cards
            if card.division is not None
            for name in card.offers
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Looking:
    """How to look: where GPUs and their places are found, and what may be made of each.

    `mode_of` and `shares_of` give what the settings have for a GPU, or raise errors.Rejected;
    `fill` adds to GPUs what NVML does not tell, and `in_fabric` to all of a node what Fabric
    Manager does. `is_busy` tells of a card, by its name, whether a
    claim is at work on it. `bus` tells what virtual machines get, or have.
    """

    source: Source
    place: sysfs.Sysfs
    ledgers: ledgers.Ledgers
    mode_of: Callable[[devices.Gpu], mig.Mode]
    shares_of: Callable[[devices.Gpu], shares.Shares | None] = lambda _: None
    fill: Callable[[Iterable[devices.Gpu]], Iterable[devices.Gpu]] = lambda gpus: gpus
    in_fabric: Callable[[Sequence[devices.Gpu]], Sequence[devices.Gpu]] = lambda gpus: gpus
    named: names.Namer = names.by_minor
    is_busy: Callable[[str], bool] = lambda _: False
    bus: passing.Passing | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Fresh:
    """What one look finds, before it is weighed. `there`: the UUIDs of all GPUs that answered."""

    look: sightings.Look
    there: frozenset[str] = frozenset()
    failures: tuple[str, ...] = ()
    names: naming.Memory = dataclasses.field(default_factory=dict)
    nameless: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Inventory:
    """Looks every `interval` seconds, and when asked to; tells when what it sees has changed."""

    def __init__(
        self,
        looking: Looking,
        *,
        interval: float,
        on_change: Callable[[], None],
    ) -> None:
        self._looking_at = looking
        self._interval = interval
        self._patience = min(interval, LOOK_AGAIN)
        self._on_change = on_change
        self._log = telemetry.logger("inventory")
        self._looking = threading.Lock()
        self._known = sightings.Known()
        self._odd_since: float | None = None
        self._snapshot = Snapshot()
        self._first = threading.Event()
        self._worker = workers.Worker("inventory", self._run)

    def start(self) -> None:
        """Begin to look."""
        self._worker.start()

    def stop(self) -> None:
        """Stop looking."""
        self._worker.end()

    def wait_first(self, seconds: float) -> bool:
        """Whether a first look is done within `seconds`."""
        return self._first.wait(seconds)

    @property
    def snapshot(self) -> Snapshot:
        """What was seen last."""
        return self._snapshot

    def look_within(self, seconds: float) -> Snapshot:
        """Look now, without waiting any longer than that, or `LEAST_LOOK`, for NVML.

        Raises:
            errors.Retryable: it did not come back, from this look or an earlier one.
        """
        seen: list[Snapshot] = []
        limit = max(seconds, LEAST_LOOK)
        deadline = time.monotonic() + limit
        if self._looking.acquire(timeout=limit):
            self._looking.release()
            look = threading.Thread(
                target=lambda: seen.append(self.look()), name="look", daemon=True
            )
            look.start()
            look.join(max(deadline - time.monotonic(), 0.0))
        if not seen:
            raise errors.Retryable(SLOW)
        return seen[0]

    def current(self) -> Snapshot:
        """What there is now; what was seen last where NVML does not come back soon."""
        try:
            return self.look_within(LEAST_LOOK)
        except errors.Retryable:
            return self._snapshot

    def look(self) -> Snapshot:
        """Look now. While nothing can be seen on purpose, what was seen before counts: in a process
        that is to end, and while a GPU is reset.
        """
        with self._looking:
            before = self._snapshot
            try:
                after = self._see(before)
            except _BLIND:
                return before
            if after is None:
                return before
            if after != before or not self._first.is_set():
                self._snapshot = after
                self._tell(before, after)
                self._first.set()
                self._on_change()
        return after

    def _run(self) -> None:
        while not self._worker.is_ending():
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a thread that ends would see no GPU ever again
                self._log.exception("looking for GPUs failed unexpectedly")
            soon = self._known.doubts or not self._first.is_set()
            self._worker.pause(self._patience if soon else self._interval)

    def _see(self, before: Snapshot) -> Snapshot | None:
        """What counts from now on; None where a first look has to be confirmed.

        What was there before, where the disk does not tell what is ours of it.
        """
        now = time.monotonic()
        try:
            fresh = self._fresh(before)
            self._known = sightings.weighed(
                self._known,
                fresh.look,
                now=now,
                patience=self._patience,
                is_busy=self._looking_at.is_busy,
            )
        except files.TROUBLE as error:
            self._log.warning("GPUs cannot be looked at for now", reason=str(error))
            if before.cards:
                return before
            problem = str(error)
            is_passing = self._is_to_be_confirmed(sightings.Look(problem=problem), now)
            return None if is_passing else Snapshot(lost=before.lost, problem=problem)
        look = fresh.look
        if self._is_to_be_confirmed(look, now):
            return None
        cards, doubts = self._known.cards, self._known.doubts
        there = fresh.there | {card.gpu.uuid for card in cards}
        called = {card.name for card in cards}
        earlier = {**before.lost, **before.offered}
        return Snapshot(
            cards,
            {name: one for name, one in earlier.items() if not sites.is_there(one, there, called)},
            tuple(text for text in fresh.failures if text not in doubts),
            None if cards else look.problem,
            doubts,
            fresh.names,
            fresh.nameless,
        )

    def _is_to_be_confirmed(self, look: sightings.Look, now: float) -> bool:
        """Whether it is a first look at which something failed.

        What is published is from an earlier life of the driver, and not known here.
        """
        if self._first.is_set() or not look.is_odd:
            return False
        if self._odd_since is None:
            self._odd_since = now
        return now - self._odd_since < self._patience

    def _fresh(self, before: Snapshot) -> _Fresh:
        """What there is to see now. A driver that does not answer renames nothing."""
        ours = {card.gpu.uuid: self._ours(card.gpu.uuid) for card in self._known.cards}
        look = self._looking_at.bus.begin() if self._looking_at.bus else None
        problem = None
        try:
            discovery = self._looking_at.source.discover()
        except _BLIND:
            raise
        except errors.Retryable as error:
            problem = str(error)
            discovery = devices.Discovery((), (devices.GpuFailure(-1, None, None, problem),))
        seen = look.joined(discovery) if look else passing.Joined(discovery)
        if problem is not None and not seen.discovery.gpus:
            # What others have bound is there all the same.
            blind = sightings.Look(problem=problem)
            return _Fresh(blind, names=before.names, nameless=before.nameless)
        named = self._looking_at.named(seen.discovery)
        cards, failed, failures = self._cards(named.gpus, seen, ours)
        failed = [*discovery.failures, *failed]
        return _Fresh(
            sightings.Look(
                tuple(cards),
                (*failed, *seen.odd),
                discovery.answers,
                {gpu.pci_address: gpu.uuid for gpu in seen.discovery.gpus}
                | {gpu.pci_address: gpu.uuid for gpu in named.gpus},
                problem,
            ),
            frozenset(gpu.uuid for gpu in (*seen.discovery.gpus, *named.gpus)),
            (*(str(one) for one in failed), *failures, *seen.failures, *named.nameless.values()),
            named.memory,
            named.nameless,
        )

    def _cards(
        self,
        gpus: Sequence[devices.Gpu],
        seen: passing.Joined,
        ours: Mapping[devices.GpuUuid, catalog.Ours],
    ) -> tuple[list[catalog.Card], list[devices.GpuFailure], list[str]]:
        """The cards, and the GPUs that are none: those that NVML tells of, and what of others."""
        cards, failed, failures = [], [], []
        gpus = self._looking_at.in_fabric(gpus)
        told = self._looking_at.fill([gpu for gpu in gpus if seen.is_told(gpu)])
        for gpu in (*told, *(gpu for gpu in gpus if not seen.is_told(gpu))):
            try:
                cards.append(self._card(gpu, seen, ours.get(gpu.uuid)))
            except files.TROUBLE:
                raise
            except errors.Rejected as error:
                reason = f"is not offered: {error}"
                failure = devices.GpuFailure(gpu.index, gpu.uuid, gpu.pci_address, reason)
                if seen.is_told(gpu):
                    # It may be for want of an answer, so this may pass as other failures may.
                    failed.append(failure)
                else:
                    failures.append(str(failure))
        return cards, failed, failures

    def _card(
        self, gpu: devices.Gpu, seen: passing.Joined, before: catalog.Ours | None
    ) -> catalog.Card:
        """What can be had of the GPU.

        What was ours before the look counts too: an instance that is destroyed meanwhile would
        otherwise be taken for a foreign one.
        """
        if gpu.pci_address not in seen.ours:
            gpu = self._looking_at.place.located(gpu)
        if gpu.pci_address in seen.foreign:
            return seen.passed(catalog.Card(gpu, {}))
        ours = self._ours(gpu.uuid)
        if before is not None:
            ours = catalog.Ours(
                ours.spots | before.spots, ours.mode_switched or before.mode_switched
            )
        mode = self._looking_at.mode_of(gpu)
        card = catalog.card(gpu, mode, ours)
        return seen.passed(catalog.divided(card, self._looking_at.shares_of(gpu)))

    def _ours(self, uuid: devices.GpuUuid) -> catalog.Ours:
        ledger = self._looking_at.ledgers.get(uuid)
        return catalog.Ours(ledger.spots, ledger.mode_switched)

    def _tell(self, before: Snapshot, after: Snapshot) -> None:
        if after.problem is not None:
            self._log.warning(
                "no GPU can be seen; looking again", reason=after.problem, seconds=self._interval
            )
        for doubt in after.doubts:
            self._log.info(
                "a GPU was not seen as before; looking again", reason=doubt, seconds=self._patience
            )
        for failure in after.failures:
            self._log.warning("GPU is not offered", reason=failure)
        card_news.tell(self._log, before.cards, after.cards)
