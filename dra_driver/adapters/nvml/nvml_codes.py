"""What the return codes of NVML mean for the driver, and what to do about them."""

import enum
import types
from collections.abc import Mapping
from typing import Any


class Code(enum.IntEnum):
    """The NVML return codes that decide something here (nvml.h, `nvmlReturn_t`)."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    NO_DATA = 21
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    UNKNOWN = 999


# What an answer about a GPU means (nvml.h, the comments of `nvmlReturn_t`). A code that is in none
# of the sets, such as UNKNOWN ("an internal driver error occurred"), TIMEOUT, IRQ_ISSUE, MEMORY,
# RESET_REQUIRED or NOT_READY, is the GPU failing for the moment: it may answer the next time.

NO_SUCH_FACT = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.NOT_FOUND,
        Code.FUNCTION_NOT_FOUND,
        Code.NO_DATA,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.DEPRECATED,
    }
)
"""Answers that say: this GPU or driver does not have this fact, or does not tell it to us."""

GPU_IS_GONE = frozenset({Code.GPU_IS_LOST})
"""Answers that are certain: "fallen off the bus or has otherwise become inaccessible"."""

DRIVER_IS_GONE = frozenset(
    {
        Code.UNINITIALIZED,
        Code.DRIVER_NOT_LOADED,
        Code.LIBRARY_NOT_FOUND,
        Code.LIB_RM_VERSION_MISMATCH,
    }
)
"""Answers that are about the driver, whichever GPU was asked. It may be on its way back."""

_REMEDIES = {
    Code.UNINITIALIZED: "NVML was shut down by someone else in this process; it is opened again",
    Code.NO_PERMISSION: "run the plugin privileged, so that it may open /dev/nvidiactl",
    Code.DRIVER_NOT_LOADED: "load the kernel module (modprobe nvidia) or wait for the driver pod",
    Code.LIBRARY_NOT_FOUND: (
        "install the NVIDIA driver, set the driver root (--driver-root) to where it is, or name "
        "the directory below it that has its libraries (--library-dirs)"
    ),
    Code.GPU_IS_LOST: "look for Xid messages in the kernel log; reset the GPU or reboot the node",
    Code.RESET_REQUIRED: "stop its users and run nvidia-smi --gpu-reset, or reboot the node",
    Code.OPERATING_SYSTEM: "allow /dev/nvidia* in the device cgroup of the plugin's container",
    Code.LIB_RM_VERSION_MISMATCH: (
        "the driver was replaced under a running system, and its library and kernel module are of "
        "different versions (/proc/driver/nvidia/version tells the module's): load the module of "
        "the library, or reboot the node"
    ),
}


def describe(error: Any, remedies: Mapping[int, str] = types.MappingProxyType({})) -> str:
    """An `NVMLError` as text: its code, what NVML says, and what to do.

    `remedies` by code come before the general ones.
    """
    remedy = remedies.get(error.value) or _REMEDIES.get(error.value)
    return f"NVML error {error.value} ({error})" + (f": {remedy}" if remedy else "")
