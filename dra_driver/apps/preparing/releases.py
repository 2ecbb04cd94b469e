"""What calls wait for that lack something: that another call gives something back."""

import collections
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping

from dra_driver import errors
from dra_driver.adapters.system import patience

MOST_WAITERS = 32
"""Calls that may wait for one card."""
MOST_IN_ALL = 192
"""Calls that may wait at once: whoever has devices for long must not use up all workers."""


class Full(errors.Retryable):
    """Too many calls wait already."""


class Releases:
    """Counts what is given back, by card, so that none is missed between a look and the wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        # By card, each with what wakes it: whoever waits for another one is left asleep.
        self._waiters: collections.defaultdict[str, set[threading.Event]]
        self._waiters = collections.defaultdict(set)
        self._in_all = 0

    def seen(self) -> Mapping[str, int]:
        """How many there were on each card; to be read before the look."""
        with self._lock:
            return dict(self._counts)

    def tell(self, cards: Iterable[str]) -> None:
        """Something was given back on each of these cards."""
        with self._lock:
            given = set(cards)
            self._counts.update(given)
            told = [one for card in given for one in self._waiters.get(card, ())]
        for event in told:
            event.set()

    def wait(
        self,
        cards: frozenset[str],
        seen: Mapping[str, int],
        seconds: float,
        waiting: patience.Patience,
    ) -> None:
        """Return once something was given back since `seen`, or after `seconds`.

        Raises:
            Full: too many calls wait already.
            errors.Abandoned: nobody waits any more.
        """
        with self._place(cards) as told, waiting.waking(told.set):
            with self._lock:
                happened = any(self._counts[card] != seen.get(card, 0) for card in cards)
            if not happened:
                told.wait(min(seconds, waiting.left))
        waiting.check()

    @contextlib.contextmanager
    def _place(self, cards: frozenset[str]) -> Iterator[threading.Event]:
        """A place among those that wait, and what wakes it."""
        told = threading.Event()
        with self._lock:
            full = [
                card for card in sorted(cards) if len(self._waiters.get(card, ())) >= MOST_WAITERS
            ]
            if full or self._in_all >= MOST_IN_ALL:
                count, what = (MOST_WAITERS, f" for {full[0]}") if full else (MOST_IN_ALL, "")
                raise Full(f"{count} calls wait{what} already")
            for card in cards:
                self._waiters[card].add(told)
            self._in_all += 1
        try:
            yield told
        finally:
            with self._lock:
                for card in cards:
                    self._waiters[card].discard(told)
                    if not self._waiters[card]:
                        del self._waiters[card]
                self._in_all -= 1
