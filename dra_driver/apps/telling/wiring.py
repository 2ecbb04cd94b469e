"""Who is told of claims and devices, as the settings and the hardware of a node have it."""

from collections.abc import Callable

from dra_driver import health_metrics
from dra_driver.apps.effects import wiring as effects_wiring
from dra_driver.apps.mps import mps_health
from dra_driver.apps.node import base
from dra_driver.apps.offering import wiring as offering_wiring
from dra_driver.apps.preparing import fetching
from dra_driver.apps.telling import (
    announcing,
    device_status,
    directory_watch,
    health_events,
    health_figures,
    node_condition,
    readiness,
)
from dra_driver.logic.health import conditions
from dra_driver.model import prepared


class Telling:
    """Tells the API, the kubelet, the metrics and the probes."""

    def __init__(
        self,
        on: base.Base,
        source: fetching.ApiClaims,
        offering: offering_wiring.Offering,
        effects: effects_wiring.Effects,
        *,
        on_health: announcing.OnHealth,
        keep: Callable[[], mps_health.Down],
        ask: Callable[[], str | None],
        health: Callable[[], conditions.View] = conditions.View,
    ) -> None:
        """Nothing is started yet.

        `on_health` is told what is wrong with devices, by name, as often as that may have changed;
        `keep` sees to it that GPUs are set as claims need them, see `mps_health.Health`; `ask`
        tells what is wrong with the API server, `health` what is wrong with GPUs.
        """
        config, known, metrics = on.config, on.records, on.metrics
        self._metrics = metrics
        self.statuses = device_status.DeviceStatusWriter(
            on.client, source, config.driver_name, pool=config.node_name
        )
        self.announcer = announcing.Announcer(
            offering.gpus,
            known,
            self.statuses,
            effects.listed,
            metrics,
            on_health,
            effects.sharer.health,
            health,
        )
        self.figures = health_figures.HealthFigures(offering.gpus, health, metrics)
        self._events = health_events.HealthEvents(
            on.client,
            config.node_name,
            health_events.Heard(offering.gpus, health, self.announcer.known),
            may_tell=offering.is_newest,
        )
        self._condition = _condition(on, offering, health)
        self.health = effects.sharer.health
        self.health.wire(on_change=self.announcer.tell_troubles, keep=keep)
        publisher = offering.publisher
        self.readiness = readiness.Readiness(
            offering.gpus,
            missing=on.hardware.missing,
            published=offering.is_published,
            ask=ask,
            vanished=directory_watch.DirectoryWatch(config).trouble,
            refusal=lambda: publisher.refusal,
            left_out=lambda: publisher.left_out,
        )
        metrics.published_if(lambda: publisher.wait_published(0))
        metrics.refused_are(lambda: len(publisher.left_out))

    def changed(self) -> None:
        """What is prepared, or what is there, may have changed."""
        self.announcer.changed()
        self._health_may_have_changed()
        self.readiness.changed()

    def health_changed(self) -> None:
        """What is wrong with GPUs has changed."""
        self.announcer.changed()
        self._health_may_have_changed()

    def reset(self, gpu: str, result: health_metrics.ResetResult, message: str) -> None:
        """A reset of the GPU with this UUID was tried: it is counted, and the node is told."""
        self._metrics.health.reset(result)
        self._events.reset(gpu, message, is_done=result == "done")

    def start_with_health(self) -> None:
        """Begin with what tells what is wrong with GPUs, once that is known of before."""
        self._events.start()
        if self._condition is not None:
            self._condition.start()

    def stop_with_health(self) -> None:
        """End that."""
        self._events.stop()
        if self._condition is not None:
            self._condition.stop()

    def _health_may_have_changed(self) -> None:
        self.figures.changed()
        self._events.changed()
        if self._condition is not None:
            self._condition.changed()

    def tell_prepared(self) -> None:
        """Tell what was not told before the last stop; nothing is written that is there already.

        Before the first call, whose report is the later one then.
        """
        for record in self.announcer.known():
            if record.phase is prepared.Phase.COMPLETED:
                self.announcer.tell_prepared(record)


def _condition(
    on: base.Base, offering: offering_wiring.Offering, health: Callable[[], conditions.View]
) -> node_condition.NodeCondition | None:
    config = on.config
    if not config.reboot_condition:
        return None
    return node_condition.NodeCondition(
        on.client,
        config.node_name,
        config.reboot_condition,
        offering.gpus,
        health,
        may_tell=offering.is_newest,
    )
