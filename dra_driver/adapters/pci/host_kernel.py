"""The kernel of this node: files of sysfs are written, and modules loaded, by child processes.

What the kernel holds up cannot be ended, not even killed: it is left behind, and found again.
"""

import pathlib

from dra_driver.model import devices


class HostKernel:
    """See `pci_kernel.Kernel`."""

    def __init__(self, host_root: pathlib.Path, proc_root: pathlib.Path) -> None:
        self._host_root = host_root
        self._proc_root = proc_root

    def write(self, path: pathlib.Path, text: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        raise NotImplementedError

    def load(self, module: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        raise NotImplementedError

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """See `pci_kernel.Kernel`."""
        raise NotImplementedError
