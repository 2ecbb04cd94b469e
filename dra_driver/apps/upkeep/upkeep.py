"""What is put in order on the node again and again, without the API: files, daemons, settings.

What is damaged, lost or left over while the driver runs does not wait for its next start.
"""

from collections.abc import Callable, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.system import workers

INTERVAL = 10.0
"""Seconds between two looks. One that finds nothing lists two directories."""
SELDOM = 6
"""Every so many looks, what costs more is looked at too."""

Task = Callable[[], None]


class Upkeep:
    """A thread that does tasks, each whether or not the others work."""

    def __init__(
        self, often: Sequence[Task], seldom: Sequence[Task], *, interval: float = INTERVAL
    ) -> None:
        """Tasks raise errors.DriverError where they cannot do now what they do."""
        self._often = often
        self._seldom = seldom
        self._interval = interval
        self._told: dict[Task, str] = {}
        self._log = telemetry.logger("upkeep")
        self._worker = workers.Worker("upkeep", self._run)

    def start(self) -> None:
        """Begin, after a first pause: the start has put everything in order."""
        self._worker.start()

    def stop(self) -> None:
        """Stop."""
        self._worker.end()

    def look(self, tasks: Sequence[Task]) -> None:
        """Do tasks once."""
        for task in tasks:
            if self._worker.is_ending():
                return
            try:
                task()
                self._told.pop(task, None)
            except errors.DriverError as error:
                if self._told.get(task) != str(error):
                    self._log.warning("not put in order for now", reason=str(error))
                self._told[task] = str(error)
            except Exception:  # noqa: BLE001 - a thread that ends would put nothing in order again
                self._log.exception("putting in order failed unexpectedly")

    def _run(self) -> None:
        looks = 0
        while not self._worker.pause(self._interval):
            looks += 1
            self.look([*self._often, *(self._seldom if looks % SELDOM == 0 else ())])
