"""What GPUs the cluster has, for pods that ask for parts of them: read when a pod wants it."""

import threading
import time
from collections.abc import Callable

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube, kube_reducing
from dra_driver.logic.converting import fleet, fleet_slices
from dra_driver.model import slices


class _Reading:
    """One look at the slices, in a thread of its own; several may wait for it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: fleet.Fleet | None = None
        self.error = ""


class Fleets:
    """Reads the driver's slices page by page, and keeps what it found for a while.

    A large cluster has more of them than are read within the time that a review has: who asks waits
    for as long as it can, and the reading goes on without it.
    """

    def __init__(
        self,
        client: kube.Client,
        driver: str,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """What was read is good for `seconds`."""
        self._client = client
        self._driver = driver
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._reading: _Reading | None = None
        self._known: fleet.Fleet | None = None
        self._read_at = 0.0
        self._log = telemetry.logger("fleet")

    def get(self, seconds: float) -> fleet.Fleet:
        """The fleet, waited for so long; while it is read anew for longer, as it was before.

        Raises:
            errors.Retryable: it cannot be read, or has not been yet.
        """
        with self._lock:
            known = self._known
            if known is not None and self._clock() - self._read_at < self._seconds:
                return known
            reading = self._reading or self._begin()
        if not reading.done.wait(seconds):
            if known is not None:
                return known
            raise errors.Retryable("the ResourceSlices are still being read; try again")
        if reading.found is None:
            raise errors.Retryable(reading.error)
        return reading.found

    def _begin(self) -> _Reading:
        self._reading = reading = _Reading()
        threading.Thread(target=self._read, args=(reading,), name="fleet", daemon=True).start()
        return reading

    def _read(self, reading: _Reading) -> None:
        try:
            found = kube_reducing.reduced(
                self._client,
                kube.SLICES,
                lambda body: fleet_slices.of_slice(slices.parse(body)),
                field_selector=f"spec.driver={self._driver}",
            )
            reading.found = fleet_slices.together(found)
        except kube.NotFound as error:
            reading.error = f"the API server does not serve resource.k8s.io/v1: {error}"
        except Exception as error:  # noqa: BLE001 - whoever waits for it has to be told
            expected = isinstance(error, errors.DriverError)
            reading.error = str(error) if expected else f"{type(error).__name__}: {error}"
        with self._lock:
            self._reading = None
            if reading.found is not None:
                self._known, self._read_at = reading.found, self._clock()
        if reading.error:
            self._log.warning("slices could not be read", reason=reading.error)
        reading.done.set()
