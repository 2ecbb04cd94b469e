"""What is wrong with the GPUs of a node, gathered from events and from looks."""

import contextlib
import dataclasses
import datetime as dt
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, records
from dra_driver.adapters.system import workers
from dra_driver.apps.health import book
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import attributing, conditions, meaning
from dra_driver.logic.passthrough import standing
from dra_driver.model import devices, health, prepared, taints

SOON = 0.3
"""Seconds after an event until the GPUs are looked at: what belongs together comes together."""
MOST_WAITING = 1024
"""Different events that wait to be thought about; of more nothing is kept."""
HUNG = 30.0
"""Seconds after which a question about a GPU that has not come back is told."""
RETURNING = 30.0
"""Seconds after a GPU was last seen bound for a virtual machine, or its claim had it, until it
counts as lost if NVML does not list it: an open NVML sees none that comes back."""
_LEAST_PAUSE = 0.1
"""Seconds between two looks, whatever is due."""


class FactsSource(Protocol):
    """What can look at the health of GPUs."""

    def facts(
        self,
        gpus: Collection[devices.GpuUuid],
        asks: Callable[[devices.GpuUuid], None] = lambda _: None,
    ) -> Mapping[devices.GpuUuid, health.Facts]:
        """Those of the GPUs with these UUIDs; `asks` is told before each of them is asked.

        Raises:
            errors.Retryable: the driver does not answer.
        """


def now() -> conditions.Now:
    """The time of this moment."""
    return conditions.Now(time.monotonic(), dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """Where it is learnt what is wrong, and who has what."""

    gpus: inventory.Inventory
    claims: records.Records
    facts: FactsSource
    faulted: Callable[[Iterable[str]], Collection[str]] = lambda _: ()
    """Which of some MPS daemons, by domain, tell of a fatal fault of late."""
    load: Callable[[], str] = lambda: ""
    """Which load of the kernel module this is; empty: it is not there, or does not tell."""
    stands: Callable[[], standing.Standing | None] = standing.Standing
    """Which GPUs of virtual machines are not where they should be; None: it is not known now."""


class CardHealth:
    """Two threads: one thinks about events at once, the other looks, which may hang on a sick card.

    See `book.Book` for `view` and `settled`.
    """

    def __init__(
        self,
        sources: Sources,
        kept: book.Kept,
        policy: meaning.Policy,
        *,
        interval: float,
        listeners: book.Listeners,
        on_event: Callable[[health.Event], None] = lambda _: None,
        clock: Callable[[], conditions.Now] = now,
    ) -> None:
        """`interval` seconds are between looks while nothing happens.

        `on_event` is told of each event, by a thread that listens to them.
        """
        self.book = book.Book(kept, listeners, clock)
        self._guard = self.book.guard
        self._sources = sources
        self._policy = policy
        self._interval = interval
        self._on_event = on_event
        self._clock = clock
        self._waiting: dict[health.Event, None] = {}
        self._unwatched: Mapping[devices.GpuUuid, str] | None = None
        self._known: Mapping[str, prepared.Record] = {}
        self._handed: dict[str, float] = {}
        """When GPUs were seen last as bound for virtual machines, or about to be, by UUID."""
        self._thought_of: inventory.Snapshot | None = None
        self._look_at = float("-inf")
        self._asking: tuple[devices.GpuUuid, float] | None = None
        self._log = telemetry.logger("health")
        self._thinker = workers.Worker("health", self._think)
        self._looker = workers.Worker("health-looks", self._look_again)

    @property
    def view(self) -> conditions.View:
        """What counts now."""
        return self.book.view

    @property
    def settled(self) -> conditions.View:
        """What is published."""
        return self.book.settled

    def start(self) -> None:
        """Begin to think and to look."""
        self._thinker.start()
        self._looker.start()

    def stop(self) -> None:
        """Stop; what is known stays on disk."""
        self._looker.end()
        self._thinker.end()

    def heard(self, event: health.Event) -> None:
        """The driver has told something; returns at once."""
        self._on_event(event)
        with self._guard:
            if len(self._waiting) < MOST_WAITING:
                self._waiting[event] = None
        self._thinker.wake()

    def unwatched(self, gpus: Mapping[devices.GpuUuid, str]) -> None:
        """From now on these GPUs, and no others, are not listened to, for these reasons."""
        with self._guard:
            self._unwatched = dict(gpus)
        self._thinker.wake()

    def changed(self) -> None:
        """Claims, or the GPUs that are there, may have changed.

        What is absent is known when this returns, also to those who publish: whoever offers the
        devices of the node sees that at the same moment.
        """
        snapshot = self._sources.gpus.snapshot
        with self._guard:
            # What is on disk comes first: what is put before that would replace it.
            is_news = self.book.is_loaded and snapshot is not self._thought_of
            if is_news:
                self._thought_of = snapshot
                self._take_in(self._absent(snapshot))
                self.book.settle(at_once=True)
        if is_news:
            self._look_soon()
        self._thinker.wake()

    def was_reset(self, gpu: str) -> None:
        """A GPU was reset: what was to last until then is gone."""
        with self._guard:
            self.book.put(gpu, conditions.recovered(self.book.state(gpu), self._clock()))
            self.book.settle()
        self._look_soon()
        self._thinker.wake()

    def look(self) -> None:
        """Look at the GPUs now, and think about what is seen."""
        snapshot = self._sources.gpus.snapshot
        seen, load = self._seen(snapshot), self._sources.load()
        stands = self._sources.stands()
        with self._guard:
            if load:
                self.book.loaded(load)
            self._take_in(seen)
            self._take_in(dict.fromkeys(map(devices.GpuUuid, snapshot.bound), meaning.of_bound()))
            self._strand(stands)
            if _is_whole(snapshot):
                for gpu in self.book.gpus - seen.keys() - snapshot.bound.keys():
                    self.book.put(gpu, conditions.replaced(self.book.state(gpu)))
            for gpu in self.book.gpus:
                state, is_seen = self.book.state(gpu), gpu in seen
                self.book.put(gpu, conditions.lapsed(state, self._clock(), looked=is_seen))
            self.book.settle()
            is_behind = self.book.is_behind
        if is_behind:
            # It is the thinker that lets what is published follow.
            self._thinker.wake()

    def _take_in(self, seen: Mapping[devices.GpuUuid, meaning.Seen]) -> None:
        at, hold = self._clock(), self._policy.hold
        for gpu, one in seen.items():
            self.book.put(gpu, conditions.looked(self.book.state(gpu), one, at, hold))

    def _strand(self, stands: standing.Standing | None) -> None:
        """Take in which GPUs are not where they should be, and which are again."""
        if stands is None:
            return
        at, hold = self._clock(), self._policy.hold
        for gpu in self.book.gpus - stands.stranded.keys() - stands.unknown:
            state = conditions.gone(self.book.state(gpu), health.Key.PASSTHROUGH, at)
            self.book.put(gpu, state)
        for gpu, reason in stands.stranded.items():
            finding = meaning.stranded(devices.GpuUuid(gpu), reason, self._policy)
            self.book.put(gpu, conditions.found(self.book.state(gpu), finding, at, hold))

    def think(self) -> None:
        """Take in what has been heard, and what has become of claims."""
        live = self._live_claims()
        with self._guard:
            events, self._waiting = self._waiting, {}
            at = self._clock()
            # First what has ended: an event is of those who have the device now.
            for gpu in self.book.gpus if live is not None else ():
                self.book.put(gpu, conditions.ended(self.book.state(gpu), live or (), at))
            for event in events:
                self._hear(event, at)
            handed = self._handed_over(self._known.values())
            for gpu in {*self.book.gpus, *(self._unwatched or ())} - handed:
                self.book.put(gpu, conditions.lapsed(self._listened(gpu, at), at, looked=False))
            for gpu in handed & self.book.gpus:
                # Nobody can listen to it: what was said of that before stays.
                state = self.book.state(gpu)
                self.book.put(gpu, conditions.lapsed(state, at, looked=False))
            self._tell_hung(at)
            self.book.settle()
        if events:
            self._look_soon()

    def _live_claims(self) -> Collection[str] | None:
        """The UIDs of claims that have not ended; None where the disk does not tell.

        What was known of them last counts for events then: those are told all the same.
        """
        try:
            found = self._sources.claims.contents()
        except files.TROUBLE as error:
            self._log.info("it is not known which claims have ended", reason=str(error))
            return None
        self._known = found.records
        return {*found.records, *found.damaged}

    def _look_soon(self) -> None:
        with self._guard:
            self._look_at = min(self._look_at, self._clock().seconds + SOON)
        self._looker.wake()

    def _hear(self, event: health.Event, at: conditions.Now) -> None:
        """Think about one event; whatever becomes of that, the others are thought about."""
        try:
            self._happened(event, at)
        except Exception:  # noqa: BLE001 - another GPU may have told something worse
            self._log.exception("an event of a GPU is lost", gpu=event.gpu, kind=event.kind.name)

    def _happened(self, event: health.Event, at: conditions.Now) -> None:
        cards = {card.gpu.uuid: card.gpu for card in self._sources.gpus.snapshot.cards}
        blamed = attributing.of(
            event, cards.get(event.gpu), self._known.values(), self._sources.faulted
        )
        if blamed is None:
            self._log.info("event of an instance that is gone", gpu=event.gpu, instance=event.gi)
            return
        finding = meaning.of_event(event, blamed.spot, self._policy)
        if finding is None:
            return
        if blamed.by_daemon and finding.effect == taints.NONE:
            finding = dataclasses.replace(finding, only_claims=True)
        state, hold = self.book.state(event.gpu), self._policy.hold
        self.book.put(event.gpu, conditions.found(state, finding, at, hold, claims=blamed.claims))

    def _listened(self, gpu: str, at: conditions.Now) -> conditions.State:
        """The state of a GPU, with whether somebody listens to it."""
        state, uuid = self.book.state(gpu), devices.GpuUuid(gpu)
        if self._unwatched is None:
            return state
        if uuid in self._unwatched:
            finding = meaning.unmonitored(uuid, self._unwatched[uuid], self._policy)
            return conditions.found(state, finding, at, self._policy.hold)
        return conditions.gone(state, health.Key.UNMONITORED, at)

    def _asks(self, gpu: devices.GpuUuid) -> None:
        with self._guard:
            self._asking = gpu, self._clock().seconds

    def _tell_hung(self, at: conditions.Now) -> None:
        """Say of a GPU that a look does not come back from it; that one may never tell anything."""
        if self._asking is None or at.seconds - self._asking[1] < HUNG:
            return
        gpu, hold = self._asking[0], self._policy.hold
        finding = meaning.hung(gpu, HUNG, self._policy)
        self.book.put(gpu, conditions.found(self.book.state(gpu), finding, at, hold))

    def _seen(self, snapshot: inventory.Snapshot) -> Mapping[devices.GpuUuid, meaning.Seen]:
        """What a look at every GPU says that is there, or was."""
        there = [card.gpu.uuid for card in snapshot.served]
        facts: Mapping[devices.GpuUuid, health.Facts] = {}
        try:
            facts = self._sources.facts.facts(there, self._asks) if there else {}
        except errors.Retryable as error:
            # What passes says nothing; what stays the inventory finds out.
            self._log.info("health of GPUs cannot be looked at for now", reason=str(error))
        finally:
            with self._guard:
                self._asking = None
        excused = self._excused(gpu for gpu, one in facts.items() if one.is_lost)
        found = {
            gpu: meaning.of_facts(gpu, one, self._policy)
            for gpu, one in facts.items()
            if gpu not in excused
        }
        return self._absent(snapshot) | found

    def _absent(self, snapshot: inventory.Snapshot) -> dict[devices.GpuUuid, meaning.Seen]:
        """What is to be said of GPUs that were there and are not."""
        gone = {one.gpu.uuid for one in snapshot.lost.values()}
        gone -= {card.gpu.uuid for card in snapshot.cards}
        return {
            gpu: meaning.of_absence(gpu, snapshot.problem, self._policy)
            for gpu in sorted(gone - self._excused(gone))
        }

    def _excused(self, absent: Iterable[devices.GpuUuid]) -> frozenset[str]:
        """Those of GPUs that NVML does not list that a virtual machine has, had or is to have."""
        listed, known = frozenset(absent), self._known
        if listed:
            # What is on disk now: a record is written before a GPU goes.
            with contextlib.suppress(*files.TROUBLE):
                known = self._sources.claims.contents().records
        with self._guard:
            return listed & self._handed_over(known.values())

    def _handed_over(self, known: Iterable[prepared.Record]) -> frozenset[str]:
        """The GPUs that are bound for virtual machines, are about to be, or were but now."""
        at = self._clock().seconds
        self._handed = {gpu: then for gpu, then in self._handed.items() if at - then < RETURNING}
        now = {**standing.holders(known), **self._sources.gpus.snapshot.bound}
        self._handed |= dict.fromkeys(now, at)
        return frozenset(self._handed)

    def _think(self) -> None:
        while not self._thinker.is_ending():
            self._thinker.heed()
            try:
                self.think()
            except Exception:  # noqa: BLE001 - a thread that ends would hear nothing ever again
                self._log.exception("thinking about the health of GPUs failed unexpectedly")
                self._thinker.pause(1.0)
            self._thinker.rest(book.PACE if self.book.is_behind else min(self._interval, HUNG))

    def _look_again(self) -> None:
        while not self._looker.is_ending():
            self._looker.heed()
            with self._guard:
                wait = self._look_at - self._clock().seconds
                if wait <= 0:
                    self._look_at = self._clock().seconds + self._interval
            if wait > 0:
                self._looker.rest(wait)
                continue
            begun = self._clock().seconds
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a thread that ends would see nothing ever again
                self._log.exception("looking at the health of GPUs failed unexpectedly")
            with self._guard:
                end = self.book.next_end(begun)
                self._look_at = self._look_at if end is None else min(self._look_at, end)
            self._looker.pause(_LEAST_PAUSE)


def _is_whole(snapshot: inventory.Snapshot) -> bool:
    """Whether a GPU that is not in it is not there."""
    in_doubt = snapshot.problem or snapshot.failures or snapshot.doubts or snapshot.nameless
    return bool(snapshot.cards) and not in_doubt
