"""The part of the kubelet plugin that works once the sockets answer: state, GPUs, API.

It is imported after the sockets are open: what it needs takes longer to load than the kubelet
should wait for them.
"""

import threading
from collections.abc import Callable, Iterable

from dra_driver import settings, telemetry
from dra_driver.apps.doctor import doctor_cluster
from dra_driver.apps.effects import wiring as effects_wiring
from dra_driver.apps.health import book
from dra_driver.apps.health import wiring as health_wiring
from dra_driver.apps.mps import mps_pods
from dra_driver.apps.node import base, host
from dra_driver.apps.offering import wiring as offering_wiring
from dra_driver.apps.preparing import attempts, fetching, preparing, refusals, turns
from dra_driver.apps.telling import announcing
from dra_driver.apps.telling import wiring as telling_wiring
from dra_driver.apps.upkeep import wiring as upkeep_wiring
from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.preparing import staleness

WAIT_FOR_GPUS = 20.0
"""Seconds that a first look at the GPUs may take before calls are answered without it."""


class NodeAgent:
    """Recovers, discovers, prepares and publishes."""

    def __init__(
        self,
        config: settings.KubeletPlugin,
        hardware: host.Hardware,
        metrics: telemetry.Metrics,
        *,
        on_health: announcing.OnHealth = lambda *_: None,
        calls: turns.Turns | None = None,
        user_agent: str,
    ) -> None:
        """Nothing is started, but the state directory is opened; nothing is published yet.

        `on_health` is told what is wrong with devices, by name, as often as that may have changed.
        `calls` are those of the kubelet.

        Raises:
            errors.Fatal: the API server's address or credentials are not to be had.
        """
        self._config = config
        self._user_agent = user_agent
        self._stop = threading.Event()
        self._is_ready = False
        self._on = on = base.opened(config, hardware, metrics, user_agent=user_agent)
        source = fetching.ApiClaims(on.client, self._stop)
        here = attempts.node(on)
        self._offering = offering_wiring.Offering(
            on,
            on_change=self._changed,
            on_error=self._publish_failed,
            allocated=lambda: staleness.devices_taken(source.concerning(here, ()), here),
            health=lambda: self._health.settled(),  # noqa: PLW0108 - it is made after this
        )
        self._health = health_wiring.Watched(
            on,
            self._offering.gpus,
            listeners=book.Listeners(self._health_changed, self._offering.publisher.changed),
            may_write=self._offering.is_newest,
            leaving=lambda: self._preparer.leaving(),  # noqa: PLW0108 - it is made after this
            on_event=lambda event: self._telling.figures.heard(event),  # noqa: PLW0108 - likewise
        )
        launcher = effects_wiring.launcher(on)
        effects = effects_wiring.effects(on, launcher)
        self._effects = effects.listed
        self._sweeper = launcher.sweeper if isinstance(launcher, mps_pods.PodLauncher) else None
        self._telling = telling_wiring.Telling(
            on,
            source,
            self._offering,
            effects,
            on_health=on_health,
            keep=lambda: self._keeping.look_at_cards(),  # noqa: PLW0108 - it is made after this
            ask=self._why_unpublished,
            health=self._health.view,
        )
        self._recovering = health_wiring.recovery(
            on, self._health, self._offering, effects.partitioner, source, self._telling.reset
        )
        self._preparer = preparing.Preparer(
            here,
            attempts.store(on),
            source,
            self._offering.gpus,
            effects,
            stopping=self._stop,
            on_change=self._changed,
            on_prepared=self._telling.announcer.tell_prepared,
        )
        self._keeping = upkeep_wiring.Keeping(
            on,
            self._offering,
            effects,
            source,
            self._preparer,
            calls or turns.Turns(),
            on_change=self._changed,
        )
        metrics.stale_claims(lambda: self._keeping.reconciler.kept)

    @property
    def serves(self) -> bool:
        """Whether it publishes, unless a newer instance does."""
        return self._offering.serves

    def serve(self) -> None:
        """From now on it publishes, as long as it is the newest instance that does."""
        self._offering.serve()

    def has_others(self) -> bool:
        """Whether another instance is alive that publishes, or would."""
        return self._offering.has_others()

    def lacks(self) -> str | None:
        """What would keep it from publishing, as the API server tells now."""
        return diagnosis.hindrance(self._doctor())

    def start(self, ready: Callable[[refusals.Preparer], None]) -> None:
        """Start everything, in order; `ready` is called when claims can be prepared."""
        telling = self._telling
        telling.announcer.start()
        self._offering.start()
        self._offering.gpus.wait_first(WAIT_FOR_GPUS)
        self._keeping.recover()
        self._health.load()
        telling.tell_prepared()
        self._is_ready = True
        known, report = self._on.records, telling.statuses.report
        ready(refusals.Told(self._preparer, known, telling.announcer.told, report))
        telling.statuses.start()
        telling.health.start()
        if self._sweeper is not None:
            self._sweeper.start()
        self._health.start()
        telling.start_with_health()
        self._offering.publisher.start()
        telling.readiness.start()
        self._keeping.start()
        self._recovering.start()
        self._changed()

    def hindrance(self) -> str | None:
        """What is waited for, so that claims can be prepared and devices are offered."""
        return self._telling.readiness.hindrance()

    def stop(self) -> None:
        """Stop everything. Slices, CDI specs and records stay."""
        self._stop.set()
        self._telling.readiness.stop()
        self._keeping.stop()
        self._recovering.stop()
        self._health.stop()
        self._telling.stop_with_health()
        self._telling.health.stop()
        if self._sweeper is not None:
            self._sweeper.stop()
        self._offering.stop()
        self._telling.announcer.stop()
        self._telling.statuses.stop()
        self._offering.close()
        self._on.client.close()
        if not self._is_ready:
            # Nobody holds one, and the process may make another agent.
            self._on.locks.close()

    def _changed(self) -> None:
        """What is prepared, or what is there, may have changed."""
        # What is absent is known as such before anybody is told of it.
        self._health.cards.changed()
        self._telling.changed()
        self._recovering.changed()
        self._offering.publisher.changed()

    def _health_changed(self) -> None:
        """What is wrong with GPUs has changed: it is told at once, and published soon."""
        self._telling.health_changed()
        self._recovering.changed()

    def _publish_failed(self) -> None:
        self._on.metrics.publish_error()
        self._telling.readiness.doubt()

    def _why_unpublished(self) -> str | None:
        """With a remedy, if the doctor knows one; else what the API server says of the slices."""
        failure = self._offering.publisher.failure
        said = f"ResourceSlices are not published: {failure}" if failure else None
        return diagnosis.hindrance(self._doctor()) or said

    def _doctor(self) -> Iterable[diagnosis.Finding]:
        return doctor_cluster.findings(
            self._config, partitions=False, gates=False, user_agent=self._user_agent
        )
