"""The kubelet's view of device health: what drivers tell in their streams, and for how long it
holds.

Unlike the kubelet's it is not kept on disk. Source: Kubernetes 1.36 and 1.37,
`pkg/kubelet/cm/dra/healthinfo.go`, `pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go`.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable

from dra_driver import errors, telemetry
from dra_driver.adapters.kubelet import dra_client, dra_health
from dra_driver.sim.cluster import kubelet_release

HOLDS_SECONDS = 30.0
"""Until a device that is not told of again is Unknown, unless the driver says how long."""
RETRY_SECONDS = 5.0
"""Until a stream that ended, or is not served, is opened again."""

UNKNOWN = "Unknown"
_Key = tuple[str, str]
"""Pool and device."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    told: dra_health.Told
    until: float


class Cache:
    """The last that each driver told of its devices. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known."""
        self._clock = clock
        self._lock = threading.Lock()
        self._by_driver: dict[str, dict[_Key, _Known]] = {}

    def update(self, driver: str, told: Iterable[dra_health.Told]) -> bool:
        """What the driver tells now; what it leaves out stays until its time is over.

        Whether that changes what is known of any device.
        """
        now = self._clock()
        with self._lock:
            before = self._by_driver.get(driver, {})
            after = {key: known for key, known in before.items() if now <= known.until}
            changed = len(after) != len(before)
            for one in told:
                key = one.pool, one.device
                changed |= key not in before or before[key].told != one
                seconds = one.timeout_seconds if one.timeout_seconds > 0 else HOLDS_SECONDS
                after[key] = _Known(one, now + seconds)
            self._by_driver[driver] = after
        return changed

    def clear(self, driver: str) -> bool:
        """Nothing is known of the driver's devices any more; whether anything was."""
        with self._lock:
            return bool(self._by_driver.pop(driver, None))

    def health(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """`Healthy`, `Unhealthy` or `Unknown`, and the driver's words for it."""
        with self._lock:
            known = self._by_driver.get(driver, {}).get((pool, device))
        if known is None or self._clock() > known.until:
            return UNKNOWN, ""
        return known.told.health, known.told.message


class Watch:
    """One plugin's stream, read by a thread of its own until it is stopped."""

    def __init__(self, open_stream: Callable[[], None]) -> None:
        """`open_stream` returns when the stream has ended."""
        self._open = open_stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="device-health", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more streams; one that is open ends with the connection of its client."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._open()
            self._stop.wait(RETRY_SECONDS)


class Health:
    """Reads the streams of all plugins of a node into one cache."""

    def __init__(
        self,
        *,
        on_change: Callable[[], None],
        behaviour: kubelet_release.Behaviour = kubelet_release.FIXED,
    ) -> None:
        """`on_change` is called whenever something else is known of a device."""
        self.cache = Cache()
        self._on_change = on_change
        self._behaviour = behaviour
        self._log = telemetry.logger("kubelet")

    def watch(
        self, driver: str, client: dra_client.Client, advertised: tuple[str, ...]
    ) -> Watch | None:
        """Begin to read the stream of a plugin; None where it is not asked for."""
        service = self._behaviour.health_service(advertised)
        if service is None:
            return None
        return Watch(lambda: self._read(driver, client, service))

    def _read(self, driver: str, client: dra_client.Client, service: str) -> None:
        try:
            for told in client.watch_health(service):
                if self.cache.update(driver, told):
                    self._on_change()
        except errors.Retryable as error:
            self._log.debug("no device health", driver=driver, reason=str(error))
        if self.cache.clear(driver):
            self._on_change()
