"""A control loop: informers put keys into a queue, one thread looks at them."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.sim.cluster import work_queue

Key = TypeVar("Key")

STOP_SECONDS = 30.0
"""How long the key that is being looked at may still take."""


class Worker(Generic[Key]):
    """Runs `work` for each key of the queue once all informers have their first list.

    A key whose work fails comes back later; whatever goes wrong with one must not end the care for
    all others.
    """

    def __init__(
        self,
        name: str,
        queue: work_queue.WorkQueue[Key],
        informers: Sequence[informer.Informer],
        work: Callable[[Key], None],
    ) -> None:
        """Nothing is started."""
        self._queue = queue
        self._informers = informers
        self._work = work
        self._log = telemetry.logger(name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to watch and to work."""
        for item in self._informers:
            item.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop; the key that is being looked at is finished first."""
        self._queue.close()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_SECONDS)
        for item in self._informers:
            item.stop()

    def _run(self) -> None:
        for item in self._informers:
            while not item.wait_synced(1.0):
                if self._queue.closed:
                    return
        while (key := self._queue.get()) is not None:
            try:
                self._work(key)
            except (kube.ApiError, errors.Retryable) as error:
                self._log.info("tried again", key=str(key), reason=str(error))
                self._queue.failed(key)
            except Exception:  # noqa: BLE001 - see the class
                self._log.exception("failed", key=str(key))
                self._queue.failed(key)
            else:
                self._queue.succeeded(key)
