"""Which GPUs of virtual machines are not where they should be, as the bus tells."""

from collections.abc import Callable, Collection, Iterable, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
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
        taken: Callable[[], Mapping[str, str]],
        leaving: Callable[[], Collection[str]],
    ) -> None:
        """`taken` are the GPUs that ledgers say were taken from NVIDIA's driver: PCI addresses by
        UUID. `leaving` tells the UIDs of claims that are, or were in part, unprepared.
        """
        self._known = known
        self._locks = held
        self._scan = scan
        self._gpus = gpus
        self._taken = taken
        self._leaving = leaving
        self._log = telemetry.logger("stranding")

    def look(self) -> standing.Standing | None:
        """How the GPUs of claims stand; None where that is not known now."""
        try:
            before = self._records()
            taken = self._taken()
            if not (before or taken):
                return standing.Standing()
            busy = {record.uid for record in before if self._is_busy(record)}
            leaving, snapshot, bus = {*self._leaving()}, self._gpus.snapshot, self._scan()
            # Who has begun since holds the locks, or has changed the record by now.
            after = self._records()
            busy |= {one.uid for one in before if one not in after or self._is_busy(one)}
            # The same of those that no record tells of: they are about to be brought back.
            left = self._left(taken.items() & self._taken().items(), after)
        except (errors.DriverError, OSError) as error:
            self._log.info("GPUs of virtual machines are not looked at for now", reason=str(error))
            return None
        served = None if snapshot.problem else {card.gpu.uuid for card in snapshot.served}
        return standing.of(before, bus, served=served, leaving=leaving, busy=busy, taken=left)

    def _left(
        self, taken: Iterable[tuple[str, str]], known: Iterable[prepared.Record]
    ) -> dict[str, str]:
        """Those of the GPUs that no claim has, and that nobody is at work on."""
        had = standing.holders(known)
        names: dict[str, str] = {card.gpu.uuid: card.name for card in self._gpus.snapshot.cards}
        return {
            gpu: address
            for gpu, address in taken
            if gpu not in had and not self._locks.is_held(names.get(gpu, gpu))
        }

    def _records(self) -> list[prepared.Record]:
        return [
            record
            for record in self._known.contents().records.values()
            if bindings.PART in record.parts
        ]

    def _is_busy(self, record: prepared.Record) -> bool:
        names = (f"claim {record.uid}", *planning.cards(record))
        return any(self._locks.is_held(name) for name in names)
