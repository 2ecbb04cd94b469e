"""What calls wait for that lack something: that another call gives something back."""

import collections
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping

from dra_driver import errors
from dra_driver.adapters import patience

MOST_WAITERS = 32
"""Calls that may wait for one card."""
MOST_IN_ALL = 192
"""Calls that may wait at once: whoever has devices for long must not use up all workers."""


class Full(errors.Retryable):
    """Too many calls wait already."""


class Releases:
    """Counts what is given back, by card, so that none is missed between a look and the wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: collections.Counter[str] = collections.Counter()
        self._waiters: collections.Counter[str] = collections.Counter()
        self._in_all = 0

    def seen(self) -> Mapping[str, int]:
        """How many there were on each card; to be read before the look."""
        with self._changed:
            return dict(self._counts)

    def tell(self, cards: Iterable[str]) -> None:
        """Something was given back on each of these cards."""
        with self._changed:
            self._counts.update(dict.fromkeys(cards, 1))
            self._changed.notify_all()

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

        def happened() -> bool:
            return any(self._counts[card] != seen.get(card, 0) for card in cards)

        with self._place(cards), waiting.at_most(seconds) as shorter:
            shorter.wait_for(self._changed, happened)

    @contextlib.contextmanager
    def _place(self, cards: frozenset[str]) -> Iterator[None]:
        with self._changed:
            full = [card for card in sorted(cards) if self._waiters[card] >= MOST_WAITERS]
            if full or self._in_all >= MOST_IN_ALL:
                count, what = (MOST_WAITERS, f" for {full[0]}") if full else (MOST_IN_ALL, "")
                raise Full(f"{count} calls wait{what} already")
            self._waiters.update(cards)
            self._in_all += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiters.subtract(cards)
                self._waiters += collections.Counter()  # what is 0 goes
                self._in_all -= 1
