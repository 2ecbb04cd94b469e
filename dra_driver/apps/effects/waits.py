"""What a claim may have to wait for outside of this process: nothing is locked meanwhile."""

from collections.abc import Callable

from dra_driver import errors
from dra_driver.adapters.system import patience


class Wait(errors.Retryable):
    """Something outside has to happen first. Whoever catches this lets go of all locks, calls
    `over`, and tries again from the beginning.

    `name` is that of the lock under which `over` is called: one waits, and the others for it.
    `over` returns once it is worth trying again, or raises errors.DriverError with the reason.
    """

    def __init__(self, message: str, name: str, over: Callable[[patience.Patience], None]) -> None:
        super().__init__(message)
        self.name = name
        self.over = over
