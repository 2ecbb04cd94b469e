"""What is wrong with the GPUs of a node: gathered from events and looks, and kept on disk.

A condition is on disk before it is told, so that its time is the same after a restart. Where the
disk refuses it is told all the same, and written later.
"""

import dataclasses
import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, health_records, records
from dra_driver.adapters.system import workers
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import attributing, conditions, meaning
from dra_driver.model import devices, health, prepared
from dra_driver.model import health_records as written

SOON = 0.3
"""Seconds after an event until the GPUs are looked at: what belongs together comes together."""
PACE = 0.5
"""Seconds between two changes of what is published, at least."""
MOST_WAITING = 1024
"""Different events that wait to be thought about; more are counted only."""


class FactsSource(Protocol):
    """What can look at the health of GPUs."""

    def facts(self, gpus: Collection[devices.GpuUuid]) -> Mapping[devices.GpuUuid, health.Facts]:
        """Those of the GPUs with these UUIDs.

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


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Where it is kept, in this boot; of two instances of the driver the newer `may_write`."""

    store: health_records.HealthRecords
    boot_id: str
    may_write: Callable[[], bool] = lambda: True


class CardHealth:
    """Two threads: one thinks about events at once, the other looks, which may hang on a sick card.

    `view` is what counts now. `settled` is the same for those who publish it: it changes at most
    every `PACE` seconds.
    """

    def __init__(
        self,
        sources: Sources,
        kept: Kept,
        policy: meaning.Policy,
        *,
        interval: float,
        on_change: Callable[[], None],
        on_settled: Callable[[], None],
        clock: Callable[[], conditions.Now] = now,
    ) -> None:
        """`interval` seconds are between looks while nothing happens.

        `on_change` and `on_settled` are called when `view` and `settled` have changed.
        """
        self._sources = sources
        self._store = kept.store
        self._policy = policy
        self._boot_id = kept.boot_id
        self._interval = interval
        self._on_change = on_change
        self._on_settled = on_settled
        self._may_write = kept.may_write
        self._clock = clock
        self._guard = threading.RLock()
        self._waiting: dict[health.Event, int] = {}
        self._states: dict[str, conditions.State] = {}
        self._saved: dict[str, conditions.State] = {}
        self._unwatched: Mapping[devices.GpuUuid, str] = {}
        self._resets: dict[str, tuple[float, ...]] = {}
        self._look_at = float("-inf")
        self._settled_at = float("-inf")
        self.view = conditions.View()
        self.settled = conditions.View()
        self._log = telemetry.logger("health")
        self._thinker = workers.Worker("health", self._think)
        self._looker = workers.Worker("health-looks", self._look_again)

    def load(self) -> None:
        """Take up what was known before the last stop."""
        contents = self._store.contents()
        for key, reason in contents.damaged.items():
            self._log.error("what was known of a GPU's health is lost", gpu=key, reason=reason)
            self._store.keep_aside(key)
            self._store.remove(key)
        with self._guard:
            for gpu, record in contents.records.items():
                state = _state(record)
                same = record.boot_id == self._boot_id
                self._states[gpu] = state if same else conditions.rebooted(state)
                self._resets[gpu] = record.resets if same else ()
            self._tell()

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
        with self._guard:
            if event in self._waiting or len(self._waiting) < MOST_WAITING:
                self._waiting[event] = self._waiting.get(event, 0) + 1
        self._thinker.wake()

    def unwatched(self, gpus: Mapping[devices.GpuUuid, str]) -> None:
        """From now on these GPUs, and no others, are not listened to, for these reasons."""
        with self._guard:
            self._unwatched = dict(gpus)
        self._thinker.wake()

    def changed(self) -> None:
        """Claims, or the GPUs that are there, may have changed."""
        with self._guard:
            self._look_at = min(self._look_at, self._clock().seconds + SOON)
        self._thinker.wake()
        self._looker.wake()

    def was_reset(self, gpu: str) -> None:
        """A GPU was reset: what was to last until then is gone."""
        with self._guard:
            at = self._clock()
            self._states[gpu] = conditions.recovered(self._state_of(gpu), at)
            self._settle()
        self.changed()

    def resets(self, gpu: str) -> tuple[float, ...]:
        """When the driver has reset a GPU, in seconds of the monotonic clock of this boot."""
        with self._guard:
            return self._resets.get(gpu, ())

    def note_reset(self, gpu: str) -> None:
        """A reset is about to begin. It is on disk when this returns.

        Raises:
            One of `files.TROUBLE`: the disk refuses.
        """
        with self._guard:
            times = (*self._resets.get(gpu, ()), self._clock().seconds)
            self._resets[gpu] = times[-_MOST_RESETS:]
            self._write(gpu)

    def look(self) -> None:
        """Look at the GPUs now, and think about what is seen."""
        seen = self._seen()
        with self._guard:
            at, hold = self._clock(), self._policy.hold
            for gpu, one in seen.items():
                state = conditions.looked(self._state_of(gpu), gpu, one, at, hold)
                self._states[gpu] = conditions.lapsed(state, at)
            self._settle()

    def think(self) -> None:
        """Take in what has been heard, and what has become of claims."""
        known = self._sources.claims.contents().records
        with self._guard:
            events, self._waiting = self._waiting, {}
            at = self._clock()
            for event in events:
                self._happened(event, known, at)
            for gpu in {*self._states, *self._unwatched}:
                state = conditions.ended(self._listened(gpu, at), known.keys(), at)
                self._states[gpu] = _without_ended(state, at)
            self._settle()
        if events:
            self._look_at = min(self._look_at, at.seconds + SOON)
            self._looker.wake()

    def _happened(
        self, event: health.Event, known: Mapping[str, prepared.Record], at: conditions.Now
    ) -> None:
        snapshot = self._sources.gpus.snapshot
        cards = {card.gpu.uuid: card.gpu for card in snapshot.cards}
        blamed = attributing.of(event, cards.get(event.gpu), known.values(), self._sources.faulted)
        if blamed is None:
            self._log.info("an event of an instance that is gone", gpu=event.gpu, instance=event.gi)
            return
        finding = meaning.of_event(event, blamed.spot, self._policy)
        if finding is not None and blamed.by_daemon:
            finding = dataclasses.replace(finding, only_claims=True)
        self._log.warning(
            "GPU event",
            gpu=event.gpu,
            kind=event.kind.name,
            data=event.data,
            instance=event.gi,
            reason="" if finding is None else finding.message,
        )
        if finding is not None:
            state, hold = self._state_of(event.gpu), self._policy.hold
            self._states[event.gpu] = conditions.found(state, finding, at, hold, blamed.claims)

    def _listened(self, gpu: str, at: conditions.Now) -> conditions.State:
        """The state of a GPU, with whether somebody listens to it."""
        state = self._state_of(gpu)
        uuid = devices.GpuUuid(gpu)
        if uuid in self._unwatched:
            finding = meaning.unmonitored(uuid, self._unwatched[uuid], self._policy)
            return conditions.found(state, finding, at, self._policy.hold)
        quiet = [
            one.finding.identity
            for one in state.conditions
            if one.finding.key is health.Key.UNMONITORED
        ]
        return conditions.gone(state, quiet, at)

    def _seen(self) -> Mapping[devices.GpuUuid, meaning.Seen]:
        """What a look at every GPU says that is there, or was."""
        snapshot = self._sources.gpus.snapshot
        there = [card.gpu.uuid for card in snapshot.cards]
        absent = {one.gpu.uuid for one in snapshot.lost.values()} - set(there)
        problem = snapshot.problem
        facts: Mapping[devices.GpuUuid, health.Facts] = {}
        try:
            facts = self._sources.facts.facts(there) if there else {}
        except errors.Retryable as error:
            # What passes says nothing; what stays the inventory finds out.
            self._log.info("health of GPUs cannot be looked at for now", reason=str(error))
        policy = self._policy
        found = {gpu: meaning.of_absence(gpu, problem, policy) for gpu in sorted(absent)}
        return found | {gpu: meaning.of_facts(gpu, one, policy) for gpu, one in facts.items()}

    def _state_of(self, gpu: str) -> conditions.State:
        return self._states.get(gpu, conditions.State())

    def _settle(self) -> None:
        """Write what has changed, and tell of it."""
        if self._may_write():
            for gpu, state in self._states.items():
                if self._saved.get(gpu) != state:
                    try:
                        self._write(gpu)
                    except files.TROUBLE as error:
                        self._log.error("health is not kept", gpu=gpu, reason=str(error))
        self._tell()

    def _write(self, gpu: str) -> None:
        state = self._state_of(gpu)
        self._store.write(_record(gpu, self._boot_id, state, self._resets.get(gpu, ())))
        self._saved[gpu] = state

    def _tell(self) -> None:
        listed = tuple(one for _, state in sorted(self._states.items()) for one in state.conditions)
        if _visible(listed) != _visible(self.view.conditions):
            self._log_changes(listed)
            self.view = conditions.View(listed)
            self._on_change()
        else:
            self.view = conditions.View(listed)
        self._publish()

    def _publish(self) -> None:
        """Let what is published follow, unless that was but a moment ago."""
        at = self._clock().seconds
        if _visible(self.settled.conditions) == _visible(self.view.conditions):
            return
        if at - self._settled_at >= PACE:
            self._settled_at = at
            self.settled = self.view
            self._on_settled()

    def _log_changes(self, listed: Iterable[health.Condition]) -> None:
        before = {one.finding.identity: one for one in self.view.conditions}
        after = {one.finding.identity: one for one in listed}
        for identity in after.keys() - before.keys():
            one = after[identity]
            self._log.warning(
                "GPU is unwell",
                gpu=one.finding.gpu,
                cause=str(health.Cause(one.finding.key, one.finding.value or None)),
                effect=one.finding.effect,
                reason=one.finding.message,
            )
        for identity in before.keys() - after.keys():
            one = before[identity]
            cause = str(health.Cause(one.finding.key, one.finding.value or None))
            self._log.info("GPU is well again", gpu=one.finding.gpu, cause=cause, since=one.since)

    def _think(self) -> None:
        while not self._thinker.is_ending():
            self._thinker.heed()
            try:
                self.think()
            except Exception:  # noqa: BLE001 - a thread that ends would hear nothing ever again
                self._log.exception("thinking about the health of GPUs failed unexpectedly")
                self._thinker.pause(1.0)
            lacks = _visible(self.settled.conditions) != _visible(self.view.conditions)
            self._thinker.rest(PACE if lacks else self._interval)

    def _look_again(self) -> None:
        while not self._looker.is_ending():
            self._looker.heed()
            wait = self._look_at - self._clock().seconds
            if wait > 0:
                self._looker.rest(wait)
                continue
            self._look_at = self._clock().seconds + self._interval
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a thread that ends would see nothing ever again
                self._log.exception("looking at the health of GPUs failed unexpectedly")
            with self._guard:
                ends = [conditions.next_end(state) for state in self._states.values()]
                self._look_at = min([self._look_at, *(end for end in ends if end is not None)])
            self._looker.pause(_LEAST_PAUSE)


_MOST_RESETS = 8
_LEAST_PAUSE = 0.1
"""Seconds between two looks, whatever is due."""


def _visible(listed: Iterable[health.Condition]) -> list[tuple[object, ...]]:
    """What others are told of conditions."""
    return [(one.finding, one.since, one.claims, one.returns) for one in listed]


def _without_ended(state: conditions.State, at: conditions.Now) -> conditions.State:
    """Without what ends by claims or by being listened to: no look is needed for that."""
    over = conditions.lapsed(state, at)
    kept = tuple(
        one
        for one in state.conditions
        if one in over.conditions or one.finding.lasts is not health.Lasts.UNTIL_CLAIMS_END
    )
    return dataclasses.replace(state, conditions=kept)


def _record(
    gpu: str, boot_id: str, state: conditions.State, resets: tuple[float, ...]
) -> written.Record:
    return written.Record(
        gpu=gpu,
        boot_id=boot_id,
        conditions=tuple(written.written(one) for one in state.conditions),
        left=tuple(
            written.Left(identity=identity, at=left.at, returns=left.returns)
            for identity, left in state.left.items()
        ),
        resets=resets,
    )


def _state(record: written.Record) -> conditions.State:
    return conditions.State(
        tuple(written.read(record.gpu, one) for one in record.conditions),
        {one.identity: conditions.Left(one.at, one.returns) for one in record.left},
    )
