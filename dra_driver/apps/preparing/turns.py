"""The order of calls for one claim: that in which they came, save that an unprepare goes first.

Calls of different claims have nothing to do with each other here.
"""

import contextlib
import dataclasses
import enum
import threading
from collections.abc import Iterator

from dra_driver import errors
from dra_driver.adapters.system import patience

MOST = 32
"""Calls for one claim that may be there at once: each has a worker."""


class Kind(enum.IntEnum):
    """Of a call: one ends those of lower kinds that came before it."""

    SWEEP = 0
    """An unprepare that the kubelet has not asked for."""
    PREPARE = 1
    UNPREPARE = 2


_OVERTAKEN = {
    Kind.PREPARE: "the claim is prepared anew",
    Kind.UNPREPARE: "the claim is unprepared: nobody waits for its devices any more",
}


@dataclasses.dataclass(eq=False, slots=True)
class Turn:
    """One call's place among those of its claim.

    `progress` says what the call waits for, for those behind it.
    """

    waiting: patience.Patience
    kind: Kind
    uid: str
    _queue: "Turns"
    progress: str = ""

    def come(self) -> None:
        """Wait for the calls that came earlier, save those for which nobody waits any more.

        Raises:
            errors.Retryable: they took all the time.
            errors.Abandoned: nobody waits for this one any more.
        """
        self._queue.await_turn(self)

    @property
    def is_last(self) -> bool:
        """Whether no call of the kubelet for the claim came later."""
        return self._queue.is_last(self)


class Turns:
    """The calls that are there, by claim UID."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: dict[str, list[Turn]] = {}

    @contextlib.contextmanager
    def arrive(self, uid: str, kind: Kind, waiting: patience.Patience) -> Iterator[Turn]:
        """Have a place for the length of the block, and end the calls that this one overtakes.

        Raises:
            errors.Retryable: there are too many calls for the claim already.
        """
        turn = Turn(waiting, kind, uid, self)
        with self._changed:
            before = self._calls.setdefault(uid, [])
            if len(before) >= MOST:
                raise errors.Retryable(
                    f"{MOST} calls for the claim are there already; it is tried again with the "
                    "next call"
                )
            overtaken = [one for one in before if one.kind < kind]
            before.append(turn)
        try:
            for one in overtaken:
                one.waiting.end(_OVERTAKEN[kind])
            with waiting.waking(self._tell):
                yield turn
        finally:
            self._leave(turn)

    def await_turn(self, turn: Turn) -> None:
        """See `Turn.come`."""
        if not turn.waiting.wait_for(self._changed, lambda: not self._before(turn)):
            raise errors.Retryable(self._why(turn))
        turn.waiting.check()

    def is_last(self, turn: Turn) -> bool:
        """See `Turn.is_last`."""
        with self._changed:
            calls = self._calls[turn.uid]
            return all(one.kind is Kind.SWEEP for one in calls[calls.index(turn) + 1 :])

    def _before(self, turn: Turn) -> list[Turn]:
        """Whom it has to wait for; the condition is held."""
        calls = self._calls[turn.uid]
        return [one for one in calls[: calls.index(turn)] if one.waiting.ended is None]

    def _why(self, turn: Turn) -> str:
        with self._changed:
            reasons = [one.progress for one in self._before(turn) if one.progress]
        told = f": {reasons[0]}" if reasons else ""
        return f"an earlier call for the claim is not done yet{told}"

    def _leave(self, turn: Turn) -> None:
        with self._changed:
            calls = self._calls[turn.uid]
            calls.remove(turn)
            if not calls:
                del self._calls[turn.uid]
            self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
