"""Tells by a condition of the Node whether a GPU needs a reboot of the node."""

import random
import time
from collections.abc import Callable

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import workers
from dra_driver.apps.health import card_health
from dra_driver.apps.offering import inventory
from dra_driver.apps.telling import health_events
from dra_driver.logic.health import conditions, node_condition
from dra_driver.model import backoff

FIRST_BACKOFF, LAST_BACKOFF = 0.5, 60.0
"""Seconds between tries: first, and longest after doubling."""


class NodeCondition:
    """A thread that writes it when it changes, and now and then as a sign of life.

    Who drains and reboots is somebody else.
    """

    def __init__(
        self,
        client: kube.Client,
        node: str,
        kind: str,
        gpus: inventory.Inventory,
        health: Callable[[], conditions.View],
        *,
        may_tell: Callable[[], bool] = lambda: True,
        heartbeat: float = node_condition.HEARTBEAT,
    ) -> None:
        """`kind` is the type of the condition. Of two instances of the driver the newer `may_tell`.

        `heartbeat` seconds are between two signs of life.
        """
        self._client = client
        self._node = node
        self._kind = kind
        self._gpus = gpus
        self._health = health
        self._may_tell = may_tell
        self._heartbeat = heartbeat
        self._tries = backoff.Backoff(backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF), random.random)
        self._beat_at = float("-inf")
        self._is_complained = False
        self._log = telemetry.logger("node-condition")
        self._worker = workers.Worker("node-condition", self._run)

    def start(self) -> None:
        """Begin to tell."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; the condition stays as it is."""
        self._worker.end()

    def changed(self) -> None:
        """What is wrong may have changed."""
        self._worker.wake()

    def _run(self) -> None:
        written: dict[str, str] | None = None
        while not self._worker.is_ending():
            self._worker.heed()
            if not self._may_tell():
                self._worker.rest(health_events.ASIDE)
                continue
            wanted = node_condition.wanted(
                self._kind, self._health(), health_events.places(self._gpus.snapshot)
            )
            is_due = time.monotonic() - self._beat_at >= self._heartbeat
            if wanted == written and not is_due:
                self._worker.rest(self._heartbeat - (time.monotonic() - self._beat_at))
                continue
            try:
                self._write(wanted, beat=is_due)
            except errors.DriverError as error:
                self._failed(error)
            except Exception:  # noqa: BLE001 - a thread that ends would tell nothing ever again
                self._log.exception("the condition of the node failed unexpectedly")
                self._worker.pause(LAST_BACKOFF)
            else:
                written = wanted
                self._tries.worked()
                self._is_complained = False

    def _write(self, wanted: dict[str, str], *, beat: bool) -> None:
        """Write it where the Node has it otherwise.

        Raises:
            errors.DriverError: the API server does not answer, or refuses.
        """
        node = self._client.get(kube.NODES, self._node)
        now = card_health.now().text
        patch = node_condition.patch(node, wanted, now, beat=beat)
        if patch is not None:
            self._client.patch(
                kube.NODES,
                self._node,
                patch,
                subresource="status",
                kind=kube.STRATEGIC_PATCH,
            )
            self._beat_at = time.monotonic()

    def _failed(self, error: errors.DriverError) -> None:
        if not self._is_complained:
            self._is_complained = True
            self._log.warning(
                "the condition of the node is not written; trying again. Where the right to it is "
                "missing, apply the chart with settings.rebootCondition",
                condition=self._kind,
                reason=str(error),
            )
        self._worker.pause(self._tries.failed(error))
