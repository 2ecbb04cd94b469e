"""Has it told of prepared claims whose GPU is gone, and when it is back."""

from collections.abc import Callable, Iterable, Mapping

from dra_driver import telemetry
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import conditions
from dra_driver.logic.offering import places
from dra_driver.logic.passthrough import standing
from dra_driver.logic.preparing import device_health, device_status, reports
from dra_driver.model import devices, prepared

Gone = Mapping[str, str]
"""Why devices of a claim cannot be used, by name: their GPU is gone or does not answer."""
Healths = Mapping[str, device_status.Health]
"""How devices of a claim are, by name."""
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
        self._gpus = gpus
        self._on_change = on_change
        self._log = telemetry.logger("gpu-health")
        self._gone: dict[str, Gone] = {}
        self._told: dict[str, tuple[Gone, Healths]] = {}

    def gone(self, record: prepared.Record) -> Gone:
        """What is wrong with the GPUs of a claim now."""
        return _of(record, self._troubles([record]))

    def tell(self, known: Iterable[prepared.Record]) -> None:
        """Have it told of which claims that has changed since it was told last.

        A claim that is new is told of by whoever prepared it, unless its GPU is gone.
        """
        completed = [one for one in known if one.phase is prepared.Phase.COMPLETED]
        troubles, view = self._troubles(completed), self._health()
        now = {one.uid: (_of(one, troubles), reported(one, view)) for one in completed}
        told, self._told = self._told, dict(now)
        was, self._gone = self._gone, {uid: gone for uid, (gone, _) in now.items()}
        for record in completed:
            gone, healths = now[record.uid]
            self._log_change(record, was.get(record.uid, {}), gone)
            if (gone, healths) != told.get(record.uid, ({}, healths)):
                self._on_change(record, gone)

    def now_told(self, record: prepared.Record, gone: Gone) -> Healths:
        """How the devices of a claim are, by name: that is being told of it now, and `gone` is.

        What differs from it later on is a change.
        """
        found = reported(record, self._health())
        self._told[record.uid] = gone, found
        return found

    def _log_change(self, record: prepared.Record, was: Gone, gone: Gone) -> None:
        if gone.keys() - was.keys():
            self._log.error("GPU of a claim is gone", claim=str(record.ref), devices=sorted(gone))
        elif was and not gone:
            self._log.info("GPU of a claim is back", claim=str(record.ref))

    def _troubles(self, known: Iterable[prepared.Record]) -> Gone:
        """What is wrong with any device."""
        seen = self._gpus.snapshot
        offered = {name: offer.card for name, offer in seen.offered.items()}
        found = device_health.of_gpus(
            offered, seen.lost, known, problem=seen.problem, bound={*seen.bound.values()}
        )
        return {name: seen.problem or LOST for name, trouble in found.items() if trouble}


def reported(record: prepared.Record, view: conditions.View) -> Healths:
    """How the devices of a claim are, by name."""
    hit = view.of_claim(record.uid)
    found = {}
    for name, place in places.of({}, [record]).items():
        listed = conditions.grave_first([*view.at(*place), *hit])
        if devices.is_vfio(name):
            found[name] = reports.unseen(standing.told(place[0], [record]), listed)
        else:
            found[name] = reports.health_of(listed)
    return found


def _of(record: prepared.Record, troubles: Gone) -> Gone:
    names = (device.device for device in record.devices)
    return {name: troubles[name] for name in names if name in troubles}
