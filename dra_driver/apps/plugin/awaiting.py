"""What the kubelet plugin does on a node that is not as it needs it: it waits, and says for what.

A process that ends would be started again and again, ever less often, and tell nobody why.
"""

import threading
import time
from collections.abc import Callable

from dra_driver import errors
from dra_driver.adapters.disk import files

LOOK_AGAIN = 1.0
"""Seconds between two looks at what is in the way, which cost next to nothing."""
LAST_PAUSE = 30.0
"""Seconds between two tries of what nobody can explain, at most; at first it is one second."""

Hindrance = Callable[[], str | None]
"""What is in the way, and what to do about it; None if nothing is."""
Tell = Callable[[str], None]
"""Is told what is waited for, once for each reason."""


class Seldom:
    """A hindrance that costs others something to look at: the less often, the longer it lasts."""

    def __init__(
        self, hindrance: Hindrance, *, first: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """It is looked at again after `first` seconds, later after up to `LAST_PAUSE`."""
        self._hindrance = hindrance
        self._first = first
        self._clock = clock
        self._pause = first
        self._due = clock()
        self._found: str | None = None

    def __call__(self) -> str | None:
        """What was in the way when that was looked at last."""
        now = self._clock()
        if self._found is None:
            self._pause, self._due = self._first, now
        if now >= self._due:
            self._found = self._hindrance()
            self._due = self._clock() + self._pause
            self._pause = min(self._pause * 2, LAST_PAUSE)
        return self._found


def nothing_in_the_way(
    hindrance: Hindrance, tell: Tell, stop: threading.Event, pause: float = LOOK_AGAIN
) -> bool:
    """Return True once there is no hindrance; False if `stop` was set before.

    `pause` is in seconds between two looks.
    """
    told = None
    while not stop.is_set():
        reason = hindrance()
        if reason is None:
            return True
        if reason != told:
            tell(reason)
            told = reason
        stop.wait(pause)
    return False


def opened(
    attempt: Callable[[], None], hindrance: Hindrance, tell: Tell, stop: threading.Event
) -> bool:
    """Try, and again whenever what was in the way is gone; False if `stop` was set before.

    Nothing is looked at before the first try: as a rule it works.

    Raises:
        errors.Fatal: it fails, again, and nothing is in the way.
    """
    unexplained = 0
    while not stop.is_set():
        try:
            attempt()
        except (OSError, errors.Fatal) as error:
            unexplained = 0 if hindrance() else unexplained + 1
            # What was in the way may have gone between the two.
            if unexplained > 1:
                raise errors.Fatal(str(error)) from error
        else:
            return True
        nothing_in_the_way(hindrance, tell, stop)
    return False


def done(attempt: Callable[[], None], tell: Tell, stop: threading.Event) -> None:
    """Try until it works or `stop` is set: a disk that is full, a lock that is held, do pass.

    Raises:
        errors.DriverError: it will not work.
    """
    pause, told = LOOK_AGAIN, None
    while not stop.is_set():
        try:
            attempt()
        except (OSError, errors.Retryable, files.Unusable) as error:
            reason = f"{error}. It is tried again"
            if reason != told:
                tell(reason)
                told = reason
        else:
            return
        stop.wait(pause)
        pause = min(pause * 2, LAST_PAUSE)
