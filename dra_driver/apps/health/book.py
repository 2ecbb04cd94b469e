"""What is known of the health of GPUs: on disk first, and then told.

A condition is on disk before it is told, so that its time is the same after a restart. Where the
disk refuses it is told all the same, and written later.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterable

from dra_driver import telemetry
from dra_driver.adapters.disk import files, health_records
from dra_driver.logic.health import conditions
from dra_driver.model import health
from dra_driver.model import health_records as written

PACE = 0.5
"""Seconds between two changes of what is published, at least."""
TOLD_AGAIN = 60.0
"""Seconds between two log lines about a disk that keeps refusing."""
_MOST_RESETS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Where it is kept, in this boot; of two instances of the driver the newer `may_write`."""

    store: health_records.HealthRecords
    boot_id: str
    may_write: Callable[[], bool] = lambda: True


@dataclasses.dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told when `Book.view` has changed, and who when `Book.settled` has."""

    changed: Callable[[], None] = lambda: None
    settled: Callable[[], None] = lambda: None


class Book:
    """States of GPUs by UUID. For threads that hold its `guard` while they read and change them.

    `view` is what counts now. `settled` is the same for those who publish it: it changes at most
    every `PACE` seconds. `is_loaded`: what was known before the last stop is in it.
    """

    def __init__(
        self, kept: Kept, listeners: Listeners, clock: Callable[[], conditions.Now]
    ) -> None:
        self.guard = threading.RLock()
        self.view = conditions.View()
        self.settled = conditions.View()
        self.is_loaded = False
        self._kept = kept
        self._listeners = listeners
        self._clock = clock
        self._states: dict[str, conditions.State] = {}
        self._saved: dict[str, tuple[conditions.State, str]] = {}
        self._resets: dict[str, tuple[float, ...]] = {}
        self._loads: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._settled_at = float("-inf")
        self._complained: dict[str, float] = {}
        self._log = telemetry.logger("health")

    def load(self) -> None:
        """Take up what was known before the last stop.

        Raises:
            One of `files.TROUBLE`: the disk refuses.
        """
        store = self._kept.store
        contents = store.contents()
        for key, reason in contents.damaged.items():
            self._log.error("what was known of a GPU's health is lost", gpu=key, reason=reason)
            store.keep_aside(key)
            store.remove(key)
        with self.guard:
            for gpu, record in contents.records.items():
                state, is_same = _state(record), record.boot_id == self._kept.boot_id
                self._states[gpu] = state if is_same else conditions.rebooted(state)
                self._resets[gpu] = record.resets if is_same else ()
                self._loads[gpu] = record.load if is_same else ""
            self.is_loaded = True
            self.settle()

    @property
    def gpus(self) -> frozenset[str]:
        """Those of which something is known."""
        return frozenset(self._states)

    def state(self, gpu: str) -> conditions.State:
        """What is known of a GPU."""
        return self._states.get(gpu, conditions.State())

    def put(self, gpu: str, state: conditions.State) -> None:
        """From now on this is known of a GPU; it is written and told by `settle`."""
        self._states[gpu] = state

    def loaded(self, load: str) -> None:
        """The kernel module is there in this load; another one than before has begun anew."""
        for gpu in self._states:
            if self._loads.get(gpu, load) not in {"", load}:
                self._states[gpu] = conditions.recovered(self._states[gpu], self._clock())
            self._loads[gpu] = load

    def settle(self, *, at_once: bool = False) -> None:
        """Write what has changed, and tell of it; `at_once` also those who publish."""
        if self._kept.may_write():
            for gpu, state in self._states.items():
                load = self._loads.get(gpu, "")
                if self._saved.get(gpu, (conditions.State(), load)) != (state, load):
                    try:
                        self._write(gpu)
                    except files.TROUBLE as error:
                        self._complain(gpu, str(error))
        listed = tuple(
            _noted(one, self._notes.get(gpu, ""))
            for gpu, state in sorted(self._states.items())
            for one in state.conditions
        )
        before, self.view = self.view, conditions.View(listed)
        if _visible(before.conditions) != _visible(listed):
            self._log_changes(before.conditions, listed)
            self._listeners.changed()
        self._publish(0.0 if at_once else PACE)

    @property
    def is_behind(self) -> bool:
        """Whether what is published has to follow yet."""
        return _visible(self.settled.conditions) != _visible(self.view.conditions)

    def next_end(self, after: float) -> float | None:
        """When a condition may end, see `conditions.next_end`."""
        ends = [conditions.next_end(state, after) for state in self._states.values()]
        return min((end for end in ends if end is not None), default=None)

    def note(self, gpu: str, text: str) -> None:
        """Have this said beside that the driver of a GPU wants it reset; empty: nothing."""
        with self.guard:
            self._notes[gpu] = text
            self.settle()

    def resets(self, gpu: str) -> tuple[float, ...]:
        """When the driver has reset a GPU, in seconds of the monotonic clock of this boot."""
        with self.guard:
            return self._resets.get(gpu, ())

    def note_reset(self, gpu: str) -> None:
        """A reset is about to begin. It is on disk when this returns.

        Raises:
            One of `files.TROUBLE`: the disk refuses.
        """
        with self.guard:
            times = (*self._resets.get(gpu, ()), self._clock().seconds)
            self._resets[gpu] = times[-_MOST_RESETS:]
            self._write(gpu)

    def take_back_reset(self, gpu: str) -> None:
        """The reset that was noted last was not made.

        Raises:
            One of `files.TROUBLE`: the disk refuses; after a restart it counts.
        """
        with self.guard:
            self._resets[gpu] = self._resets.get(gpu, ())[:-1]
            self._write(gpu)

    def _write(self, gpu: str) -> None:
        state = self.state(gpu)
        boot_id, resets = self._kept.boot_id, self._resets.get(gpu, ())
        load = self._loads.get(gpu, "")
        self._kept.store.write(_record(gpu, boot_id, state, resets, load))
        self._saved[gpu] = state, load

    def _complain(self, gpu: str, reason: str) -> None:
        """Say that the disk refuses, once in a while: each event tries it anew."""
        at = self._clock().seconds
        if at - self._complained.get(gpu, float("-inf")) >= TOLD_AGAIN:
            self._complained[gpu] = at
            self._log.error("health is not kept", gpu=gpu, reason=reason)

    def _publish(self, pace: float) -> None:
        """Let what is published follow, unless that was but a moment ago."""
        at = self._clock().seconds
        if self.is_behind and at - self._settled_at >= pace:
            self._settled_at = at
            self.settled = self.view
            self._listeners.settled()

    def _log_changes(
        self, before: Iterable[health.Condition], after: Iterable[health.Condition]
    ) -> None:
        old = {one.finding.identity: one for one in before}
        new = {one.finding.identity: one for one in after}
        for identity in new.keys() - old.keys():
            finding = new[identity].finding
            self._log.warning(
                "GPU is unwell",
                gpu=finding.gpu,
                cause=_cause(finding),
                effect=finding.effect,
                reason=finding.message,
            )
        for identity in old.keys() - new.keys():
            one = old[identity]
            cause = _cause(one.finding)
            self._log.info("GPU is well again", gpu=one.finding.gpu, cause=cause, since=one.since)


def _cause(finding: health.Finding) -> str:
    return str(health.Cause(finding.key, finding.value or None))


def _noted(one: health.Condition, note: str) -> health.Condition:
    if not note or one.finding.key is not health.Key.RECOVERY:
        return one
    message = f"{one.finding.message}; {note}"
    return dataclasses.replace(one, finding=dataclasses.replace(one.finding, message=message))


def _visible(listed: Iterable[health.Condition]) -> list[tuple[object, ...]]:
    """What others are told of conditions."""
    return [(one.finding, one.since, one.claims, one.returns) for one in listed]


def _record(
    gpu: str, boot_id: str, state: conditions.State, resets: tuple[float, ...], load: str
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
        load=load,
    )


def _state(record: written.Record) -> conditions.State:
    return conditions.State(
        tuple(written.read(record.gpu, one) for one in record.conditions),
        {one.identity: conditions.Left(one.at, one.returns) for one in record.left},
    )
