"""How long somebody waits for an answer, and that they may stop waiting before."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from dra_driver import errors

FIRST_PAUSE, LAST_PAUSE = 0.01, 0.1
"""Seconds between looks at something that is to come, where nothing tells that it has."""


def pause(waited: float) -> float:
    """Seconds until the next look, after so many: what takes long is looked at less often."""
    return min(max(waited / 10, FIRST_PAUSE), LAST_PAUSE)


class Patience:
    """Of one call. Whatever waits on its behalf stops when it is at its end, or has been ended."""

    def __init__(self, seconds: float) -> None:
        """It is at its end in `seconds`."""
        self.deadline = time.monotonic() + seconds
        """In monotonic seconds."""
        self._guard = threading.Lock()
        self._reason: str | None = None
        self._wakers: list[Callable[[], None]] = []

    @property
    def left(self) -> float:
        """Seconds until it is at its end; never less than 0."""
        return max(self.deadline - time.monotonic(), 0.0)

    @property
    def ended(self) -> str | None:
        """Why nobody waits any more; None while somebody does."""
        return self._reason

    def end(self, reason: str) -> None:
        """Nobody waits any more; of several reasons the first one counts."""
        with self._guard:
            if self._reason is not None:
                return
            self._reason = reason
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def check(self) -> None:
        """Go on only for somebody.

        Raises:
            errors.Abandoned: nobody waits any more.
        """
        if self._reason is not None:
            raise errors.Abandoned(self._reason)

    def sleep(self, seconds: float) -> None:
        """Let time pass, but not beyond the end.

        Raises:
            errors.Abandoned: nobody waits any more.
        """
        woken = threading.Event()
        with self.waking(woken.set):
            woken.wait(min(seconds, self.left))
        self.check()

    def wait_for(self, condition: threading.Condition, happened: Callable[[], bool]) -> bool:
        """Whether it happens, and the condition is told of it, before this is at its end.

        The condition must not be held.

        Raises:
            errors.Abandoned: nobody waits any more.
        """

        def wake() -> None:
            with condition:
                condition.notify_all()

        with self.waking(wake), condition:
            condition.wait_for(lambda: happened() or self.ended is not None, self.left)
            if happened():
                return True
        self.check()
        return False

    @contextlib.contextmanager
    def at_most(self, seconds: float) -> Iterator["Patience"]:
        """Less patience, for the length of the block; it ends with this one."""
        shorter = Patience(min(seconds, self.left))

        def end() -> None:
            shorter.end(self.ended or "")

        with self.waking(end):
            yield shorter

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """Have `wake` called, once and by whichever thread, when it is ended in the block."""
        with self._guard:
            is_over = self._reason is not None
            if not is_over:
                self._wakers.append(wake)
        if is_over:
            wake()
        try:
            yield
        finally:
            with self._guard, contextlib.suppress(ValueError):
                self._wakers.remove(wake)
