"""Events that GPUs tell through NVML, waited for in an event set (`nvml.h`, "Event Handling")."""

import collections
import contextlib
import ctypes
from collections.abc import Collection, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_codes
from dra_driver.model import devices, health

WANTED = sum(health.EventKind)
"""Bits of all events that say something about health."""
_NO_EVENTS = "this GPU tells no events of health: look at it with nvidia-smi -q"


class GpuLost(errors.Retryable):
    """A GPU of the set has fallen off the bus; which, NVML does not say. The set hears no more."""


class Ended(errors.Retryable):
    """The set hears no more: the driver is gone, or was loaded again, or fails."""


class EventSet:
    """Hears events of GPUs, and holds NVML open for that, until it is closed. For one thread.

    GPUs that come are not heard, and nobody in this process sees them: `nvml.Nvml.discover`.
    """

    def __init__(self, nvml_: nvml.Nvml, uuids: Collection[devices.GpuUuid]) -> None:
        """Hear these GPUs from now on.

        Raises:
            errors.Retryable: the driver does not answer.
        """
        self._nvml = nvml_
        self._waiting: collections.deque[health.Event] = collections.deque()
        self._handles: list[tuple[Any, devices.GpuUuid]] = []
        self._unwatched: dict[devices.GpuUuid, str] = {}
        self._set: Any = None
        self._library = nvml_.opened()
        try:
            self._open(uuids)
        except BaseException:
            self.close()
            raise

    @property
    def unwatched(self) -> Mapping[devices.GpuUuid, str]:
        """The GPUs of those that were given that are not heard, and why."""
        return dict(self._unwatched)

    def wait(self, milliseconds: int) -> health.Event | None:
        """The next event; None where there is none within that time, or it is not of health.

        Raises:
            GpuLost: one has fallen off the bus.
            Ended: the set is of no use any more.
        """
        if self._waiting:
            return self._waiting.popleft()
        library = self._library
        try:
            data = library.nvmlEventSetWait_v2(self._set, milliseconds)
        except library.NVMLError as error:
            if error.value == nvml_codes.Code.TIMEOUT:
                return None
            what = f"waiting for events of GPUs: {nvml_codes.describe(error)}"
            if error.value in nvml_codes.GPU_IS_GONE:
                raise GpuLost(what) from error
            raise Ended(what) from error
        self._waiting.extend(self._events(data))
        return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Hear no more; whatever the driver says to that."""
        library = self._library
        if self._set is not None:
            with contextlib.suppress(library.NVMLError):
                library.nvmlEventSetFree(self._set)
            self._set = None
        with contextlib.suppress(errors.Retryable):
            self._nvml.shutdown()

    def _open(self, uuids: Collection[devices.GpuUuid]) -> None:
        library = self._library
        try:
            self._set = library.nvmlEventSetCreate()
            for uuid in uuids:
                self._register(uuid)
        except library.NVMLError as error:
            raise Ended(f"listening to GPUs: {nvml_codes.describe(error)}") from error

    def _register(self, uuid: devices.GpuUuid) -> None:
        library = self._library
        try:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
            kinds = library.nvmlDeviceGetSupportedEventTypes(handle) & WANTED
            if not kinds:
                self._unwatched[uuid] = _NO_EVENTS
                return
            library.nvmlDeviceRegisterEvents(handle, kinds, self._set)
        except library.NVMLError as error:
            if error.value in nvml_codes.DRIVER_IS_GONE:
                raise
            self._unwatched[uuid] = f"its events cannot be heard: {nvml_codes.describe(error)}"
        else:
            self._handles.append((_identity(handle), uuid))

    def _events(self, data: Any) -> list[health.Event]:
        wanted = _identity(data.device)
        uuid = next((uuid for handle, uuid in self._handles if handle == wanted), None)
        if uuid is None:
            return []
        gi = None if data.gpuInstanceId == health.WHOLE else int(data.gpuInstanceId)
        return [
            health.Event(kind, uuid, int(data.eventData), gi)
            for kind in health.EventKind
            if data.eventType & kind
        ]


def _identity(handle: Any) -> Any:
    """What two handles of one GPU have in common: pointers of ctypes are never equal."""
    contents = getattr(handle, "contents", None)
    return handle if contents is None else ctypes.addressof(contents)
