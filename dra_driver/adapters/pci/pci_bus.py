"""The PCI bus of the node: NVIDIA's GPUs, what is beside them, and which driver has which."""

import pathlib
from collections.abc import Sequence

from dra_driver.adapters.pci import pci_kernel
from dra_driver.model import devices, driver, pci


class PciBus:
    """Reads and changes the bus, through sysfs; what the kernel is asked to do is bounded."""

    def __init__(
        self, kernel: pci_kernel.Kernel, *, sysfs: pathlib.Path, host_root: pathlib.Path
    ) -> None:
        """`host_root` is where the host's `/dev` and `/lib/modules` are seen."""
        self._kernel = kernel
        self._sysfs = sysfs
        self._host_root = host_root

    def scan(self) -> pci.Bus:
        """What is on the bus now, of GPUs and what shares a group with one."""
        raise NotImplementedError

    def function(self, address: devices.PciAddress) -> pci.Function | None:
        """One function as it is now; None where there is none at the address."""
        raise NotImplementedError

    def aliases(self) -> Sequence[str]:
        """The lines of the running kernel's `modules.alias`; none where it is not to be had."""
        raise NotImplementedError

    def driver_of(self, module: str) -> str | None:
        """The PCI driver that a module has; None while it is not loaded."""
        raise NotImplementedError

    def load(self, module: str) -> str:
        """Have a module loaded; the name of its PCI driver.

        Raises:
            errors.Retryable: it cannot be loaded; the text says what to do.
        """
        raise NotImplementedError

    def allow(self, address: devices.PciAddress, driver: str | None) -> None:
        """Have only this driver bound to the function, or any that fits (`driver_override`).

        Raises:
            errors.Retryable: the kernel says no, or does not come back.
        """
        raise NotImplementedError

    def unbind(self, address: devices.PciAddress) -> None:
        """Take the function from its driver; fine where it has none.

        Raises:
            errors.Retryable: the kernel says no, or does not come back.
        """
        raise NotImplementedError

    def bind(self, address: devices.PciAddress, driver: str) -> None:
        """Give the function, which has no driver, to this one.

        Raises:
            errors.Retryable: the kernel says no, or does not come back.
        """
        raise NotImplementedError

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """The processes that change the driver of the function at this moment."""
        raise NotImplementedError

    def nodes(self, paths: Sequence[str]) -> tuple[driver.DeviceNode, ...]:
        """Device nodes of the host.

        Raises:
            errors.Retryable: one is not there.
        """
        raise NotImplementedError

    def seen(self, path: str) -> pathlib.Path:
        """Where this process sees a device node of the host."""
        raise NotImplementedError
