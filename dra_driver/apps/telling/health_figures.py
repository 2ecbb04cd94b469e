"""Counts what is wrong with GPUs, what was told of them, and for how long they have been how."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from dra_driver import health_metrics, telemetry
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import conditions, xids
from dra_driver.model import devices, health

OTHER = "other"
"""In the place of an XID that is not in the table: there are not to be more series than that."""
_HEALTHY, _INFORMED, _WITHDRAWN, _UNMONITORED = health_metrics.STATES


class HealthFigures:
    """Threads may share it: events are counted by whoever hears them, the rest when it is asked."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        health_: Callable[[], conditions.View],
        metrics: telemetry.Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`health_` tells what counts now; `clock` is in seconds."""
        self._gpus = gpus
        self._health = health_
        self._metrics = metrics.health
        self._clock = clock
        self._guard = threading.Lock()
        self._states: Mapping[str, str] = {}
        self._at = clock()
        self._seconds: dict[tuple[str, str], float] = {}
        self._metrics.now_is(self.now)

    def heard(self, event: health.Event) -> None:
        """The driver has told something."""
        number = None
        if event.kind is health.EventKind.XID:
            number = str(event.data) if event.data in xids.TABLE else OTHER
        kind = event.kind.name.lower().replace("_", "-")
        name = self._names().get(event.gpu, event.gpu)
        self._metrics.heard(name, kind, xid=number)

    def changed(self) -> None:
        """What is wrong, or which GPUs there are, may have changed: time counts for that now."""
        with self._guard:
            view, names, seen = self._health(), self._names(), self._gpus.snapshot
            lost = {offer.gpu.uuid for offer in seen.lost.values()} - seen.bound.keys()
            states = {
                name: _gpu_state(view, uuid, lost, is_bound=uuid in seen.bound)
                for uuid, name in names.items()
            }
            at = self._clock()
            for name, state in self._states.items():
                self._seconds[name, state] += at - self._at
            self._metrics.known(states.keys() - self._states.keys())
            self._at, self._states = at, states
            for name in states:
                for state in health_metrics.STATES:
                    self._seconds.setdefault((name, state), 0.0)

    def now(self) -> health_metrics.Now:
        """How things are."""
        self.changed()
        seen, view = self._gpus.snapshot, self._health()
        counts = dict.fromkeys(health_metrics.STATES, 0)
        for offer in seen.offered.values():
            counts[_state(view.of(offer), is_bound=offer.gpu.uuid in seen.bound)] += 1
        counts[_WITHDRAWN] += len(seen.lost.keys() - seen.offered.keys())
        deaf = {
            one.finding.gpu for one in view.conditions if one.finding.key is health.Key.UNMONITORED
        }
        with self._guard:
            return health_metrics.Now(counts, len(deaf), dict(self._seconds))

    def _names(self) -> dict[devices.GpuUuid, str]:
        seen = self._gpus.snapshot
        names = {offer.gpu.uuid: offer.gpu.name for offer in seen.lost.values()}
        return names | {card.gpu.uuid: card.name for card in seen.cards}


def _gpu_state(view: conditions.View, gpu: str, lost: Collection[str], *, is_bound: bool) -> str:
    """How a GPU is, or the worst part of it."""
    if gpu in lost:
        return _WITHDRAWN
    listed = (one for one in view.of_gpu(gpu) if not one.finding.only_claims)
    return _state(listed, is_bound=is_bound)


def _state(listed: Iterable[health.Condition], *, is_bound: bool) -> str:
    found = tuple(listed)
    if conditions.withdraws(found):
        return _WITHDRAWN
    if is_bound:
        return _UNMONITORED
    return _INFORMED if found else _HEALTHY
