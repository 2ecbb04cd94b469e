"""Tells everybody who counts on it how claims and their devices are.

That is the claims' `status.devices`, the kubelet (health of devices), and the metrics.
"""

import collections
import threading
from collections.abc import Callable, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.adapters.system import workers
from dra_driver.apps.effects import effect
from dra_driver.apps.mps import mps_health
from dra_driver.apps.offering import inventory
from dra_driver.apps.telling import device_status, gpu_health
from dra_driver.logic.health import conditions
from dra_driver.logic.offering import places
from dra_driver.logic.passthrough import standing
from dra_driver.logic.preparing import device_health, reports
from dra_driver.model import claims, devices, health, prepared

OnHealth = Callable[[Mapping[str, str | None], Mapping[str, str], Mapping[str, str]], None]
"""Takes what is wrong with devices by name, None: nothing; what is told of such; and of which of
them nobody can tell, and why.
"""

SETTLING = 0.02
"""Seconds in which further changes are told together with the first one."""
STOP_SECONDS = 5.0


class Announcer:
    """Threads may share it. Whoever looks last tells last: what is told stays until it changes."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        known: records.Records,
        statuses: device_status.DeviceStatusWriter,
        effects: Sequence[effect.Effect],
        metrics: telemetry.Metrics,
        on_health: OnHealth,
        daemons: mps_health.Health,
        health: Callable[[], conditions.View] = conditions.View,
    ) -> None:
        """`on_health` is told what is wrong with devices, by name, as often as that may change.

        `daemons` are counted; `health` tells what is wrong with GPUs.
        """
        self._gpus = gpus
        self._records = known
        self._statuses = statuses
        self._effects = effects
        self._metrics = metrics
        self._on_health = on_health
        self._daemons = daemons
        self._health = health
        self._gpu_health = gpu_health.GpuHealth(gpus, on_change=self._gone, health=health)
        self._telling = threading.Lock()
        self._reporting = threading.Lock()
        self._log = telemetry.logger("announcer")
        self._worker = workers.Worker("announcer", self._run, end_seconds=STOP_SECONDS)

    def start(self) -> None:
        """Begin to tell of changes."""
        self._worker.start()

    def stop(self) -> None:
        """Stop."""
        self._worker.end()

    def known(self) -> list[prepared.Record]:
        """The claims that are remembered."""
        return list(self._records.contents().records.values())

    def changed(self) -> None:
        """What is prepared, or what is there, may have changed: it is told soon.

        Calls of the kubelet do not wait for that.
        """
        self._worker.wake()

    def _run(self) -> None:
        while True:
            self._worker.rest()
            if self._worker.pause(SETTLING):
                return
            self._worker.heed()
            try:
                self._tell()
            except errors.DriverError as error:
                self._log.warning("changes not told for now", reason=str(error))
            except Exception:  # noqa: BLE001 - a thread that ends would tell nothing ever again
                self._log.exception("changes could not be told")

    def _tell(self) -> None:
        with self._telling:
            known = self.known()
            self._metrics.prepared(
                collections.Counter(device.kind for record in known for device in record.devices),
                claims=sum(record.phase is prepared.Phase.COMPLETED for record in known),
            )
            self._tell_health(known)
            # What is told meanwhile is told before this looks, or after: nothing falls between,
            # and no claim is forgotten that was prepared since.
            with self._reporting:
                self._gpu_health.tell(self.known())

    def told(self, record: prepared.Record) -> reports.Told:
        """What there is to tell of a claim's devices, whatever is wrong with them."""
        seen = self._gpus.snapshot
        gpus: dict[str, devices.Gpu] = {one.gpu.uuid: one.gpu for one in seen.lost.values()}
        gpus |= {card.gpu.uuid: card.gpu for card in seen.cards}
        found = {key: {**facts} for key, facts in reports.identities(record, gpus).items()}
        for key, facts in effect.told(self._effects, record).items():
            found.setdefault(key, {}).update(facts)
        return found

    def tell_prepared(
        self, record: prepared.Record, claim: claims.ResourceClaim | None = None
    ) -> None:
        """Have it told in the claim how its devices are; `claim` is how it was served just now."""
        served = None if claim is None else claim.served
        # What is found out later is reported later.
        with self._reporting:
            troubles = effect.troubles(self._effects, record, anew=True)
            self._report(record, troubles, self._gpu_health.gone(record), served)
        if troubles:
            self._tell_kubelet()

    def tell_troubles(self, record: prepared.Record) -> None:
        """Have it told in the claim, and to the kubelet, what is seen to be wrong by now."""
        with self._reporting:
            troubles = effect.troubles(self._effects, record, anew=False)
            self._report(record, troubles, self._gpu_health.gone(record))
        self._tell_kubelet()

    def _tell_kubelet(self) -> None:
        with self._telling:
            self._tell_health(self.known())

    def _gone(self, record: prepared.Record, gone: gpu_health.Gone) -> None:
        self._report(record, effect.troubles(self._effects, record, anew=False), gone)

    def _report(
        self,
        record: prepared.Record,
        troubles: reports.Troubles,
        gone: gpu_health.Gone,
        served: claims.Json | None = None,
    ) -> None:
        """For one thread at a time: the holder of `_reporting`."""
        found = reports.of_record(
            record,
            troubles,
            gone,
            told=self.told(record),
            health=self._gpu_health.now_told(record, gone),
        )
        self._statuses.report(record.ref, found, served)

    def _tell_health(self, known: Sequence[prepared.Record]) -> None:
        seen = self._gpus.snapshot
        offered = {name: offer.card for name, offer in seen.offered.items()}
        down = self._daemons.told
        self._metrics.gpus(
            offered=len(set(offered.values())),
            failed=len(seen.failures),
            lost=len({offer.gpu.uuid for offer in seen.lost.values()}),
        )
        needed = {use.domain for record in known for use in record.sharing.mps}
        self._metrics.mps_daemons(ready=len(needed - down.keys()), down=len(needed & down.keys()))
        troubles = {
            record.uid: effect.troubles(self._effects, record, anew=False)
            for record in known
            if record.phase is prepared.Phase.COMPLETED
        }
        bound = {name: standing.told(gpu, known) for gpu, name in seen.bound.items()}
        found = device_health.of_node(
            offered, seen.lost, known, troubles=troubles, problem=seen.problem, bound=bound
        )
        told, notes = device_health.with_conditions(found, self._conditions(known))
        self._on_health(told, notes, device_health.unseen(told, bound))

    def _conditions(
        self, known: Sequence[prepared.Record]
    ) -> Mapping[str, tuple[health.Condition, ...]]:
        """What is wrong with devices that are not well, by name."""
        view, seen = self._health(), self._gpus.snapshot
        if not view.conditions:
            return {}
        where = places.of({**seen.lost, **seen.offered}, known)
        return device_health.conditions_of(view, where, known)
