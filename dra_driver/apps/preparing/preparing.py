"""One claim: from the kubelet's call to devices that a container can use, and back.

Everything is keyed by the claim's UID. The record of a claim is written before the first effect and
removed after the last one is undone, so that a process that dies in between leaves enough behind.
A call is a row of attempts (`attempts.py`). Between them, with nothing locked, it waits for what
lies outside of this process: the API server, daemons, devices that other claims have still.
"""

import functools
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from dra_driver import errors, telemetry
from dra_driver.adapters.system import locks, patience
from dra_driver.apps.effects import waits, wiring
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts, releases, turns
from dra_driver.logic.preparing import contention, planning
from dra_driver.model import claims, prepared

T = TypeVar("T")

LOOK_AGAIN = 1.0
"""Seconds between looks at what a call is waiting for, when nothing says that it has changed."""
ANSWER_SECONDS = 3.0
"""How long the API may take to tell of a claim of which nothing on the node does."""
LAST_SECONDS = 1.5
"""How long the undo of a prepare that failed may take while the kubelet waits for the answer."""
UNDO_SECONDS = 30.0
"""The same, where nobody waits for it."""


class ClaimSource(Protocol):
    """Where claims come from."""

    def fetch(
        self, ref: claims.ClaimRef, waiting: patience.Patience
    ) -> claims.ResourceClaim | None:
        """The claim of that namespace and name, or None where there is none.

        Raises:
            errors.Retryable: the API server did not answer while there was patience.
        """


class Preparer:
    """Prepares and unprepares claims; threads may share it, also for one and the same claim."""

    def __init__(
        self,
        node: planning.Node,
        store: attempts.Store,
        source: ClaimSource,
        gpus: inventory.Inventory,
        effects: wiring.Effects,
        *,
        stopping: threading.Event,
        on_change: Callable[[], None],
        on_prepared: attempts.OnPrepared = lambda *_: None,
    ) -> None:
        """Once `stopping` is set, nothing is tried again."""
        self._node = node
        self._locks = store.locks
        self._source = source
        self._gpus = gpus
        self._attempts = attempts.Attempts(
            node, store, gpus, effects, on_change=on_change, on_prepared=on_prepared
        )
        self._stopping = stopping
        self._on_change = on_change
        self._given_back = releases.Releases()
        self._ended = releases.Releases()
        self._log = telemetry.logger("preparer")

    def leaving(self) -> list[str]:
        """The UIDs of claims that are being unprepared, or could not be altogether."""
        return self._attempts.leaving()

    def prepare(
        self, ref: claims.ClaimRef, turn: turns.Turn
    ) -> tuple[prepared.PreparedDevice, ...]:
        """The claim's devices, ready for use. The same again gives the same answer.

        Raises:
            errors.Rejected: it cannot work.
            errors.Retryable: it did not work while there was patience.
        """
        planning.check_uid(ref.uid)
        turn.come()
        claim = self._source.fetch(ref, turn.waiting)
        if claim is None:
            raise errors.Rejected(
                f"claim {ref} does not exist any more: was it deleted while its pod started?"
            )
        cards = self._attempts.cards(ref, claim)
        try:
            return self._patiently(
                turn, cards, self._given_back, lambda: self._attempt(ref, claim, turn.waiting)
            )
        except BaseException:
            self._give_up(ref, turn)
            raise

    def unprepare(
        self, ref: claims.ClaimRef, turn: turns.Turn, only_if: Callable[[], bool] = lambda: True
    ) -> None:
        """Undo whatever was done for the claim; unknown is fine.

        The API is not asked, save for a claim of which nothing on the node tells what it has.
        Nothing is done unless `only_if()` is true once it is the call's turn.

        Raises:
            errors.Retryable: it did not work while there was patience.
        """
        planning.check_uid(ref.uid)
        turn.come()
        if not only_if():
            return
        cards = self._attempts.cards(ref, None)

        def undo() -> frozenset[str]:
            find = functools.partial(self._found, ref, turn.waiting)
            return self._attempts.undo(ref, turn.waiting, find=find)

        self._patiently(turn, cards, self._ended, undo)
        self._tell(cards)

    def _patiently(
        self,
        turn: turns.Turn,
        cards: frozenset[str],
        given_back: releases.Releases,
        attempt: Callable[[], T],
    ) -> T:
        """What `attempt` gives; what may work in a moment is tried again while there is time."""
        before: errors.Retryable | None = None
        while True:
            # What is given back during the attempt may be what it lacks.
            seen = given_back.seen()
            try:
                return self._once(turn, attempt)
            except waits.Wait:
                # What it had to wait for has come.
                continue
            except errors.Abandoned:
                raise
            except errors.Retryable as error:
                if turn.waiting.left < LOOK_AGAIN or self._stopping.is_set():
                    raise _last(before, error) from error
                before = error
                self._say(turn, str(error))
                try:
                    given_back.wait(cards, seen, LOOK_AGAIN, turn.waiting)
                except releases.Full as full:
                    raise errors.Retryable(f"{error}; {full}") from error

    def _once(self, turn: turns.Turn, attempt: Callable[[], T]) -> T:
        """One attempt, and what it has to wait for.

        Raises:
            waits.Wait: that has come.
            errors.DriverError: the attempt failed, or what it has to wait for does not come.
        """
        try:
            return attempt()
        except waits.Wait as wait:
            turn.progress = str(wait)
            self._await(wait, turn.waiting)
            if not turn.waiting.left:
                raise errors.Retryable(str(wait)) from wait
            raise

    def _await(self, wait: waits.Wait, waiting: patience.Patience) -> None:
        try:
            with self._locks.hold([wait.name], waiting):
                wait.over(waiting)
        except locks.Busy as error:
            raise errors.Retryable(f"{wait}. Other calls wait for the same") from error

    def _attempt(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, waiting: patience.Patience
    ) -> tuple[prepared.PreparedDevice, ...]:
        try:
            return self._seen(ref, claim, waiting)
        except attempts.Held as held:
            raise self._judged(held, waiting) from held

    def _seen(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, waiting: patience.Patience
    ) -> tuple[prepared.PreparedDevice, ...]:
        """An attempt; a device that is not known may have appeared since the last look."""
        try:
            return self._attempts.prepare(ref, claim, waiting)
        except planning.UnknownDevice as error:
            self._gpus.look_within(waiting.left).refuse_missing(ref, error)
        return self._attempts.prepare(ref, claim, waiting)

    def _judged(self, held: attempts.Held, waiting: patience.Patience) -> errors.DriverError:
        """What it comes to that others have what is wanted: one may be about to give it back."""
        for holding, delay in held.holdings:
            claim = self._source.fetch(holding.holder, waiting)
            if not contention.is_held_in_earnest(holding, claim, self._node):
                return errors.Retryable(delay)
        return errors.Rejected(str(held))

    def _give_up(self, ref: claims.ClaimRef, turn: turns.Turn) -> None:
        """Undo what the attempts have begun, unless a later call for the claim deals with it."""
        nobody_waits = turn.waiting.ended is not None and not self._stopping.is_set()
        waiting = patience.Patience(UNDO_SECONDS if nobody_waits else LAST_SECONDS)
        try:
            while turn.is_last:
                try:
                    self._attempts.undo(ref, waiting, only=self._is_to_undo)
                except waits.Wait as wait:
                    self._await(wait, waiting)
                else:
                    return
        except errors.DriverError as error:
            self._log.error("not all could be undone; the next call tries it", reason=str(error))

    def _is_to_undo(self, record: prepared.Record | None) -> bool:
        """Whether a prepare has begun and was not completed, or its undo has begun.

        No container can use the devices then.
        """
        return record is not None and (
            record.phase is prepared.Phase.STARTED or record.uid in self._attempts.leaving()
        )

    def _found(
        self, ref: claims.ClaimRef, waiting: patience.Patience
    ) -> claims.ResourceClaim | None:
        """The claim, if the API tells of it soon: an unprepare does without."""
        try:
            with waiting.at_most(ANSWER_SECONDS) as shorter:
                return self._source.fetch(ref, shorter)
        except errors.Abandoned:
            raise
        except errors.DriverError as error:
            self._log.warning("the API does not tell what a claim has", reason=str(error))
            return None

    def _tell(self, cards: frozenset[str]) -> None:
        for one in (self._given_back, self._ended):
            one.tell(cards)
        self._on_change()

    def _say(self, turn: turns.Turn, reason: str) -> None:
        if reason != turn.progress:
            turn.progress = reason
            self._log.info("waiting", reason=reason)


def _last(before: errors.Retryable | None, error: errors.Retryable) -> errors.Retryable:
    """The answer, once there is no time left: a last try may have been cut short by that."""
    if before is None or str(before) == str(error):
        return error
    return errors.Retryable(f"{before}; tried again: {error}")
