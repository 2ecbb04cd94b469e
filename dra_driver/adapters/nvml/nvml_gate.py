"""Who has NVML open in this process, and how everybody is kept out of it for a while.

An open NVML is a client of every GPU of the node, and a GPU that has a client is not reset. Closed
for the last time, it holds nothing open any more (seen on H200 with driver 580.159.04).
"""

import contextlib
import threading
from collections.abc import Iterator

from dra_driver import errors

WAIT_SECONDS = 10.0
"""How long somebody waits for NVML who comes while it is closed."""


class Closed(errors.Retryable):
    """NVML is closed on purpose, and about to be opened again: nothing follows for any GPU."""


class Gate:
    """Counts who is inside; safe to use from several threads."""

    def __init__(self) -> None:
        """It is open, and nobody is inside."""
        self._changed = threading.Condition()
        self._is_closed = False
        self._inside: dict[int, int] = {}

    def enter(self) -> None:
        """Come in, or wait until that is possible. Who is inside already comes in once more.

        Raises:
            Closed: it stayed closed.
        """
        me = threading.get_ident()
        with self._changed:
            if not self._changed.wait_for(lambda: self._may_enter(me), WAIT_SECONDS):
                raise Closed(
                    "NVML is closed while a GPU is reset, or handed to a virtual machine; it is "
                    "tried again in a moment"
                )
            self._inside[me] = self._inside.get(me, 0) + 1

    def leave(self) -> None:
        """Go out once; who is not inside goes out for another thread, which is to be none."""
        with self._changed:
            me = threading.get_ident()
            one = me if me in self._inside else next(iter(self._inside), None)
            if one is None:
                return
            self._inside[one] -= 1
            if not self._inside[one]:
                del self._inside[one]
            self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self, seconds: float) -> Iterator[None]:
        """Have nobody inside for the length of the block. Who comes waits, who is in is waited for,
        and so is another who has it closed.

        Raises:
            errors.Retryable: somebody was inside for longer than that.
            Closed: another had it closed for longer than that.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_closed, seconds):
                raise Closed("NVML is closed already, for another GPU")
            self._is_closed = True
            is_empty = self._changed.wait_for(lambda: not self._inside, seconds)
        try:
            if not is_empty:
                raise errors.Retryable(
                    f"this driver itself has NVML open, and a call of it has not come back within "
                    f"{seconds:g} s: it may hang on a sick card. Delete the plugin's pod to end it"
                )
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    def _may_enter(self, thread: int) -> bool:
        # One that waits with NVML open would never be waited for to the end.
        return not self._is_closed or thread in self._inside
