"""NVIDIA's Fabric Manager, by its library `libnvfm`, which may hang: no process calls it that
others depend on, see `fabric_manager`.

Structures, versions and return values are those of `nv_fm_types.h` and `nv_fm_agent.h`, which come
with the library (package nvidia-fabricmanager-dev; also in NVIDIA/go-nvfm, gen/nvfm, and, of an
older release, in pexip/os-nvidia-fabricmanager, include). All members are C `unsigned int` or
`char`, so there is no padding.
"""

import contextlib
import ctypes
import pathlib
from collections.abc import Iterator
from typing import Any

from dra_driver import errors
from dra_driver.model import fabric

_MOST_GPUS = 16
_MOST_PARTITIONS = 64
_VERSION_MISMATCH = -6
_INET, _UNIX = 1, 2
_RESULTS = {
    -1: "FM_ST_BADPARAM",
    -2: "FM_ST_GENERIC_ERROR",
    -3: "FM_ST_NOT_SUPPORTED: it runs with FABRIC_MODE=0, or this machine has no partitions",
    -4: "FM_ST_UNINITIALIZED",
    -5: "FM_ST_TIMEOUT",
    -6: "FM_ST_VERSION_MISMATCH: this version of the library is not known here",
    -7: "FM_ST_IN_USE",
    -8: "FM_ST_NOT_CONFIGURED: it has not started up yet",
    -9: "FM_ST_CONNECTION_NOT_VALID: nobody answers there; see FM_CMD_UNIX_SOCKET_PATH, "
    "FM_CMD_BIND_INTERFACE and FM_CMD_PORT_NUMBER in fabricmanager.cfg",
}


class ConnectParamsV1(ctypes.Structure):
    """`fmConnectParams_v1`, which older libraries have as the newest."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("addressInfo", ctypes.c_char * 256),
        ("timeoutMs", ctypes.c_uint),
        ("addressIsUnixSocket", ctypes.c_uint),
    )


class ConnectParamsV2(ctypes.Structure):
    """`fmConnectParams_v2`."""

    _fields_ = (*ConnectParamsV1._fields_, ("addressType", ctypes.c_uint))


class GpuInfo(ctypes.Structure):
    """`fmFabricPartitionGpuInfo_t`."""

    _fields_ = (
        ("physicalId", ctypes.c_uint),
        ("uuid", ctypes.c_char * 80),
        ("pciBusId", ctypes.c_char * 32),
        ("numNvLinksAvailable", ctypes.c_uint),
        ("maxNumNvLinks", ctypes.c_uint),
        ("nvlinkLineRateMBps", ctypes.c_uint),
    )


class PartitionInfo(ctypes.Structure):
    """`fmFabricPartitionInfo_t`."""

    _fields_ = (
        ("partitionId", ctypes.c_uint),
        ("isActive", ctypes.c_uint),
        ("numGpus", ctypes.c_uint),
        ("gpuInfo", GpuInfo * _MOST_GPUS),
    )


class PartitionListV2(ctypes.Structure):
    """`fmFabricPartitionList_v2`."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("numPartitions", ctypes.c_uint),
        ("maxNumPartitions", ctypes.c_uint),
        ("partitionInfo", PartitionInfo * _MOST_PARTITIONS),
    )


def version(kind: type[ctypes.Structure], number: int) -> int:
    """As the macro MAKE_FM_PARAM_VERSION has it."""
    return ctypes.sizeof(kind) | number << 24


def partitions(
    library: pathlib.Path, address: fabric.Address, *, connect_ms: int
) -> tuple[fabric.Partition, ...]:
    """The partitions that Fabric Manager knows, active or not.

    Raises:
        errors.Rejected: the library cannot be loaded, or is none that is known.
        errors.Retryable: Fabric Manager does not answer, or refuses.
    """
    try:
        functions = _loaded(ctypes.CDLL(str(library)))
    except (OSError, AttributeError) as error:
        raise errors.Rejected(
            f"{library} cannot be used: {error}; install the libnvfm of the installed Fabric "
            "Manager (package nvidia-fabricmanager-dev or -devel)"
        ) from error
    _check(functions.fmLibInit(), "fmLibInit")
    try:
        with _connected(functions, address, connect_ms) as handle:
            listed = PartitionListV2(version=version(PartitionListV2, 1))
            result = functions.fmGetSupportedFabricPartitions(handle, ctypes.byref(listed))
            _check(result, "fmGetSupportedFabricPartitions")
    finally:
        functions.fmLibShutdown()
    return tuple(_parsed(listed))


def _loaded(functions: ctypes.CDLL) -> ctypes.CDLL:
    handle = ctypes.c_void_p
    for name, arguments in {
        "fmLibInit": (),
        "fmLibShutdown": (),
        "fmConnect": (ctypes.c_void_p, ctypes.POINTER(handle)),
        "fmDisconnect": (handle,),
        "fmGetSupportedFabricPartitions": (handle, ctypes.POINTER(PartitionListV2)),
    }.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return functions


@contextlib.contextmanager
def _connected(
    functions: ctypes.CDLL, address: fabric.Address, connect_ms: int
) -> Iterator[ctypes.c_void_p]:
    """A connection; what an older library does not know is asked for in its own way."""
    handle = ctypes.c_void_p()
    given = {
        "addressInfo": address.text.encode(),
        "timeoutMs": connect_ms,
        "addressIsUnixSocket": int(address.is_socket),
    }
    kind = _UNIX if address.is_socket else _INET
    second = ConnectParamsV2(version=version(ConnectParamsV2, 2), addressType=kind, **given)
    result = functions.fmConnect(ctypes.byref(second), ctypes.byref(handle))
    if result == _VERSION_MISMATCH:
        first = ConnectParamsV1(version=version(ConnectParamsV1, 1), **given)
        result = functions.fmConnect(ctypes.byref(first), ctypes.byref(handle))
    _check(result, f"fmConnect to {address}")
    try:
        yield handle
    finally:
        functions.fmDisconnect(handle)


def _check(result: int, doing: str) -> None:
    if result != 0:
        told = _RESULTS.get(result, "an error that is not known here")
        raise errors.Retryable(f"Fabric Manager: {doing} answers {result} ({told})")


def _parsed(listed: PartitionListV2) -> Iterator[fabric.Partition]:
    for partition in _first(listed.partitionInfo, listed.numPartitions, "partitions"):
        yield fabric.Partition(
            partition.partitionId,
            tuple(
                fabric.Member(one.physicalId, _text(one.uuid), _text(one.pciBusId))
                for one in _first(partition.gpuInfo, partition.numGpus, "GPUs of a partition")
            ),
        )


def _first(array: "ctypes.Array[ctypes.Structure]", count: int, what: str) -> list[Any]:
    if count > len(array):
        raise errors.Rejected(
            f"Fabric Manager tells of {count} {what}, and its structure has room for {len(array)}: "
            "this version of the library is not known here"
        )
    return array[:count]


def _text(value: bytes) -> str:
    return value.decode("ascii", errors="replace")
