"""Listens to the events of the node's GPUs, for as long as the plugin runs."""

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.nvml import nvml, nvml_events
from dra_driver.adapters.system import workers
from dra_driver.model import backoff, devices, health

SLICE = 0.2
"""Seconds for which NVML waits at a time: an end, or a pause, waits that long at most."""
FIRST_PAUSE, LAST_PAUSE = 0.2, 30.0
"""Seconds until the next try after a failure: first, and longest after doubling."""
IDLE = 1.0
"""Seconds between looks whether there is a GPU to listen to."""
TOLD_AGAIN = 60.0
"""Seconds between two log lines about a set that keeps failing."""
_TRIES_TO_SEE = 3
"""Looks in a row at a bus that has changed: others hold NVML at times."""
_LATER_TRIES = 10
"""Looks after that, each `LAST_PAUSE` after the last: a driver takes its time with a new card."""


_NO_BUS = object()


class Ears(Protocol):
    """Who is told what is heard."""

    def heard(self, event: health.Event) -> None:
        """The driver has told something; it must not take long."""

    def unwatched(self, gpus: Mapping[devices.GpuUuid, str]) -> None:
        """From now on these GPUs, and no others, are not listened to, for these reasons."""


class EventWatch:
    """A thread that waits for events. It outlives drivers, GPUs and whatever NVML says.

    NVML is held open meanwhile, so that GPUs that come are seen by nobody in this process. What
    the bus has is looked at again and again for that: when it changes, NVML is closed, all GPUs are
    looked for, and it is opened anew.
    """

    def __init__(
        self,
        nvml_: nvml.Nvml,
        wanted: Callable[[], Collection[devices.GpuUuid]],
        ears: Ears,
        *,
        bus: Callable[[], object],
        look: Callable[[], object],
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        """`wanted` are the GPUs to listen to; `bus` tells cheaply which the bus has.

        `look` looks for GPUs, with NVML closed. It may raise errors.Retryable.
        """
        self._nvml = nvml_
        self._wanted = wanted
        self._ears = ears
        self._bus = bus
        self._look = look
        schedule = backoff.Schedule(first_pause, LAST_PAUSE)
        self._tries = backoff.Backoff(schedule, random.random)
        self._told_at = float("-inf")
        self._unseen = 0
        self._heard_on: object = _NO_BUS
        """The bus as it was when it was listened to last."""
        self._state = threading.Condition()
        self._pauses = 0
        self._is_open = False
        self._log = telemetry.logger("gpu-events")
        self._worker = workers.Worker("gpu-events", self._run)

    def start(self) -> None:
        """Begin to listen."""
        self._worker.start()

    def stop(self) -> None:
        """Stop."""
        self._worker.end(self._notify)

    def pause(self, seconds: float) -> bool:
        """Listen no more, and hold NVML no longer, until `resume`; whether that is so in time.

        What happens meanwhile is not heard: whoever resumes has the GPUs looked at.
        """
        with self._state:
            self._pauses += 1
            self._worker.wake()
            return self._state.wait_for(lambda: not self._is_open, seconds)

    def resume(self) -> None:
        """Listen again, once for each `pause`."""
        with self._state:
            self._pauses = max(self._pauses - 1, 0)
            self._state.notify_all()
        self._worker.wake()

    def _run(self) -> None:
        wanted: Collection[devices.GpuUuid] = ()
        while not self._worker.is_ending():
            self._worker.heed()
            if self._is_paused():
                self._worker.rest(IDLE)
                continue
            try:
                wanted = frozenset(self._wanted())
                self._attend(wanted)
            except Exception as error:  # noqa: BLE001 - a thread that ends would hear nothing again
                self._failed(error, wanted)

    def _attend(self, wanted: frozenset[devices.GpuUuid]) -> None:
        """Listen for as long as that is of use, and see what has come."""
        bus = self._bus()
        if not wanted:
            self._ears.unwatched({})
            self._worker.rest(IDLE)
            return
        before, self._heard_on = self._heard_on, bus
        if before not in (_NO_BUS, bus):
            # It has changed during a pause, as when a GPU goes to a virtual machine.
            self._unseen = 0 if self._see_the_bus() else _LATER_TRIES
            return
        self._listen(wanted, bus)
        if (now := self._bus()) != bus:
            self._heard_on = now
            self._unseen = 0 if self._see_the_bus() else _LATER_TRIES
        elif self._unseen and not self._is_paused():
            self._unseen = 0 if self._see_the_bus() else self._unseen - 1

    def _listen(self, wanted: frozenset[devices.GpuUuid], bus: object) -> None:
        """Hear these GPUs until others are wanted, the bus has others, or it is to end.

        Raises:
            errors.Retryable: NVML, or the set, is of no use any more.
        """
        with self._state:
            if self._pauses:
                return
            self._is_open = True
        try:
            heard = nvml_events.EventSet(self._nvml, sorted(wanted))
            self._log.info("listening to GPUs", gpus=len(wanted), deaf=len(heard.unwatched))
            try:
                self._ears.unwatched(heard.unwatched)
                is_deaf = len(heard.unwatched) == len(wanted)
                if not is_deaf:
                    self._hear(heard, wanted, bus)
            finally:
                heard.close()
        finally:
            with self._state:
                self._is_open = False
                self._state.notify_all()
        if is_deaf:
            # NVML is not held for that. One may be heard later, after a reset.
            self._idle_until(wanted, bus)

    def _hear(
        self, heard: nvml_events.EventSet, wanted: frozenset[devices.GpuUuid], bus: object
    ) -> None:
        until = time.monotonic() + LAST_PAUSE if self._unseen else float("inf")
        while not self._is_over(wanted, bus) and time.monotonic() < until:
            event = heard.wait(int(SLICE * 1000))
            self._tries.worked()
            if event is not None:
                self._ears.heard(event)

    def _idle_until(self, wanted: frozenset[devices.GpuUuid], bus: object) -> None:
        deadline = time.monotonic() + LAST_PAUSE
        while not self._is_over(wanted, bus) and time.monotonic() < deadline:
            self._worker.pause(IDLE)

    def _is_over(self, wanted: frozenset[devices.GpuUuid], bus: object) -> bool:
        return (
            self._worker.is_ending()
            or self._is_paused()
            or frozenset(self._wanted()) != wanted
            or self._bus() != bus
        )

    def _is_paused(self) -> bool:
        with self._state:
            return self._pauses > 0

    def _failed(self, error: Exception, wanted: Collection[devices.GpuUuid]) -> None:
        """Tell it, wait, and see what there is now."""
        is_lost = isinstance(error, nvml_events.GpuLost)
        pause = self._tries.failed()
        now = time.monotonic()
        if now - self._told_at >= TOLD_AGAIN:
            self._told_at = now
            self._log.warning(
                "GPUs are not listened to for now", reason=str(error), retry_seconds=round(pause, 2)
            )
        if not is_lost:
            deaf = dict.fromkeys(wanted, str(error))
            self._safely("cannot tell that GPUs are deaf", lambda: self._ears.unwatched(deaf))
        self._see()
        self._worker.pause(pause)

    def _see_the_bus(self) -> bool:
        """Look for GPUs until there are others than before; whether that is so."""
        before = frozenset(self._wanted())
        for _ in range(_TRIES_TO_SEE):
            self._see()
            if frozenset(self._wanted()) != before:
                return True
            if self._worker.pause(FIRST_PAUSE):
                break
        return False

    def _see(self) -> None:
        self._safely("GPUs cannot be looked for now", self._look)

    def _safely(self, text: str, do: Callable[[], object]) -> None:
        """Do what must not end the thread, also after a failure; `text` says what has failed."""
        try:
            do()
        except errors.DriverError as error:
            self._log.info(text, reason=str(error))
        except Exception:  # noqa: BLE001 - as in `_run`
            self._log.exception(text)

    def _notify(self) -> None:
        with self._state:
            self._state.notify_all()
