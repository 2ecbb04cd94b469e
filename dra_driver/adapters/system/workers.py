"""Threads that work for as long as their process does, and end when they are told to."""

import threading
from collections.abc import Callable

END_SECONDS = 10.0


class Worker:
    """A thread, with what wakes and ends it. It holds up no exit of the process.

    Its work is a loop that looks at `is_ending` and waits by `pause` and `rest` alone.
    """

    def __init__(
        self, name: str, work: Callable[[], None], *, end_seconds: float = END_SECONDS
    ) -> None:
        """Nothing is started yet. `end_seconds` is how long `end` waits for the work to end."""
        self._end_seconds = end_seconds
        self._ending = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    def is_ending(self) -> bool:
        """Whether its work is to end."""
        return self._ending.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to work; once."""
        self._thread.start()

    def end(self, release: Callable[[], None] = lambda: None) -> None:
        """Have the work end, and wait for it; a thread that ends itself is not waited for.

        `release` ends what the work waits for besides `pause` and `rest`.
        """
        self._ending.set()
        # After that: whoever rests looks whether it is ending first.
        self._woken.set()
        release()
        if self.is_alive and self._thread is not threading.current_thread():
            self._thread.join(self._end_seconds)

    def wake(self) -> None:
        """End a rest: the one that it has now, or the next one."""
        self._woken.set()

    def heed(self) -> None:
        """From now on only who wakes it later counts; for the work itself."""
        self._woken.clear()

    def pause(self, seconds: float) -> bool:
        """Let time pass, whoever wakes it; whether it is ending. For the work itself."""
        return self._ending.wait(seconds)

    def rest(self, seconds: float | None = None) -> None:
        """Wait until it was woken since `heed`, is ending, or time has passed; likewise."""
        # What woke it for the end may have been cleared by `heed`.
        if not self.is_ending():
            self._woken.wait(seconds)
