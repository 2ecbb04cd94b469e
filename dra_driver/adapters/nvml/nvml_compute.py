"""Compute modes through NVML: whether processes may share a GPU. GPUs are named by UUID.

A mode lasts as long as the kernel's driver keeps the GPU initialised: with persistence mode off,
until its last client is gone (NVIDIA, Driver Persistence, "Data Persistence"). An open NVML session
is a client of every GPU of the node, and an MPS daemon of its own from its start on, before any
process connects to it (both seen on H200 with driver 580.159.04).
"""

import contextlib
import enum
from collections.abc import Iterator, Mapping

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_codes, nvml_errors

_REMEDIES: Mapping[int, str] = {
    nvml_codes.Code.NO_PERMISSION: "run the plugin as root: it takes root to change it",
    nvml_codes.Code.NOT_SUPPORTED: (
        "look whether the GPU has compute modes (nvidia-smi -q -d COMPUTE); with MIG mode on it "
        "has none but the default"
    ),
    nvml_codes.Code.INVALID_ARGUMENT: "only a whole GPU has a compute mode, a MIG device has none",
    nvml_codes.Code.FUNCTION_NOT_FOUND: "install a newer NVIDIA driver",
    nvml_codes.Code.IN_USE: "stop its processes (nvidia-smi)",
}


class ComputeMode(enum.IntEnum):
    """Who may have a context on a GPU (nvml.h, `nvmlComputeMode_t`). 1 is not to be had since long.

    All modes but DEFAULT are gone after the next boot of the node.
    """

    DEFAULT = 0
    """Any number of processes."""
    PROHIBITED = 2
    """Nobody."""
    EXCLUSIVE_PROCESS = 3
    """One process at a time: with MPS, its server."""


class ComputeModes:
    """Reads and sets compute modes; safe to use from several threads.

    Every function raises `nvml_errors.GpuGone` if there is no such GPU, `errors.Retryable` if the
    driver does not answer, and `errors.Rejected` if asking again does not help: no permission, no
    compute modes. Nothing here waits or tries again.
    """

    def __init__(self, nvml_: nvml.Nvml) -> None:
        self._nvml = nvml_

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Have no mode forgotten for the length of the block.

        Raises:
            errors.Retryable: the driver is not there.
        """
        with self._nvml.session():
            yield

    def get(self, gpu_uuid: str) -> int:
        """The mode now; see `ComputeMode`."""
        doing = "reading its compute mode"
        with nvml_errors.gpu(self._nvml, gpu_uuid, doing, _REMEDIES) as (library, handle):
            return int(library.nvmlDeviceGetComputeMode(handle))

    def set(self, gpu_uuid: str, mode: int) -> None:
        """Have a GPU in this mode; nothing is done if it is so already.

        Raises:
            errors.Rejected: also if `mode` is no `ComputeMode`.
        """
        wanted = _known(mode, gpu_uuid)
        doing = f"setting its compute mode to {wanted.name}"
        with nvml_errors.gpu(self._nvml, gpu_uuid, doing, _REMEDIES) as (library, handle):
            # To set a mode that is there already takes permission, too.
            if library.nvmlDeviceGetComputeMode(handle) != wanted:
                library.nvmlDeviceSetComputeMode(handle, int(wanted))

    def check(self, gpu_uuid: str, mode: int) -> None:
        """See to it that a mode that was set is there, also without what `kept` does.

        Raises:
            errors.Retryable: also if it is another one.
        """
        found = self.get(gpu_uuid)
        if found != mode:
            raise errors.Retryable(
                f"{gpu_uuid}: compute mode {_known(mode, gpu_uuid).name} was set, and now it is "
                f"{name(found)}: see whether something else sets it (nvidia-smi -c), and turn "
                "persistence mode on (nvidia-persistenced)"
            )


def name(mode: int) -> str:
    """As NVIDIA's programs call a mode; the number of one that is not known."""
    try:
        return ComputeMode(mode).name
    except ValueError:
        return str(mode)


def _known(mode: int, gpu_uuid: str) -> ComputeMode:
    try:
        return ComputeMode(mode)
    except ValueError as error:
        known = ", ".join(f"{one.value} ({one.name})" for one in ComputeMode)
        raise errors.Rejected(
            f"{gpu_uuid}: compute mode {mode}: it can be set to one of {known}"
        ) from error
