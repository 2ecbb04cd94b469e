"""MPS daemons that are not described any more, or whose description is damaged, while claims have
them: described anew by what is remembered of these claims, so that they can be started again.
"""

import pathlib
from collections.abc import Callable, Collection

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import stores
from dra_driver.adapters.mps import mps_domain
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import sharing, specs
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts
from dra_driver.apps.upkeep import restoring
from dra_driver.logic.preparing import planning
from dra_driver.model import prepared

LOCK_SECONDS = 1.0
"""How long a GPU may be busy; the next look comes soon."""


class Describer:
    """Looks at the descriptions of daemons. A supervisor that runs is not disturbed."""

    def __init__(
        self,
        store: attempts.Store,
        gpus: inventory.Inventory,
        sharer: sharing.Sharer,
        directory: pathlib.Path,
        *,
        leaving: Callable[[], Collection[str]],
    ) -> None:
        """`directory` is that of the daemons.

        `leaving` tells the UIDs of claims that are, or were in part, unprepared.
        """
        self._known = store.records
        self._locks = store.locks
        self._gpus = gpus
        self._directory = directory
        self._sharer = sharer
        self._leaving = leaving
        self._log = telemetry.logger("describer")

    def look(self) -> None:
        """Describe what is not described.

        Raises:
            errors.DriverError: of one of them, after all were looked at.
        """
        problem: errors.DriverError | None = None
        for record in self._known.contents().records.values():
            for use in record.sharing.mps:
                try:
                    if self._lacks(use.domain) is not None and self._is_settled(record):
                        self._mend(record, use)
                except errors.DriverError as error:
                    problem = error
        if problem is not None:
            raise problem

    def _mend(self, record: prepared.Record, use: prepared.MpsUse) -> None:
        gpus = restoring.gpus_of(record, self._gpus.snapshot)
        with self._locks.hold(planning.cards(record), patience.Patience(LOCK_SECONDS)):
            # Whoever unprepares it holds these locks, and leaves no record.
            reason = self._lacks(use.domain)
            if reason is None or self._known.get(record.uid) != record:
                return
            if not self._is_settled(record):
                return
            if len(use.devices) > 1:
                raise errors.Retryable(
                    f"MPS daemon {use.domain} has several devices, and nothing tells the limits of "
                    f"each any more ({reason}). Delete the pods of claim {record.ref}"
                )
            domain = mps_domain.Domain(self._directory / use.domain)
            aside = domain.keep_aside() if domain.description.exists() else None
            self._log.error(
                sharing.DAMAGED,
                mps=use.domain,
                claim=str(record.ref),
                reason=reason,
                set_aside=None if aside is None else str(aside),
            )
            others = [one for one in self._known.contents().records.values() if one != record]
            uuids = specs.uuids(record, gpus)
            domain.create(self._sharer.wanted(use, record, uuids, others), shm=False)
            self._log.warning("MPS daemon described anew", mps=use.domain, claim=str(record.ref))

    def _lacks(self, domain: str) -> str | None:
        """Why a daemon is not described; None where it is."""
        try:
            described = mps_domain.Domain(self._directory / domain).read()
        except stores.Damaged as error:
            return str(error)
        return "the file is gone" if described is None else None

    def _is_settled(self, record: prepared.Record) -> bool:
        return record.phase is prepared.Phase.COMPLETED and record.uid not in self._leaving()
