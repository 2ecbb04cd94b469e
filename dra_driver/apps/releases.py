"""What calls wait for that lack something: that another call gives something back."""

import threading


class Releases:
    """Counts what is given back, so that none is missed between a look and the wait after it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        """How many there were; to be read before the look."""
        return self._count

    def tell(self) -> None:
        """Something was given back."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, seconds: float) -> None:
        """Return once there were more than `seen`, or after `seconds`."""
        with self._condition:
            self._condition.wait_for(lambda: self._count != seen, seconds)
