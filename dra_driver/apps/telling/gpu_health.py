"""Has it told of prepared claims whose GPU is gone, and when it is back."""

from collections.abc import Callable, Iterable, Mapping

from dra_driver import telemetry
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import conditions
from dra_driver.logic.offering import places
from dra_driver.logic.preparing import device_health, device_status, reports
from dra_driver.model import prepared

Gone = Mapping[str, str]
"""Why devices of a claim cannot be used, by name: their GPU is gone or does not answer."""
LOST = (
    "its GPU is not there any more, or does not answer: look at the node's kernel log (dmesg | "
    "grep -i xid)"
)
"""Which of the two it is, is not known any more after a restart."""


class GpuHealth:
    """Compares what claims have with the GPUs that are there. For one thread at a time."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        *,
        on_change: Callable[[prepared.Record, Gone], None],
        health: Callable[[], conditions.View] = conditions.View,
    ) -> None:
        """`on_change` is told of each claim whose GPUs went or came back; it must not take long.

        And of each whose GPUs have become better or worse, as `health` tells.
        """
        self._health = health
        self._reported: dict[str, Mapping[str, device_status.Health]] = {}
        self._gpus = gpus
        self._on_change = on_change
        self._log = telemetry.logger("gpu-health")
        self._told: dict[str, Gone] = {}

    def gone(self, record: prepared.Record) -> Gone:
        """What is wrong with the GPUs of a claim now."""
        return _of(record, self._troubles([record]))

    def tell(self, known: Iterable[prepared.Record]) -> None:
        """Have it told of which claims that has changed since the last time.

        A claim that is new is told of by whoever prepared it, unless something is wrong.
        """
        completed = [one for one in known if one.phase is prepared.Phase.COMPLETED]
        before, troubles = self._told, self._troubles(completed)
        self._told = {record.uid: _of(record, troubles) for record in completed}
        view, healths = self._health(), self._reported
        self._reported = {record.uid: reported(record, view) for record in completed}
        for record in completed:
            gone, was = self._told[record.uid], before.get(record.uid, {})
            now = self._reported[record.uid]
            if gone == was and now == healths.get(record.uid, now):
                continue
            if gone.keys() - was.keys():
                devices = sorted(gone)
                self._log.error("GPU of a claim is gone", claim=str(record.ref), devices=devices)
            elif was and not gone:
                self._log.info("GPU of a claim is back", claim=str(record.ref))
            self._on_change(record, gone)

    def _troubles(self, known: Iterable[prepared.Record]) -> Gone:
        """What is wrong with any device."""
        seen = self._gpus.snapshot
        offered = {name: offer.card for name, offer in seen.offered.items()}
        found = device_health.of_gpus(offered, seen.lost, known, problem=seen.problem)
        return {name: seen.problem or LOST for name, trouble in found.items() if trouble}


def reported(record: prepared.Record, view: conditions.View) -> Mapping[str, device_status.Health]:
    """How the devices of a claim are, by name."""
    hit = view.of_claim(record.uid)
    return {
        name: reports.health_of(conditions.grave_first([*view.at(*place), *hit]))
        for name, place in places.of({}, [record]).items()
    }


def _of(record: prepared.Record, troubles: Gone) -> Gone:
    names = (device.device for device in record.devices)
    return {name: troubles[name] for name in names if name in troubles}
