"""The part of the kubelet plugin that works once the sockets answer: state, GPUs, API.

It is imported after the sockets are open: what it needs takes longer to load than the kubelet
should wait for them.
"""

import functools
import pathlib
import threading
from collections.abc import Callable, Iterable

from dra_driver import settings, telemetry
from dra_driver.adapters.disk import ledgers, records
from dra_driver.adapters.kube import kube
from dra_driver.adapters.nvml import nvml_compute, nvml_mig
from dra_driver.adapters.system import boots, instances, locks, patience, processes
from dra_driver.apps.doctor import doctor_cluster
from dra_driver.apps.effects import partitioning, sharing
from dra_driver.apps.mps import mps_pods, mps_sweeping
from dra_driver.apps.node import host, time_slice_probe
from dra_driver.apps.offering import inventory, names, offers, per_gpu, publishing
from dra_driver.apps.preparing import attempts, fetching, preparing, refusals, turns
from dra_driver.apps.telling import (
    announcing,
    device_status,
    directory_watch,
    mps_health,
    readiness,
)
from dra_driver.apps.upkeep import (
    card_upkeep,
    describing,
    device_users,
    mending,
    orphans,
    reconciling,
    recovering,
    restoring,
    upkeep,
)
from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.preparing import planning
from dra_driver.model import claims, prepared, quantities

WAIT_FOR_GPUS = 20.0
"""Seconds that a first look at the GPUs may take before calls are answered without it."""
UNPREPARE_SECONDS = 45.0
"""Seconds that it may take to unprepare a claim that the kubelet forgot."""


class NodeAgent:
    """Recovers, discovers, prepares and publishes."""

    def __init__(
        self,
        config: settings.KubeletPlugin,
        hardware: host.Hardware,
        metrics: telemetry.Metrics,
        *,
        on_health: announcing.OnHealth = lambda _: None,
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
        self._metrics = metrics
        self._turns = calls or turns.Turns()
        self._stop = threading.Event()
        self._is_ready = False
        self._log = telemetry.logger("agent")
        self._client = kube.Client(kubeconfig=config.kubeconfig, user_agent=user_agent)
        boot_id = boots.current(config.boot_id_file)
        self._books = ledgers.Ledgers(config.state / "gpus", boot_id=boot_id)
        self._store = attempts.Store(
            records=records.Records(config.state / "claims"),
            cdi_dir=config.cdi_dir,
            locks=locks.Locks(config.state / "locks"),
            boot_id=boot_id,
        )
        self._names = names.of_node(config, self._client, self._store.locks, self._store.records)
        self._gpus = self._make_inventory(hardware)
        self._instance: instances.Instances | None = None
        self._offers = self._make_offers()
        self._publisher = self._make_publisher()
        self._readiness = readiness.Readiness(
            self._gpus,
            missing=hardware.missing,
            published=lambda: self._publisher.wait_published(0) or not self._is_newest(),
            ask=self._why_unpublished,
            vanished=directory_watch.DirectoryWatch(config).trouble,
            refusal=lambda: self._publisher.refusal,
            left_out=lambda: self._publisher.left_out,
        )
        metrics.published_if(lambda: self._publisher.wait_published(0))
        metrics.refused_are(lambda: len(self._publisher.left_out))
        self._claims = fetching.ApiClaims(self._client, self._stop)
        self._statuses = device_status.DeviceStatusWriter(
            self._client, self._claims, config.driver_name
        )
        self._announcer = announcing.Announcer(
            self._gpus,
            self._store.records,
            self._statuses,
            metrics,
            on_health,
            daemons=lambda: self._health,
        )
        self._node = planning.Node(config.driver_name, pool=config.node_name)
        self._sweeper: mps_sweeping.Sweeper | None = None
        launcher = self._launcher(hardware)
        self._effects = self._make_effects(hardware, launcher)
        self._card_upkeep = self._make_card_upkeep()
        self._health = self._make_health(launcher)
        self._preparer = self._make_preparer()
        self._mender = mending.Mender(self._node, self._store, self._gpus.current)
        self._users = device_users.DeviceUsers(
            nvml_mig.MigNvml(hardware.nvml),
            self._gpus,
            processes.Processes(config.proc_root).describe,
        )
        self._orphans = self._make_orphans()
        self._reconciler = self._make_reconciler()
        self._restorer = restoring.Restorer(
            self._node,
            self._store,
            self._gpus,
            self._effects,
            leaving=self._preparer.leaving,
        )
        self._upkeep = self._make_upkeep()
        metrics.stale_claims(lambda: self._reconciler.kept)

    @property
    def serves(self) -> bool:
        """Whether it publishes, unless a newer instance does."""
        return self._instance is not None

    def serve(self) -> None:
        """From now on it publishes, as long as it is the newest instance that does."""
        if self._instance is None:
            self._instance = instances.Instances(self._config.state)
            self._publisher.changed()

    def has_others(self) -> bool:
        """Whether another instance is alive that publishes, or would."""
        return self._instance is not None and self._instance.has_others()

    def lacks(self) -> str | None:
        """What would keep it from publishing, as the API server tells now."""
        return diagnosis.hindrance(self._doctor())

    def start(self, ready: Callable[[refusals.Preparer], None]) -> None:
        """Start everything, in order; `ready` is called when claims can be prepared."""
        self._announcer.start()
        self._gpus.start()
        self._gpus.wait_first(WAIT_FOR_GPUS)
        recovering.Recovery(
            self._store,
            self._mender,
            functools.partial(self._claims.concerning, self._node),
        ).run()
        self._books.drop_earlier_boots()
        self._restorer.look()
        self._orphans.remove_daemons()
        self._orphans.settle()
        self._card_upkeep.look()
        # What was not reported before the last stop; nothing is written that is there already.
        # Before the first call, whose report is the later one then.
        for record in self._announcer.known():
            if record.phase is prepared.Phase.COMPLETED:
                self._announcer.tell_prepared(record)
        self._is_ready = True
        ready(refusals.Told(self._preparer, self._store.records, self._statuses.report))
        self._statuses.start()
        self._health.start()
        if self._sweeper is not None:
            self._sweeper.start()
        self._publisher.start()
        self._readiness.start()
        self._reconciler.start()
        self._upkeep.start()
        self._changed()

    def hindrance(self) -> str | None:
        """What is waited for, so that claims can be prepared and devices are offered."""
        return self._readiness.hindrance()

    def stop(self) -> None:
        """Stop everything. Slices, CDI specs and records stay."""
        self._stop.set()
        self._readiness.stop()
        self._upkeep.stop()
        self._reconciler.stop()
        self._health.stop()
        if self._sweeper is not None:
            self._sweeper.stop()
        self._publisher.stop()
        self._offers.stop()
        self._gpus.stop()
        self._announcer.stop()
        self._statuses.stop()
        if self._instance is not None:
            self._instance.close()
        self._client.close()
        if not self._is_ready:
            # Nobody holds one, and the process may make another agent.
            self._store.locks.close()

    def _changed(self) -> None:
        """What is prepared, or what is there, may have changed."""
        self._announcer.changed()
        self._publisher.changed()
        self._readiness.changed()

    def _publish_failed(self) -> None:
        self._metrics.publish_error()
        self._readiness.doubt()

    def _why_unpublished(self) -> str | None:
        """With a remedy, if the doctor knows one; else what the API server says of the slices."""
        failure = self._publisher.failure
        said = f"ResourceSlices are not published: {failure}" if failure else None
        return diagnosis.hindrance(self._doctor()) or said

    def _doctor(self) -> Iterable[diagnosis.Finding]:
        return doctor_cluster.findings(
            self._config, partitions=False, gates=False, user_agent=self._user_agent
        )

    def _is_newest(self) -> bool:
        return self._instance is not None and self._instance.is_newest()

    @property
    def _mps_dir(self) -> pathlib.Path:
        return self._config.state / "mps"

    def _make_inventory(self, hardware: host.Hardware) -> inventory.Inventory:
        config = self._config
        looking = inventory.Looking(
            hardware.nvml,
            hardware.place,
            self._books,
            per_gpu.mig_mode(config),
            per_gpu.division(config),
            time_slice_probe.Probe(hardware.with_time_slices).filled,
            self._names.named,
            is_busy=self._store.locks.is_held,
        )
        return inventory.Inventory(looking, interval=config.rescan_seconds, on_change=self._changed)

    def _make_offers(self) -> offers.Offers:
        config = self._config
        return offers.Offers(
            self._gpus,
            self._store.records,
            driver_name=config.driver_name,
            policy=config.packing,
            seconds=config.repacking_seconds,
            later=lambda: self._publisher.changed(),  # noqa: PLW0108 - it is made after this
        )

    def _make_publisher(self) -> publishing.Publisher:
        return publishing.Publisher(
            self._client,
            publishing.Identity(self._config.driver_name, self._config.node_name),
            wanted=self._offers.wanted,
            may_publish=self._is_newest,
            on_error=self._publish_failed,
        )

    def _make_card_upkeep(self) -> card_upkeep.CardUpkeep:
        return card_upkeep.CardUpkeep(
            lambda: [card.gpu for card in self._gpus.snapshot.cards],
            self._store.records,
            self._store.locks,
            self._effects.sharer.cards,
        )

    def _make_health(self, launcher: sharing.Launcher) -> mps_health.Health:
        return mps_health.Health(
            self._store.records,
            self._store.locks,
            launcher,
            self._mps_dir,
            on_change=self._announcer.tell_down,
            keep=self._card_upkeep.look,
        )

    def _make_reconciler(self) -> reconciling.Reconciler:
        return reconciling.Reconciler(
            self._node,
            self._store.records,
            self._claims,
            self._unprepare,
            reconciling.Several(self._orphans, self._names),
            self._users,
            boot_id=self._store.boot_id,
        )

    def _make_effects(
        self, hardware: host.Hardware, launcher: sharing.Launcher
    ) -> attempts.Effects:
        partitioner = partitioning.Partitioner(
            nvml_mig.MigNvml(hardware.nvml),
            self._books,
            processes.Processes(self._config.proc_root).describe,
        )
        tools = sharing.Tools(
            hardware.nvidia_smi,
            nvml_compute.ComputeModes(hardware.nvml),
            launcher,
            self._mps_dir,
            quantities.parse(self._config.mps_shm_size).value,
        )
        return attempts.Effects(hardware.injector, partitioner, sharing.Sharer(tools, self._books))

    def _make_preparer(self) -> preparing.Preparer:
        return preparing.Preparer(
            self._node,
            self._store,
            self._claims,
            self._gpus,
            self._effects,
            stopping=self._stop,
            on_change=self._changed,
            on_prepared=self._announcer.tell_prepared,
        )

    def _make_orphans(self) -> orphans.Orphans:
        return orphans.Orphans(
            self._gpus,
            self._store,
            self._books,
            self._effects,
            self._mender,
            self._users,
            adopt=self._config.adopt_foreign_mig,
            on_change=self._changed,
        )

    def _make_upkeep(self) -> upkeep.Upkeep:
        sharer, leaving = self._effects.sharer, self._preparer.leaving
        describer = describing.Describer(
            self._store, self._gpus, sharer, self._mps_dir, leaving=leaving
        )
        return upkeep.Upkeep(
            often=[self._mender.mend, self._restorer.look, describer.look, self._clear_dead],
            seldom=[
                self._mender.clear_leftovers,
                self._orphans.settle,
                self._orphans.remove_daemons,
            ],
        )

    def _clear_dead(self) -> None:
        if self._instance is not None:
            self._instance.clear_dead()

    def _launcher(self, hardware: host.Hardware) -> sharing.Launcher:
        if self._config.mps_launcher == "pod":
            made = mps_pods.launcher(self._config, self._client, hardware.driver, hardware.launcher)
            self._sweeper = made.sweeper
            return made
        return hardware.launcher

    def _unprepare(self, ref: claims.ClaimRef, only_if: Callable[[], bool]) -> None:
        waiting = patience.Patience(UNPREPARE_SECONDS)
        with self._turns.arrive(ref.uid, turns.Kind.SWEEP, waiting) as turn:
            self._preparer.unprepare(ref, turn, only_if)
