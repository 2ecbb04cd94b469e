"""Tells in the status of claims what became of their devices, behind the kubelet's back.

Nobody waits for it: a claim whose status cannot be written is prepared all the same. What it writes
is the driver's own entries alone, by server-side apply. To write a whole list back would touch the
entries of other drivers, which the API server refuses to a driver (Kubernetes 1.36, feature
DRAResourceClaimGranularStatusAuthorization).
"""

import dataclasses
import datetime as dt
import random
import threading
import time
from collections.abc import Callable, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.preparing import fetching
from dra_driver.logic.preparing import device_status
from dra_driver.model import backoff, claims

DeviceReport = device_status.DeviceReport

FIRST_BACKOFF = 0.1
LAST_BACKOFF = 30.0
"""Seconds between tries of one claim: first, and longest after doubling."""
SETTLING = 0.1
"""Seconds for which a report waits: until then calls of the kubelet have the API server, and this
process, to themselves, and what is reported meanwhile counts in its place."""
GIVEN_BACK_SETTLING = 2.0
"""Seconds for which it waits that a claim has no devices any more: most such claims are deleted or
deallocated until then, by which the API server removes what is told of them."""
CAPACITY = 1024
"""Claims that can wait. With more, the one that has waited longest is given up."""
STOP_SECONDS = 5.0
"""How long the end of the driver may be held up by what is still to be written."""

_UNPROCESSABLE = 422


@dataclasses.dataclass(slots=True)
class _Pending:
    ref: claims.ClaimRef
    reports: tuple[DeviceReport, ...]
    served: kube.Json | None
    tries: backoff.Backoff
    due: float


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class DeviceStatusWriter:
    """A thread that writes what is reported; of several reports of a claim, the last one."""

    def __init__(
        self,
        client: kube.Client,
        source: fetching.ApiClaims,
        driver_name: str,
        *,
        pool: str,
        now: Callable[[], str] = _now,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`pool` is that of the node's devices.

        `now` gives the time as RFC 3339 text, in UTC and seconds; `chance` spreads pauses.
        """
        self._client = client
        self._source = source
        self._driver_name = driver_name
        self._pool = pool
        self._now = now
        self._chance = chance
        self._log = telemetry.logger("device-status")
        self._lock = threading.Condition()
        self._pending: dict[str, _Pending] = {}
        self._writing = False
        self._end: float | None = None
        self._told: set[str] = set()
        # The newest claims that this thread has written, and the versions that they have since.
        self._written: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="device-status", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Try what is left once more, for at most `STOP_SECONDS`, and end."""
        with self._lock:
            self._end = time.monotonic() + STOP_SECONDS
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS + 1)

    def report(
        self,
        ref: claims.ClaimRef,
        reports: Sequence[DeviceReport],
        served: kube.Json | None = None,
    ) -> None:
        """Have it written that these are the claim's devices on this node; returns at once.

        With none, what was reported earlier is removed. `served` is the claim as it was read just
        now; without it, or when it has changed since, the claim is read.
        """
        if not ref.name:
            # A record that was rebuilt without the API: there is nothing to ask the API for.
            return
        oldest = None
        with self._lock:
            if self._end is not None:
                return
            earlier = self._pending.pop(ref.uid, None)
            schedule = backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF)
            tries = backoff.Backoff(schedule, self._chance)
            due = time.monotonic() + (SETTLING if reports else GIVEN_BACK_SETTLING)
            if earlier is not None:
                # One after the other they must not put it off for ever.
                due = min(due, earlier.due)
            self._pending[ref.uid] = _Pending(ref, tuple(reports), served, tries, due)
            if len(self._pending) > CAPACITY:
                oldest = self._pending.pop(next(iter(self._pending)))
            self._lock.notify_all()
        if oldest is not None:
            self._log.warning(
                "too many claims wait for their status; given up", claim=str(oldest.ref)
            )

    def wait_idle(self, seconds: float) -> bool:
        """Whether nothing is left to write within `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._pending and not self._writing, seconds)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                self._attempt(item)
            except Exception:  # noqa: BLE001 - a thread that ends would report nothing ever again
                self._log.exception("status of a claim failed unexpectedly", claim=str(item.ref))
            with self._lock:
                self._writing = False
                self._lock.notify_all()

    def _next(self) -> _Pending | None:
        """What to write next, once it is time; None when the driver ends."""
        with self._lock:
            while True:
                now = time.monotonic()
                if self._end is not None and (not self._pending or now >= self._end):
                    self._give_up()
                    return None
                ready = (
                    uid
                    for uid, item in self._pending.items()
                    if item.due <= now or self._end is not None
                )
                if (uid := next(ready, None)) is not None:
                    self._writing = True
                    return self._pending.pop(uid)
                first = min((item.due for item in self._pending.values()), default=None)
                self._lock.wait(None if first is None else first - now)

    def _give_up(self) -> None:
        for item in self._pending.values():
            self._log.warning("driver ends; status of a claim not written", claim=str(item.ref))
        self._pending.clear()

    def _attempt(self, item: _Pending) -> None:
        try:
            self._write(item)
        except kube.Conflict as error:
            # It has changed since it was read.
            self._again(item, error)
        except errors.Retryable as error:
            self._tell("away", "device status not written; trying again", reason=str(error))
            self._again(item, error)
        except kube.ApiError as error:
            self._refused(item, error)
        except errors.DriverError as error:
            self._log.warning("device status not written", claim=str(item.ref), reason=str(error))

    def _write(self, item: _Pending) -> None:
        body = self._current(item) or self._source.read(item.ref, self._deadline())
        if body is None or body["metadata"]["uid"] != item.ref.uid:
            return
        entries = device_status.wanted(
            body, self._driver_name, item.reports, pool=self._pool, now=self._now()
        )
        if entries is None:
            return
        answer = self._apply(body, device_status.application(body, entries))
        if answer is None:
            return
        self._remember(item.ref, answer)
        self._told.discard("away")
        if device_status.arrived(answer, self._driver_name, entries):
            self._told.clear()
        else:
            self._tell(
                "dropped",
                "the API server dropped what was reported of devices; going on without. Is the "
                "feature gate DRAResourceClaimDeviceStatus off?",
            )

    def _current(self, item: _Pending) -> kube.Json | None:
        """The claim as it came with the report, unless it is known to have changed since."""
        # What fails is tried with what is there then.
        served, item.served = item.served, None
        if served is None:
            return None
        version = served["metadata"]["resourceVersion"]
        return served if self._written.get(item.ref.uid, version) == version else None

    def _remember(self, ref: claims.ClaimRef, answer: kube.Json) -> None:
        self._written.pop(ref.uid, None)
        self._written[ref.uid] = answer["metadata"]["resourceVersion"]
        if len(self._written) > CAPACITY:
            del self._written[next(iter(self._written))]

    def _apply(self, body: kube.Json, applied: kube.Json) -> kube.Json | None:
        """The claim after the write; None where it is gone."""
        version = body["apiVersion"].rpartition("/")[2]
        metadata = body["metadata"]
        try:
            return self._client.apply(
                dataclasses.replace(kube.CLAIMS, version=version),
                applied,
                metadata["namespace"],
                manager=self._driver_name,
                subresource="status",
                timeout=max(self._deadline() - time.monotonic(), fetching.LAST_TRY),
            )
        except kube.NotFound:
            return None

    def _refused(self, item: _Pending, error: kube.ApiError) -> None:
        # Rights to parts of a status are checked late, as if they were a matter of form.
        late = error.status == _UNPROCESSABLE and "is forbidden" in error.message
        if isinstance(error, kube.Forbidden) or late:
            self._tell(
                "forbidden",
                "the driver may not report the status of devices; going on without. Apply the "
                "chart's roles anew: helm upgrade, or kubectl apply -f deploy/manifests",
                reason=str(error),
            )
        else:
            self._log.warning("device status refused", claim=str(item.ref), reason=str(error))

    def _again(self, item: _Pending, error: errors.DriverError) -> None:
        """Write it later, unless there is a later report by now, or the driver ends."""
        with self._lock:
            if self._end is not None:
                self._pending.setdefault(item.ref.uid, item)
                # What did not work once is not waited for.
                self._end = min(self._end, time.monotonic())
            elif item.ref.uid not in self._pending:
                item.due = time.monotonic() + item.tries.failed(error)
                self._pending[item.ref.uid] = item

    def _deadline(self) -> float:
        latest = time.monotonic() + kube.REQUEST_TIMEOUT
        with self._lock:
            return latest if self._end is None else min(self._end, latest)

    def _tell(self, what: str, event: str, **fields: str) -> None:
        """Say it, once until a write has worked."""
        if what not in self._told:
            self._told.add(what)
            self._log.warning(event, **fields)
