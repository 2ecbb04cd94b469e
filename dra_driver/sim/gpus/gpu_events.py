"""Events of simulated GPUs: event sets, in which whoever waits hears what cards tell."""

# ruff: noqa: N802, N803, N815 - the names are those of pynvml

import dataclasses
import os
import threading
import time
import types

from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_event_log,
    gpu_faults,
    gpu_health_state,
    gpu_models,
    gpu_session,
    gpu_state,
)

LOOK_SECONDS = 0.02
"""How often a set that is waited for looks whether something was told."""
_WAIT = "nvmlEventSetWait_v2"
_WATCHED = (gpu_event_log.FILE, gpu_faults.FILE, gpu_state.FILE)
_WHOLE = 0xFFFFFFFF
_ALL = 65439
"""What an H200 with driver 580 supports."""
_BEFORE_AMPERE = 31
_GONE = gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"]


@dataclasses.dataclass(eq=False, slots=True)
class EventSet:
    """What NVML calls an event set: opaque. `registered` has bits by the UUIDs of cards."""

    session: int
    reader: gpu_event_log.Reader
    registered: dict[str, int] = dataclasses.field(default_factory=dict)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    is_free: bool = False

    def hears(self, event: gpu_event_log.Told) -> bool:
        """Whether somebody registered for this."""
        return bool(self.registered.get(event.uuid, 0) & event.kind)


class EventFunctions(gpu_session.Session):
    """The functions of `pynvml` for events. See `gpus.SimulatedNvml`."""

    nvmlEventTypeDoubleBitEccError = 0x2
    nvmlEventTypeXidCriticalError = 0x8
    nvmlEventTypeClock = 0x10
    nvmlEventTypeDramRetirementEvent = 0x400
    nvmlEventTypeDramRetirementFailure = 0x800
    nvmlEventTypeGpuRecoveryAction = 0x8000

    def nvmlEventSetCreate(self) -> EventSet:
        self._enter("nvmlEventSetCreate")
        return EventSet(self._session, gpu_event_log.Reader(self._state_dir))

    def nvmlEventSetFree(self, eventSet: EventSet) -> None:
        self._enter("nvmlEventSetFree")
        self._valid(eventSet).is_free = True

    def nvmlDeviceGetSupportedEventTypes(self, handle: gpu_session.Handle) -> int:
        """Bits of the events that this card may tell."""
        return supported(self._device("nvmlDeviceGetSupportedEventTypes", handle).model)

    def nvmlDeviceRegisterEvents(
        self, handle: gpu_session.Handle, eventTypes: int, eventSet: EventSet
    ) -> None:
        """Have a set told of these events of a card, from now on."""
        found = self._device("nvmlDeviceRegisterEvents", handle)
        self._valid(eventSet)
        if eventTypes & ~supported(found.model):
            raise self._error("NOT_SUPPORTED")
        with eventSet.lock:
            # What was told before is nothing to this card's registration.
            eventSet.reader.listen(eventSet.hears)
            before = eventSet.registered.get(found.state.uuid, 0)
            eventSet.registered[found.state.uuid] = before | eventTypes

    def nvmlEventSetWait(self, eventSet: EventSet, timeoutms: int) -> types.SimpleNamespace:
        return self.nvmlEventSetWait_v2(eventSet, timeoutms)

    def nvmlEventSetWait_v2(self, eventSet: EventSet, timeoutms: int) -> types.SimpleNamespace:
        """The next event. A card of the set that is lost is told by an error, each time anew."""
        deadline = time.monotonic() + timeoutms / 1000
        seen = None
        while True:
            now = self._signature()
            if now != seen:
                seen = now
                if (event := self._heard(eventSet)) is not None:
                    return self._event(event)
            if time.monotonic() >= deadline:
                raise self._error("TIMEOUT")
            time.sleep(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0.0)))

    def _heard(self, event_set: EventSet) -> gpu_event_log.Told | None:
        """What was told; whatever ends the waiting is raised."""
        self._meet_lasting_fault()
        self._check_open()
        self._valid(event_set)
        with event_set.lock:
            event_set.reader.listen(event_set.hears)
            event = event_set.reader.next()
        if event is None and any(self._is_lost(uuid) for uuid in event_set.registered):
            raise self._error("GPU_IS_LOST")
        return event

    def _meet_lasting_fault(self) -> None:
        """Faults that are counted are not for those who wait, unless they are named."""
        failing = self._faults.read().failing
        if any(
            fault.hits(_WAIT, None) and (fault.function == _WAIT or fault.times is None)
            for fault in failing
        ):
            self._meet_fault(_WAIT)

    def _is_lost(self, uuid: str) -> bool:
        faults = self._faults.read()
        return (
            uuid in faults.absent
            or all(gpu.uuid != uuid for gpu in self._state.read().gpus)
            or any(
                fault.uuid == uuid and fault.error == _GONE and fault.hits(_WAIT, uuid)
                for fault in faults.failing
            )
        )

    def _event(self, event: gpu_event_log.Told) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            device=gpu_session.Handle(self._session, event.uuid),
            eventType=event.kind,
            eventData=event.data,
            gpuInstanceId=_WHOLE if event.gi is None else event.gi,
            computeInstanceId=_WHOLE if event.ci is None else event.ci,
        )

    def _valid(self, event_set: EventSet) -> EventSet:
        if (
            not isinstance(event_set, EventSet)
            or event_set.session != self._session
            or event_set.is_free
        ):
            raise self._error("INVALID_ARGUMENT")
        return event_set

    def _signature(self) -> list[tuple[int, int, int] | None]:
        """What changes when there may be something to hear. Cheap: it is asked for all the time."""
        found: list[tuple[int, int, int] | None] = []
        for name in _WATCHED:
            try:
                facts = os.stat(f"{self._state_dir}/{name}")  # noqa: PTH116 - half the time of a Path's
            except FileNotFoundError:
                found.append(None)
            else:
                found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        return found


def supported(model: gpu_models.Model) -> int:
    """Bits of the events that cards of this model may tell."""
    return _ALL if model.architecture >= gpu_health_state.AMPERE else _BEFORE_AMPERE
