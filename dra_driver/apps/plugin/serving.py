"""The kubelet's calls: each claim of a call gets its own answer, and its own lines in the log."""

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dra_driver import errors, telemetry
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.adapters.system import patience
from dra_driver.apps.preparing import turns
from dra_driver.model import claims, prepared, texts

if TYPE_CHECKING:
    # What prepares takes longer to load than the sockets may.
    from dra_driver.apps.preparing import refusals

PROBE = claims.ClaimRef("", "", claims.ClaimUid(""))
"""Asks whether calls are served, and nothing else; the kubelet's claims have a UID."""
MARGIN = 3.0
"""Seconds before the end of a call at which an answer is given, whatever it is: a late one is lost,
and the kubelet waits more than a minute before it asks again."""

AT_ONCE = 8
"""Claims of one call that are served at once."""

STARTING = "the driver is starting"
GIVEN_UP = "the kubelet does not wait for the answer any more"
_MOST_CAUSE = 1024
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
        self.calls = turns.Turns()
        """Of the kubelet, that are there now."""
        self._turning = threading.Condition()
        self._is_ready = False
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
        with self._turning:
            self._hindrance = hindrance
            self._preparer = preparer
            self._is_ready = True
            self._turning.notify_all()

    def starting(self) -> None:
        """It is not ready, or not any more: it is being started; nothing after it has failed."""
        with self._turning:
            self._preparer = None
            if not self._is_over:
                self._is_ready = False
                self._problem = STARTING

    def failed(self, problem: str) -> None:
        """It will not become ready; calls that wait for that are told why."""
        with self._turning:
            self._is_over = True
            self._is_ready = True
            self._problem = problem
            self._turning.notify_all()

    def prepare(
        self, refs: Sequence[claims.ClaimRef], caller: dra_grpc.Caller
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """See `dra_grpc.Handler`."""
        return self._each("prepare", turns.Kind.PREPARE, refs, caller)

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], caller: dra_grpc.Caller
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """See `dra_grpc.Handler`."""
        return self._each("unprepare", turns.Kind.UNPREPARE, refs, caller)

    def _each(
        self,
        operation: str,
        kind: turns.Kind,
        refs: Sequence[claims.ClaimRef],
        caller: dra_grpc.Caller,
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        seconds = max(caller.seconds - MARGIN, 0)
        waiting = {ref: patience.Patience(seconds) for ref in refs}
        if not refs:
            self._await_start(patience.Patience(seconds))

        def end() -> None:
            for one in waiting.values():
                one.end(GIVEN_UP)

        with contextlib.ExitStack() as call:
            places = {ref: call.enter_context(contextlib.ExitStack()) for ref in waiting}
            # All of them have come now, whenever they are served.
            come = {ref: self._arrive(places[ref], ref, kind, waiting[ref]) for ref in waiting}
            caller.when_gone(end)

            def serve(ref: claims.ClaimRef) -> dra_grpc.Answer:
                with places[ref]:
                    return self._answer(operation, ref, come[ref], waiting[ref])

            return {ref.uid: answer for ref, answer in _each_of(serve, waiting)}

    def _arrive(
        self,
        place: contextlib.ExitStack,
        ref: claims.ClaimRef,
        kind: turns.Kind,
        waiting: patience.Patience,
    ) -> turns.Turn | errors.Retryable:
        """The call's turn, which `place` keeps; or why it has none."""
        try:
            return place.enter_context(self.calls.arrive(ref.uid, kind, waiting))
        except errors.Retryable as error:
            return error

    def _answer(
        self,
        operation: str,
        ref: claims.ClaimRef,
        turn: turns.Turn | errors.Retryable,
        waiting: patience.Patience,
    ) -> dra_grpc.Answer:
        if ref == PROBE:
            self._await_start(waiting)
            return dra_grpc.Answer(error=self._told(self.hindrance()) or "")
        with telemetry.bound(
            operation=operation,
            claim_namespace=ref.namespace,
            claim_name=ref.name,
            claim_uid=ref.uid,
        ):
            return self._done(operation, ref, turn, waiting)

    def _await_start(self, waiting: patience.Patience) -> None:
        with contextlib.suppress(errors.Abandoned):
            waiting.wait_for(self._turning, lambda: self._is_ready)

    def _awaited(self, waiting: patience.Patience) -> "refusals.Preparer":
        """The preparer, once it is ready.

        Raises:
            errors.Retryable: it will not be, or not in time.
            errors.Abandoned: nobody waits for it any more.
        """
        self._await_start(waiting)
        preparer = self._preparer
        if preparer is None:
            waiting.check()
            raise errors.Retryable(self._problem)
        return preparer

    def hindrance(self) -> str | None:
        """What keeps it from its work; None if nothing does."""
        if self._preparer is None:
            return self._problem
        try:
            return self._hindrance()
        except Exception as error:  # noqa: BLE001 - a probe without an answer ends the container
            self._log.exception("probe failed unexpectedly")
            return f"probe failed unexpectedly: {type(error).__name__}: {error}"

    def _done(
        self,
        operation: str,
        ref: claims.ClaimRef,
        turn: turns.Turn | errors.Retryable,
        waiting: patience.Patience,
    ) -> dra_grpc.Answer:
        start = time.perf_counter()
        try:
            with self._metrics.call(operation):
                devices = self._work(operation, ref, turn, waiting)
        except errors.DriverError as error:
            self._log.warning(f"{operation} failed", reason=str(error))
            return _refused(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other claims go on
            # The kubelet must get an answer for each claim, and a person must get the trace.
            self._log.exception(f"{operation} failed unexpectedly")
            cause = texts.capped(f"{type(error).__name__}: {error}", _MOST_CAUSE)
            return _refused(
                f"{operation} failed unexpectedly: {cause}. The driver's log has the details"
            )
        self._log.info(
            f"{operation} done",
            devices=[device.device for device in devices],
            ms=round((time.perf_counter() - start) * 1000, 1),
        )
        return dra_grpc.Answer(devices=devices)

    def _work(
        self,
        operation: str,
        ref: claims.ClaimRef,
        turn: turns.Turn | errors.Retryable,
        waiting: patience.Patience,
    ) -> tuple[prepared.PreparedDevice, ...]:
        if isinstance(turn, errors.Retryable):
            raise turn
        preparer = self._awaited(waiting)
        if time.monotonic() > waiting.deadline + MARGIN / 2:
            raise errors.Retryable(LATE)
        if operation == "prepare":
            return preparer.prepare(ref, turn)
        preparer.unprepare(ref, turn)
        return ()


def _refused(reason: str) -> dra_grpc.Answer:
    """The kubelet makes an event of the pod of it, again with every try."""
    return dra_grpc.Answer(error=texts.told(reason))


def _each_of(
    serve: Callable[[claims.ClaimRef], dra_grpc.Answer], refs: Collection[claims.ClaimRef]
) -> "Iterable[tuple[claims.ClaimRef, dra_grpc.Answer]]":
    """The answers, of several at once: one that has to wait must not hold up the others."""
    if len(refs) <= 1:
        return [(ref, serve(ref)) for ref in refs]
    with concurrent.futures.ThreadPoolExecutor(
        min(len(refs), AT_ONCE), thread_name_prefix="claims of one call"
    ) as workers:
        return list(zip(refs, workers.map(serve, refs), strict=True))
