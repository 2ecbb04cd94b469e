"""What containers read of their devices, kept true while claims are prepared: rewritten in place
where a fact has changed, and written again where somebody removed it.

Nobody prepares such a claim again. Of devices that are not there to be looked at it stays as it is.
"""

from collections.abc import Callable, Collection

from dra_driver import errors, telemetry
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import metadata
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts
from dra_driver.apps.upkeep import restoring
from dra_driver.model import prepared

LOCK_SECONDS = 1.0
"""How long a claim may be busy; whoever is at it writes its files, or the next look does."""


class Refresher:
    """Looks whether files say what is true. The API is not asked."""

    def __init__(
        self,
        store: attempts.Store,
        gpus: inventory.Inventory,
        described: metadata.Metadata,
        *,
        leaving: Callable[[], Collection[str]],
    ) -> None:
        """`leaving` tells the UIDs of claims that are, or were in part, unprepared."""
        self._known = store.records
        self._locks = store.locks
        self._boot_id = store.boot_id
        self._gpus = gpus
        self._metadata = described
        self._leaving = leaving
        self._log = telemetry.logger("refresher")

    def look(self) -> None:
        """Write what is not so.

        Raises:
            errors.DriverError: of one of them, after all were looked at.
        """
        problem: errors.DriverError | None = None
        for record in self._known.contents().records.values():
            try:
                if self._is_settled(record):
                    self._refresh(record)
            except errors.DriverError as error:
                problem = error
        if problem is not None:
            raise problem

    def look_told(self) -> None:
        """As `look`, before there is anybody who is told of what could not be done."""
        try:
            self.look()
        except errors.DriverError as error:
            self._log.warning("device metadata is not up to date for now", reason=str(error))

    def _refresh(self, record: prepared.Record) -> None:
        seen = self._gpus.snapshot
        try:
            restoring.gpus_of(record, seen)
        except errors.Retryable:
            return
        if self._is_true(record, seen):
            return
        with self._locks.hold([f"claim {record.uid}"], patience.Patience(LOCK_SECONDS)):
            # Whoever unprepares it holds the lock, and leaves no record.
            if self._known.get(record.uid) != record or not self._is_settled(record):
                return
            now, documents = self._metadata.said(record, seen.offered)
            if now != record:
                # First, so that a generation is never used for two things that are said.
                self._known.write(now)
            if self._metadata.put(now, documents):
                self._log.info("device metadata of a claim brought up to date", claim=str(now.ref))

    def _is_true(self, record: prepared.Record, seen: inventory.Snapshot) -> bool:
        now, documents = self._metadata.said(record, seen.offered)
        return now == record and self._metadata.says(now, documents)

    def _is_settled(self, record: prepared.Record) -> bool:
        return (
            self._metadata.is_in(record)
            and record.phase is prepared.Phase.COMPLETED
            and record.boot_id == self._boot_id
            and record.uid not in self._leaving()
        )
