"""How long to wait before a failed request is tried again.

Thousands of nodes meet the same outage. Without jitter they would all come back in the same moment,
and again after each pause.
"""

import dataclasses
from collections.abc import Callable

MOST_ASKED = 60.0
"""Seconds that a server's wish (`Retry-After`) is followed for, at most."""
_DOUBLINGS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """Pauses that double, from `first` to `last` seconds."""

    first: float
    last: float

    def pause(self, failures: int, *, chance: float, asked: float | None = None) -> float:
        """Seconds until the next try after so many failures in a row, one at least.

        Between a half and the whole of the pause, by `chance`, which is from 0 up to 1. What the
        server has `asked` for is the least, with up to a quarter more.
        """
        doublings = min(max(failures - 1, 0), _DOUBLINGS)
        own = min(self.first * 2.0**doublings, self.last) * (0.5 + chance / 2)
        if asked is None:
            return own
        return max(own, min(max(asked, 0.0), MOST_ASKED) * (1 + chance / 4))


class Backoff:
    """The failures in a row of one thing that is tried again and again. For one thread."""

    def __init__(self, schedule: Schedule, chance: Callable[[], float]) -> None:
        """`chance` gives a number from 0 up to 1, each time another: `random.random`."""
        self._schedule = schedule
        self._chance = chance
        self._failures = 0

    def failed(self, error: object = None) -> float:
        """Seconds until the next try. The `retry_after` of an error is what the server asks for."""
        self._failures += 1
        return self._schedule.pause(
            self._failures, chance=self._chance(), asked=getattr(error, "retry_after", None)
        )

    def worked(self) -> None:
        """The next failure is a first one."""
        self._failures = 0
