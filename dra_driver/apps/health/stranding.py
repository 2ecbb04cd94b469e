"""Which GPUs of virtual machines are not where they should be, as the bus tells."""

from collections.abc import Callable, Collection

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, records
from dra_driver.adapters.system import locks
from dra_driver.apps.offering import inventory
from dra_driver.logic.passthrough import standing
from dra_driver.logic.preparing import planning
from dra_driver.model import bindings, pci, prepared


class Stranding:
    """Looks at the GPUs of claims that nobody is at work on; the bus is asked for those alone."""

    def __init__(
        self,
        known: records.Records,
        held: locks.Locks,
        scan: Callable[[], pci.Bus],
        gpus: inventory.Inventory,
        *,
        leaving: Callable[[], Collection[str]],
    ) -> None:
        """`leaving` tells the UIDs of claims that are, or were in part, unprepared."""
        self._known = known
        self._locks = held
        self._scan = scan
        self._gpus = gpus
        self._leaving = leaving
        self._log = telemetry.logger("stranding")

    def look(self) -> standing.Standing | None:
        """How the GPUs of claims stand; None where that is not known now."""
        try:
            before = self._records()
            if not before:
                return standing.Standing()
            busy = {record.uid for record in before if self._is_busy(record)}
            leaving, snapshot, bus = {*self._leaving()}, self._gpus.snapshot, self._scan()
            # Who has begun since holds the locks, or has changed the record by now.
            after = self._records()
            busy |= {one.uid for one in before if one not in after or self._is_busy(one)}
        except (errors.DriverError, *files.TROUBLE) as error:
            self._log.info("GPUs of virtual machines are not looked at for now", reason=str(error))
            return None
        served = None if snapshot.problem else {card.gpu.uuid for card in snapshot.served}
        return standing.of(before, bus, served=served, leaving=leaving, busy=busy)

    def _records(self) -> list[prepared.Record]:
        return [
            record
            for record in self._known.contents().records.values()
            if bindings.PART in record.parts
        ]

    def _is_busy(self, record: prepared.Record) -> bool:
        names = (f"claim {record.uid}", *planning.cards(record))
        return any(self._locks.is_held(name) for name in names)
