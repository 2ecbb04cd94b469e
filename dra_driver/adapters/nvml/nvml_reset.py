"""What is asked of NVML, and set, around a reset of a GPU. GPUs are named by UUID.

In persistence mode nvidia-persistenced, or the driver by itself, is a client of the GPU: it is not
reset then ("In use by another client", NVIDIA/NVSentinel issue 1690).
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.adapters.nvml import nvml, nvml_codes, nvml_errors, nvml_facts
from dra_driver.model import devices

_LINKS = 18
"""NVLinks that a GPU may have which is not reset for itself: those before Ampere have 6 at most."""

_REMEDIES: Mapping[int, str] = {
    nvml_codes.Code.NO_PERMISSION: "run the plugin as root: it takes root to change it",
    nvml_codes.Code.FUNCTION_NOT_FOUND: "install a newer NVIDIA driver",
}


class ResetNvml:
    """Safe to use from several threads.

    Every function raises `nvml_errors.GpuGone` if there is no such GPU, `errors.Retryable` if the
    driver does not answer, and `errors.Rejected` if asking again does not help.
    """

    def __init__(self, nvml_: nvml.Nvml) -> None:
        self._nvml = nvml_

    def persistence(self, gpu: str) -> bool | None:
        """Whether persistence mode is on; None: the GPU has none."""
        doing = "reading its persistence mode"
        with nvml_errors.gpu(self._nvml, gpu, doing, _REMEDIES) as (library, handle):
            try:
                return bool(library.nvmlDeviceGetPersistenceMode(handle))
            except library.NVMLError as error:
                if error.value not in nvml_codes.NO_SUCH_FACT:
                    raise
                return None

    def set_persistence(self, gpu: str, *, on: bool) -> None:
        """Switch persistence mode, unless it is so already."""
        doing = f"switching its persistence mode {'on' if on else 'off'}"
        with nvml_errors.gpu(self._nvml, gpu, doing, _REMEDIES) as (library, handle):
            # To set one that is there already takes permission, too.
            if bool(library.nvmlDeviceGetPersistenceMode(handle)) != on:
                library.nvmlDeviceSetPersistenceMode(handle, int(on))

    def linked(self, gpu: str) -> frozenset[devices.PciAddress]:
        """The PCI addresses of what is at the other ends of its NVLinks: GPUs, and others."""
        doing = "reading what its NVLinks lead to"
        with nvml_errors.gpu(self._nvml, gpu, doing, _REMEDIES) as (library, handle):
            ends = (_end(library, handle, link) for link in range(_LINKS))
            return frozenset(end for end in ends if end is not None)


def _end(library: Any, handle: Any, link: int) -> devices.PciAddress | None:
    try:
        info = library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
    except library.NVMLError as error:
        if error.value not in nvml_codes.NO_SUCH_FACT:
            raise
        return None
    return nvml_facts.pci_address(info)
