"""The part of the kubelet plugin that works once the sockets answer: state, GPUs, API.

It is imported after the sockets are open: what it needs takes longer to load than the kubelet
should wait for them.
"""

import dataclasses
import pathlib
import threading
from collections.abc import Callable, Sequence

from dra_driver import errors, settings, telemetry
from dra_driver.adapters import files, instances, kube, locks, records, sysfs
from dra_driver.apps import fetching, inventory, preparing, publishing, recovering
from dra_driver.logic import offering, planning
from dra_driver.model import slices

WAIT_FOR_GPUS = 20.0
"""Seconds that a first look at the GPUs may take before calls are answered without it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Hardware:
    """The node's GPUs: real ones, or simulated."""

    source: inventory.Source
    place: sysfs.Sysfs
    injector: preparing.Injector


class NodeAgent:
    """Recovers, discovers, prepares and publishes."""

    def __init__(
        self,
        config: settings.KubeletPlugin,
        hardware: Hardware,
        metrics: telemetry.Metrics,
        *,
        user_agent: str,
    ) -> None:
        """Nothing is started, but the state directory is opened.

        Raises:
            errors.Fatal: the API server's address or credentials are not to be had.
        """
        self._config = config
        self._metrics = metrics
        self._stop = threading.Event()
        self._log = telemetry.logger("agent")
        self._client = kube.Client(kubeconfig=config.kubeconfig, user_agent=user_agent)
        self._instances = instances.Instances(config.state)
        self._store = preparing.Store(
            records=records.Records(config.state / "claims"),
            cdi_dir=config.cdi_dir,
            locks=locks.Locks(config.state / "locks"),
            boot_id=_boot_id(config.boot_id_file),
        )
        self._gpus = inventory.Inventory(
            hardware.source,
            hardware.place,
            interval=config.rescan_seconds,
            on_change=self._changed,
        )
        self._publisher = publishing.Publisher(
            self._client,
            publishing.Identity(config.driver_name, config.node_name),
            wanted=self._wanted,
            may_publish=self._instances.is_newest,
            on_error=metrics.publish_error,
        )
        self._claims = fetching.ApiClaims(self._client, self._stop)
        self._node = planning.Node(config.driver_name, pool=config.node_name)
        self._preparer = preparing.Preparer(
            self._node,
            self._store,
            self._claims,
            self._gpus,
            hardware.injector,
            stopping=self._stop,
            on_change=self._changed,
        )

    def start(self, ready: Callable[[preparing.Preparer], None]) -> None:
        """Start everything, in order; `ready` is called when claims can be prepared."""
        self._gpus.start()
        recovering.Recovery(self._node, self._store, claim_list=self._claims.everywhere).run()
        self._gpus.wait_first(WAIT_FOR_GPUS)
        ready(self._preparer)
        self._publisher.start()
        self._changed()

    def stop(self) -> None:
        """Stop everything. Slices, CDI specs and records stay."""
        self._stop.set()
        self._publisher.stop()
        self._gpus.stop()
        self._instances.close()
        self._client.close()

    def _changed(self) -> None:
        """What is prepared, or what is there, may have changed."""
        known = self._store.records.contents().records.values()
        self._metrics.prepared(sum(len(record.devices) for record in known))
        self._publisher.changed()

    def _wanted(self, published: Sequence[slices.Device]) -> list[slices.Device] | None:
        if not self._gpus.wait_first(0):
            return None
        snapshot = self._gpus.snapshot
        held = {
            device.device
            for record in self._store.records.contents().records.values()
            for device in record.devices
        }
        return offering.offer(
            snapshot.offered,
            snapshot.lost,
            held,
            published,
            driver_name=self._config.driver_name,
        )


def _boot_id(path: pathlib.Path) -> str:
    text = files.read(path)
    if text is None or not text.strip():
        raise errors.Fatal(
            f"boot id file {path} is absent or empty: is /proc mounted? See --boot-id-file"
        )
    return text.strip()
