"""What NVML tells of the health of GPUs, read at one moment.

Functions, fields and bits are those of `nvml.h`; which cards tell what was seen on H200 with driver
580.159.04.
"""

import ctypes
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_codes
from dra_driver.model import devices, health

T = TypeVar("T")

_RECOVERY_ACTION, _RESET_STATUS, _DRAIN_AND_RESET_STATUS, _LINK_COUNT = 230, 226, 227, 91
_FIELDS = {
    _RECOVERY_ACTION: "recovery",
    _RESET_STATUS: "reset_wanted",
    _DRAIN_AND_RESET_STATUS: "drain_and_reset_wanted",
    _LINK_COUNT: "links_down",
}
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union that a field's value is, by `nvmlValueType_t`."""
_THERMAL, _POWER_BRAKE = 0x40, 0x80
_UNCORRECTED, _VOLATILE = 1, 0
_CAUSES = (0, 1)
"""Of retiring a page: several errors of one bit, one of two."""
_CHIP = 0
_INACTIVE = 0
_NO_FABRIC = 0
_HANDLE = "is_lost"


class _Lost(Exception):  # noqa: N818 - what it says of a card
    """The GPU has fallen off the bus: nothing else is to be had of it."""


class _Asked:
    """Asks about one GPU, and remembers what failed by the fact that was asked for."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library = library
        self.handle = handle
        self.unread: dict[str, str] = {}
        self.wants_reset = False

    def ask(self, fact: str, function: str, *arguments: Any) -> Any:
        """The answer; None where there is no such fact, or it could not be read.

        Raises:
            _Lost: the GPU is.
            library.NVMLError: the driver is gone.
        """
        return self.told(fact, lambda: getattr(self.library, function)(self.handle, *arguments))

    def told(self, fact: str, call: Callable[[], T]) -> T | None:
        """As `ask`."""
        try:
            return call()
        except AttributeError:
            # The binding is older than the function.
            return None
        except self.library.NVMLError as error:
            self.failed(fact, error)
            return None

    def failed(self, fact: str, error: Any) -> None:
        """Weigh an error."""
        if error.value in nvml_codes.DRIVER_IS_GONE:
            raise error
        if error.value in nvml_codes.GPU_IS_GONE:
            raise _Lost from error
        if error.value == nvml_codes.Code.RESET_REQUIRED:
            self.wants_reset = True
        if error.value not in nvml_codes.NO_SUCH_FACT:
            self.unread[fact] = nvml_codes.describe(error)


class HealthReader:
    """Looks at the health of GPUs; safe to use from several threads."""

    def __init__(self, nvml_: nvml.Nvml) -> None:
        self._nvml = nvml_

    def facts(
        self,
        uuids: Collection[devices.GpuUuid],
        asks: Callable[[devices.GpuUuid], None] = lambda _: None,
    ) -> Mapping[devices.GpuUuid, health.Facts]:
        """What is told of each of these GPUs. One that NVML does not know, or has lost, is lost.

        `asks` is told before each GPU is asked.

        Raises:
            errors.Retryable: the driver does not answer.
        """
        found = {}
        with self._nvml.session() as library:
            try:
                for uuid in uuids:
                    asks(uuid)
                    found[uuid] = _facts(library, uuid)
            except library.NVMLError as error:
                raise errors.Retryable(
                    f"no answer from the NVIDIA driver: {nvml_codes.describe(error)}"
                ) from error
        return found


def read(library: Any, handle: Any) -> health.Facts:
    """What is told of the GPU with this handle.

    Raises:
        library.NVMLError: the driver is gone.
    """
    asked = _Asked(library, handle)
    try:
        return _read(asked)
    except _Lost:
        return health.Facts(is_lost=True)


def _facts(library: Any, uuid: devices.GpuUuid) -> health.Facts:
    try:
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
    except library.NVMLError as error:
        if error.value in nvml_codes.DRIVER_IS_GONE:
            raise
        if error.value in nvml_codes.GPU_IS_GONE | {nvml_codes.Code.NOT_FOUND}:
            return health.Facts(is_lost=True)
        wants_reset = True if error.value == nvml_codes.Code.RESET_REQUIRED else None
        return health.Facts(reset_wanted=wants_reset, unread={_HANDLE: nvml_codes.describe(error)})
    return read(library, handle)


def _read(asked: _Asked) -> health.Facts:
    fields = _fields(asked)
    remapped = asked.ask("remap_pending", "nvmlDeviceGetRemappedRows")
    _, _, pending, failed = (None,) * 4 if remapped is None else remapped
    # Rows are remapped, or pages retired: a card that does the one knows nothing of the other.
    retires = remapped is None and "remap_pending" not in asked.unread
    reasons = asked.ask("thermal_slowdown", "nvmlDeviceGetCurrentClocksEventReasons")
    ecc = asked.ask("uncorrectable_ecc", "nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)
    reset_wanted = _bool(fields.get(_RESET_STATUS))
    fabric = _fabric(asked)
    facts = {
        "retired_pages": _retired(asked) if retires else None,
        "retirement_pending": _bool(
            asked.ask("retirement_pending", "nvmlDeviceGetRetiredPagesPendingStatus")
            if retires
            else None
        ),
        "temperature": asked.ask("temperature", "nvmlDeviceGetTemperature", _CHIP),
        "fabric": fabric,
        "links_down": _links_down(asked, fields.get(_LINK_COUNT), has_fabric=fabric is not None),
    }
    return health.Facts(
        recovery=fields.get(_RECOVERY_ACTION),
        # Functions answer that a reset is required where the field is not known yet.
        reset_wanted=asked.wants_reset or reset_wanted,
        drain_and_reset_wanted=_bool(fields.get(_DRAIN_AND_RESET_STATUS)),
        remap_pending=_bool(pending),
        remap_failed=_bool(failed),
        uncorrectable_ecc=ecc,
        thermal_slowdown=None if reasons is None else bool(reasons & _THERMAL),
        power_brake=None if reasons is None else bool(reasons & _POWER_BRAKE),
        unread=asked.unread,
        **facts,
    )


def _fields(asked: _Asked) -> Mapping[int, int]:
    """The fields that the card has, in one question; each has a return code of its own."""
    values = asked.ask("recovery", "nvmlDeviceGetFieldValues", list(_FIELDS))
    found = {}
    if "recovery" in asked.unread:
        # Without their count nothing is known of links either.
        asked.unread["links_down"] = asked.unread["recovery"]
    for value in () if values is None else values:
        if value.nvmlReturn:
            asked.failed(_FIELDS[value.fieldId], asked.library.NVMLError(value.nvmlReturn))
        else:
            found[value.fieldId] = int(getattr(value.value, _MEMBERS[value.valueType]))
    return found


def _retired(asked: _Asked) -> int | None:
    found = [asked.ask("retired_pages", "nvmlDeviceGetRetiredPages", cause) for cause in _CAUSES]
    return None if None in found else sum(len(pages) for pages in found)


def _fabric(asked: _Asked) -> health.Fabric | None:
    """None also where the card says that it is in no fabric."""
    kind = getattr(asked.library, "c_nvmlGpuFabricInfoV_t", None)
    if kind is None:
        return None
    info = kind()
    answer = asked.ask("fabric", "nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info))
    if answer is None or info.state == _NO_FABRIC:
        return None
    return health.Fabric(info.state, info.status, info.healthMask)


def _links_down(asked: _Asked, count: int | None, *, has_fabric: bool) -> tuple[int, ...] | None:
    """None also with MIG mode on, which leaves nobody an NVLink to use; and where no link is up.

    Of a card in no fabric that says that it has no bridge, as most PCIe cards have none.
    """
    if not count:
        return None
    modes = asked.ask("links_down", "nvmlDeviceGetMigMode")
    if modes is not None and modes[0]:
        return None
    states = [asked.ask("links_down", "nvmlDeviceGetNvLinkState", link) for link in range(count)]
    down = tuple(link for link, state in enumerate(states) if state == _INACTIVE)
    return None if len(down) == count and not has_fabric else down


def _bool(value: int | None) -> bool | None:
    return None if value is None else bool(value)
