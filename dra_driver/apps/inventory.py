"""The GPUs of the node, looked at again and again: they, and their driver, come and go."""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters import sysfs
from dra_driver.model import devices

STOP_SECONDS = 10.0
"""How long a look that has begun may take when it is to stop; NVML may hang on a sick card."""


class Source(Protocol):
    """What can look for GPUs."""

    def discover(self) -> devices.Discovery:
        """The GPUs that are there now.

        Raises:
            errors.Retryable: the NVIDIA driver does not answer; the text says what to do.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """What was seen at one look.

    `offered` are the GPUs that can be handed out, by device name; `lost` are GPUs that were seen
    earlier and are not there now; `failures` tells of GPUs that do not answer. `problem` says why
    nothing could be seen at all.
    """

    offered: Mapping[str, devices.Gpu] = dataclasses.field(default_factory=dict)
    lost: Mapping[str, devices.Gpu] = dataclasses.field(default_factory=dict)
    failures: tuple[str, ...] = ()
    problem: str | None = None


class Inventory:
    """Looks every `interval` seconds, and when asked to; tells when what it sees has changed."""

    def __init__(
        self,
        source: Source,
        place: sysfs.Sysfs,
        *,
        interval: float,
        on_change: Callable[[], None],
    ) -> None:
        self._source = source
        self._place = place
        self._interval = interval
        self._on_change = on_change
        self._log = telemetry.logger("inventory")
        self._looking = threading.Lock()
        self._snapshot = Snapshot()
        self._first = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inventory", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def wait_first(self, seconds: float) -> bool:
        """Whether a first look is done within `seconds`."""
        return self._first.wait(seconds)

    @property
    def snapshot(self) -> Snapshot:
        """What was seen last."""
        return self._snapshot

    def look(self) -> Snapshot:
        """Look now."""
        with self._looking:
            before = self._snapshot
            after = self._see(before)
            if after != before or not self._first.is_set():
                self._snapshot = after
                self._tell(before, after)
                self._first.set()
                self._on_change()
        return after

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a thread that ends would see no GPU ever again
                self._log.exception("looking for GPUs failed unexpectedly")
            self._stop.wait(self._interval)

    def _see(self, before: Snapshot) -> Snapshot:
        known = {**before.lost, **before.offered}
        try:
            discovery = self._source.discover()
        except errors.Retryable as error:
            return Snapshot(lost=known, problem=str(error))
        offered = {
            devices.gpu_device_name(gpu.minor): self._place.located(gpu)
            for gpu in discovery.gpus
            # A card in MIG mode cannot run work as a whole.
            if not gpu.mig_enabled
        }
        there = {devices.gpu_device_name(gpu.minor) for gpu in discovery.gpus}
        lost = {name: gpu for name, gpu in known.items() if name not in there}
        return Snapshot(
            offered=offered,
            lost=lost,
            failures=tuple(str(failure) for failure in discovery.failures),
        )

    def _tell(self, before: Snapshot, after: Snapshot) -> None:
        if after.problem is not None:
            self._log.warning(
                "no GPU can be seen; looking again", reason=after.problem, seconds=self._interval
            )
        for failure in after.failures:
            self._log.warning("GPU does not answer", reason=failure)
        for name in sorted(after.offered.keys() - before.offered.keys()):
            gpu = after.offered[name]
            self._log.info("GPU found", device=name, model=gpu.product_name, uuid=gpu.uuid)
        for name in sorted(before.offered.keys() - after.offered.keys()):
            self._log.warning(
                "GPU is no longer offered", device=name, uuid=before.offered[name].uuid
            )
