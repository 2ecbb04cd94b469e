"""The kubelet's calls: each claim of a call gets its own answer, and its own lines in the log."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dra_driver import errors, telemetry
from dra_driver.adapters import dra_grpc
from dra_driver.model import claims, prepared

if TYPE_CHECKING:
    # What prepares takes longer to load than the sockets may.
    from dra_driver.apps import refusals

PROBE = claims.ClaimRef("", "", claims.ClaimUid(""))
"""Asks whether calls are served, and nothing else; the kubelet's claims have a UID."""
MARGIN = 3.0
"""Seconds before the end of a call at which an answer is given, whatever it is: a late one is lost,
and the kubelet waits more than a minute before it asks again."""

STARTING = "the driver is starting"
LATE = "other claims of the call have taken all of its time; it is tried again with the next call"


class Service:
    """Answers prepare and unprepare. Calls that come before it is ready wait for that."""

    def __init__(
        self,
        metrics: telemetry.Metrics,
        told: Callable[[str | None], str | None] = lambda problem: problem,
    ) -> None:
        """`told` gives what a probe hears, of what keeps this instance from its work."""
        self._metrics = metrics
        self._told = told
        self._log = telemetry.logger("service")
        self._ready = threading.Event()
        self._turning = threading.Lock()
        self._is_over = False
        self._preparer: refusals.Preparer | None = None
        self._problem = STARTING
        self._hindrance: Callable[[], str | None] = lambda: None

    def waits_for(self, problem: str) -> None:
        """It is not ready yet, because of this."""
        self._problem = problem

    def ready(
        self, preparer: "refusals.Preparer", hindrance: Callable[[], str | None] = lambda: None
    ) -> None:
        """From now on `preparer` does the work, as well as it can with what `hindrance` tells."""
        self._hindrance = hindrance
        self._preparer = preparer
        self._ready.set()

    def starting(self) -> None:
        """It is not ready, or not any more: it is being started; nothing after it has failed."""
        with self._turning:
            self._preparer = None
            if not self._is_over:
                self._ready.clear()
                self._problem = STARTING

    def failed(self, problem: str) -> None:
        """It will not become ready; calls that wait for that are told why."""
        with self._turning:
            self._is_over = True
            self._problem = problem
            self._ready.set()

    def prepare(
        self, refs: Sequence[claims.ClaimRef], seconds: float
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """See `dra_grpc.Handler`."""
        return self._each("prepare", refs, seconds)

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], seconds: float
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """See `dra_grpc.Handler`."""
        return self._each("unprepare", refs, seconds)

    def _each(
        self, operation: str, refs: Sequence[claims.ClaimRef], seconds: float
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        seconds = max(seconds - MARGIN, 0)
        deadline = time.monotonic() + seconds
        preparer = self._preparer if self._ready.wait(seconds) else None
        if preparer is None:
            return {ref.uid: self._not_ready(ref) for ref in refs}
        answers: dict[claims.ClaimUid, dra_grpc.Answer] = {}
        for ref in refs:
            if ref == PROBE:
                answers[ref.uid] = self._probed()
                continue
            if time.monotonic() > deadline + MARGIN / 2:
                answers[ref.uid] = dra_grpc.Answer(error=LATE)
                continue
            with telemetry.bound(
                operation=operation,
                claim_namespace=ref.namespace,
                claim_name=ref.name,
                claim_uid=ref.uid,
            ):
                answers[ref.uid] = self._answer(operation, preparer, ref, deadline)
        return answers

    def hindrance(self) -> str | None:
        """What keeps it from its work; None if nothing does."""
        if self._preparer is None:
            return self._problem
        try:
            return self._hindrance()
        except Exception as error:  # noqa: BLE001 - a probe without an answer ends the container
            self._log.exception("probe failed unexpectedly")
            return f"probe failed unexpectedly: {type(error).__name__}: {error}"

    def _probed(self) -> dra_grpc.Answer:
        return dra_grpc.Answer(error=self._told(self.hindrance()) or "")

    def _not_ready(self, ref: claims.ClaimRef) -> dra_grpc.Answer:
        return self._probed() if ref == PROBE else dra_grpc.Answer(error=self._problem)

    def _answer(
        self, operation: str, preparer: "refusals.Preparer", ref: claims.ClaimRef, deadline: float
    ) -> dra_grpc.Answer:
        start = time.perf_counter()
        try:
            with self._metrics.call(operation):
                devices = _work(operation, preparer, ref, deadline - time.monotonic())
        except errors.DriverError as error:
            self._log.warning(f"{operation} failed", reason=str(error))
            return dra_grpc.Answer(error=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other claims go on
            # The kubelet must get an answer for each claim, and a person must get the trace.
            self._log.exception(f"{operation} failed unexpectedly")
            return dra_grpc.Answer(
                error=f"{operation} failed unexpectedly: {type(error).__name__}: {error}. "
                "The driver's log has the details"
            )
        self._log.info(
            f"{operation} done",
            devices=[device.device for device in devices],
            ms=round((time.perf_counter() - start) * 1000, 1),
        )
        return dra_grpc.Answer(devices=devices)


def _work(
    operation: str, preparer: "refusals.Preparer", ref: claims.ClaimRef, seconds: float
) -> tuple[prepared.PreparedDevice, ...]:
    if operation == "prepare":
        return preparer.prepare(ref, seconds)
    preparer.unprepare(ref, seconds)
    return ()
