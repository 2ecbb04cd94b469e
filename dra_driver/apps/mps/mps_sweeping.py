"""Deletes the pods of MPS daemons that nobody wants any more: whoever unprepares does not wait.

Before a pod is made a mark of its domain is written, which stays until the pod is gone: an empty
file, so that a driver that was killed in between, or had no API server, knows of it afterwards.
"""

import collections
import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files
from dra_driver.adapters.system import workers
from dra_driver.model import mps

FIRST_PAUSE = 0.5
"""Seconds until a pod that is being deleted is looked at again; they double up to LAST_PAUSE."""
LAST_PAUSE = 30.0
LONG = 600.0
"""Seconds of one wait for a change."""


class Sweeper:
    """The marks, and a thread that deletes the pods of those that are not wanted."""

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        is_wanted: Callable[[str], bool],
        remove: Callable[[str], bool],
    ) -> None:
        """`directory` is that of the marks; it is made for the first, its parent must exist.

        `is_wanted` tells of a domain whether its daemon is. `remove` has its pod deleted and tells
        whether there is none any more; it may raise errors.DriverError.
        """
        self._directory = directory
        self._is_wanted = is_wanted
        self._remove = remove
        self._log = telemetry.logger("mps-pods")
        self._marking = threading.Lock()
        self._making: collections.Counter[str] = collections.Counter()
        self._marked: collections.Counter[str] = collections.Counter()
        self._told: dict[str, str] = {}
        self._worker = workers.Worker("mps-sweeper", self._run)

    def start(self) -> None:
        """Begin to sweep."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; marks stay."""
        self._worker.end()

    def changed(self) -> None:
        """A daemon may not be wanted any more."""
        self._worker.wake()

    def mark(self, domain: str, want: Callable[[], None] = lambda: None) -> None:
        """Remember that the domain has, or is about to have, a pod; `want` makes it wanted.

        Raises:
            errors.DriverError: as from `want`.
        """
        # Together: a mark whose domain is not wanted may be removed at any moment.
        with self._marking:
            path = self._directory / domain
            self._marked[domain] += 1
            if not path.exists():
                files.make_directory(self._directory, 0o700)
                files.mark(path)
            want()

    @contextlib.contextmanager
    def making(self, domain: str) -> Iterator[None]:
        """A pod of the domain may be made in the block: its mark outlives that."""
        with self._marking:
            self._making[domain] += 1
        try:
            self.mark(domain)
            yield
        finally:
            with self._marking:
                self._making[domain] -= 1
            self.changed()

    def sweep(self) -> bool:
        """Look at all marks once; whether no pod is left that nobody wants."""
        is_clean = True
        for domain in sorted(files.names(self._directory)):
            if self._worker.is_ending():
                return False
            if mps.is_id(domain) and not self._is_wanted(domain):
                is_clean = self._swept(domain) and is_clean
        return is_clean

    def _swept(self, domain: str) -> bool:
        with self._marking:
            marked = self._marked[domain]
        try:
            if not self._remove(domain):
                return False
        except errors.DriverError as error:
            if self._told.get(domain) != str(error):
                self._told[domain] = str(error)
                self._log.warning(
                    "pod of an MPS daemon that has ended not deleted for now; tried again",
                    mps=domain,
                    reason=str(error),
                )
            return False
        self._told.pop(domain, None)
        with self._marking:
            if self._is_wanted(domain):
                return True
            # That there is no pod may have been seen before one was made.
            if self._making[domain] or self._marked[domain] != marked:
                return False
            del self._marked[domain]
            files.remove(self._directory / domain)
        return True

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._worker.is_ending():
            self._worker.heed()
            is_clean = False
            try:
                is_clean = self.sweep()
            except Exception:  # noqa: BLE001 - a thread that ends would never delete a pod again
                self._log.exception("deleting pods of MPS daemons failed unexpectedly")
            if is_clean:
                pause = FIRST_PAUSE
                self._worker.rest(LONG)
            else:
                self._worker.rest(pause)
                pause = min(pause * 2, LAST_PAUSE)
