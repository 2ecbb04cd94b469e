"""What NVML tells of the health of simulated GPUs. Figures of a healthy card are those of an H200.

Which cards lack what follows the vendor's documentation.
"""

# ruff: noqa: N801, N802, N803, N815 - the names are those of pynvml

import ctypes
import pathlib
import types
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_health_state,
    gpu_mig_types,
    gpu_models,
    gpu_session,
)

_FABRIC_V2 = 0x02000024
_COMPLETED = 3
_UNSIGNED_INT = 1
_IDLE, _HW_SLOWDOWN, _HW_THERMAL, _HW_POWER_BRAKE = 0x1, 0x8, 0x40, 0x80
_RESET, _DRAIN_AND_RESET = 1, 4


class c_nvmlValue_t(ctypes.Union):
    """A value of some type."""

    _fields_ = (
        ("dVal", ctypes.c_double),
        ("uiVal", ctypes.c_uint),
        ("ulVal", ctypes.c_ulong),
        ("ullVal", ctypes.c_ulonglong),
        ("sllVal", ctypes.c_longlong),
        ("siVal", ctypes.c_int),
        ("usVal", ctypes.c_ushort),
    )


class c_nvmlFieldValue_t(ctypes.Structure):
    """One answer of many, with a return code of its own."""

    _fields_ = (
        ("fieldId", ctypes.c_uint32),
        ("scopeId", ctypes.c_uint32),
        ("timestamp", ctypes.c_int64),
        ("latencyUsec", ctypes.c_int64),
        ("valueType", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", c_nvmlValue_t),
    )


class c_nvmlGpuFabricInfo_v2_t(ctypes.Structure):
    """A GPU's place in an NVLink fabric."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
    )

    def __init__(self) -> None:
        super().__init__(version=_FABRIC_V2)


class HealthFunctions(gpu_session.Session):
    """The functions of `pynvml` for facts of health. See `gpus.SimulatedNvml`."""

    NVML_FI_DEV_NVLINK_LINK_COUNT = 91
    NVML_FI_DEV_RESET_STATUS = 226
    NVML_FI_DEV_DRAIN_AND_RESET_STATUS = 227
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_AGGREGATE_ECC = 1
    NVML_TEMPERATURE_GPU = 0
    c_nvmlGpuFabricInfoV_t = c_nvmlGpuFabricInfo_v2_t

    def __init__(
        self, state_dir: pathlib.Path, *, spec: str | None = None, node: str = "node"
    ) -> None:
        super().__init__(state_dir, spec=spec, node=node)
        self._health = gpu_health_state.open_file(state_dir)

    def nvmlDeviceGetFieldValues(
        self, handle: gpu_session.Handle, fieldIds: Sequence[int | tuple[int, int]]
    ) -> ctypes.Array[c_nvmlFieldValue_t]:
        """Fields by their ids, or by pairs of id and scope; each may fail for itself."""
        model, health = self._examined("nvmlDeviceGetFieldValues", handle)
        known = _fields(model, health)
        values = (c_nvmlFieldValue_t * len(fieldIds))()
        for value, asked in zip(values, fieldIds, strict=True):
            value.fieldId, value.scopeId = asked if isinstance(asked, tuple) else (asked, 0)
            found = known.get(value.fieldId)
            if found is None:
                value.nvmlReturn = gpu_errors.CODES["NVML_ERROR_NOT_SUPPORTED"]
            else:
                value.valueType, value.value.uiVal = _UNSIGNED_INT, found
        return values

    def nvmlDeviceGetRemappedRows(self, device: gpu_session.Handle) -> tuple[int, int, int, int]:
        """Rows that were remapped for corrected and uncorrected errors; pending; failed."""
        model, health = self._examined("nvmlDeviceGetRemappedRows", device)
        if not gpu_health_state.remaps_rows(model):
            raise self._error("NOT_SUPPORTED")
        return 0, 0, int(health.remap_pending), int(health.remap_failed)

    def nvmlDeviceGetRetiredPages(
        self, device: gpu_session.Handle, sourceFilter: int
    ) -> Sequence[int]:
        """Addresses of pages by the cause; here all are for double bit errors."""
        health = self._retiring("nvmlDeviceGetRetiredPages", device)
        if sourceFilter not in {0, 1}:
            raise self._error("INVALID_ARGUMENT")
        return [0x1000 * (page + 1) for page in range(health.retired_pages * sourceFilter)]

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: gpu_session.Handle) -> int:
        health = self._retiring("nvmlDeviceGetRetiredPagesPendingStatus", device)
        return int(health.retirement_pending)

    def nvmlDeviceGetTotalEccErrors(
        self, handle: gpu_session.Handle, errorType: int, counterType: int
    ) -> int:
        """Errors since the last reset, or ever. None was correctable."""
        _, health = self._examined("nvmlDeviceGetTotalEccErrors", handle)
        if errorType not in {0, 1} or counterType not in {0, 1}:
            raise self._error("INVALID_ARGUMENT")
        if errorType != self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED:
            return 0
        ever = counterType == self.NVML_AGGREGATE_ECC
        return health.uncorrectable_ever if ever else health.uncorrectable

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: gpu_session.Handle) -> int:
        """A bit for each reason why clocks are not as high as they could be."""
        _, health = self._examined("nvmlDeviceGetCurrentClocksEventReasons", handle)
        slowed = (_HW_THERMAL * health.thermal) | (_HW_POWER_BRAKE * health.power_brake)
        return _IDLE | slowed | (_HW_SLOWDOWN if slowed else 0)

    def nvmlDeviceGetTemperature(self, handle: gpu_session.Handle, sensor: int) -> int:
        _, health = self._examined("nvmlDeviceGetTemperature", handle)
        if sensor != self.NVML_TEMPERATURE_GPU:
            raise self._error("INVALID_ARGUMENT")
        return health.temperature

    def nvmlDeviceGetGpuFabricInfoV(self, device: gpu_session.Handle, gpuFabricInfo: Any) -> int:
        """A card without a fabric is in the state "not supported"."""
        model, health = self._examined("nvmlDeviceGetGpuFabricInfoV", device)
        info = gpu_mig_types.at(gpuFabricInfo, c_nvmlGpuFabricInfo_v2_t)[0]
        if info.version != _FABRIC_V2:
            raise self._error("ARGUMENT_VERSION_MISMATCH")
        if gpu_health_state.has_fabric(model):
            info.state = _COMPLETED
            bad = health.bad_fabric
            info.healthMask = (
                gpu_health_state.BAD_ROUTES if bad else gpu_health_state.HEALTHY_FABRIC
            )
        return gpu_errors.NVML_SUCCESS

    def nvmlDeviceGetNvLinkState(self, device: gpu_session.Handle, link: int) -> int:
        """Whether the link is active: 1, or 0."""
        model, health = self._examined("nvmlDeviceGetNvLinkState", device)
        if not model.nvlinks:
            raise self._error("NOT_SUPPORTED")
        if not 0 <= link < model.nvlinks:
            raise self._error("INVALID_ARGUMENT")
        return int(link not in health.links_down)

    def nvmlDeviceGetNvLinkRemotePciInfo(
        self, device: gpu_session.Handle, link: int
    ) -> types.SimpleNamespace:
        """Where the card at the other end of a link is."""
        found = self._device("nvmlDeviceGetNvLinkRemotePciInfo", device).state
        if not found.linked:
            raise self._error("NOT_SUPPORTED")
        if not 0 <= link < len(found.linked):
            raise self._error("INVALID_ARGUMENT")
        peer = gpu_session.find(self._state.read(), found.linked[link])
        return types.SimpleNamespace(busId=f"0000{peer.pci_address}".upper())

    def _examined(
        self, function: str, handle: gpu_session.Handle
    ) -> tuple[gpu_models.Model, gpu_health_state.Health]:
        found = self._device(function, handle)
        known = self._health.read().cards.get(found.state.uuid)
        return found.model, known or gpu_health_state.Health()

    def _retiring(self, function: str, handle: gpu_session.Handle) -> gpu_health_state.Health:
        model, health = self._examined(function, handle)
        if gpu_health_state.remaps_rows(model):
            raise self._error("NOT_SUPPORTED")
        return health


def _fields(model: gpu_models.Model, health: gpu_health_state.Health) -> dict[int, int]:
    """The values of the fields that the card has."""
    found = {}
    if model.nvlinks:
        found[HealthFunctions.NVML_FI_DEV_NVLINK_LINK_COUNT] = model.nvlinks
    if gpu_health_state.tells_recovery(model):
        wanted = health.recovery
        found[HealthFunctions.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION] = wanted
        found[HealthFunctions.NVML_FI_DEV_RESET_STATUS] = int(wanted == _RESET)
        found[HealthFunctions.NVML_FI_DEV_DRAIN_AND_RESET_STATUS] = int(wanted == _DRAIN_AND_RESET)
    return found
