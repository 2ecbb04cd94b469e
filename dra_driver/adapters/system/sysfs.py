"""What the kernel knows of a PCI device, under an injected `/sys`."""

import dataclasses
import pathlib
import re

from dra_driver.model import devices

_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Sysfs:
    """Reads `/sys`, or a directory that looks like it."""

    def __init__(self, root: pathlib.Path = pathlib.Path("/sys")) -> None:
        self._devices = root / "bus" / "pci" / "devices"

    def pcie_root(self, address: devices.PciAddress) -> str | None:
        """The root bus above the device, `pci0000:00`; None if the kernel does not tell.

        The name is the first element of the device's path, as in the helper of Kubernetes that
        gives `resource.kubernetes.io/pcieRoot` its meaning.
        """
        try:
            parts = (self._devices / address).readlink().parts
        except OSError:
            return None
        return next((part for part in parts if _ROOT_BUS.fullmatch(part)), None)

    def numa_node(self, address: devices.PciAddress) -> int | None:
        """The NUMA node of the device; None if the machine has none or does not tell (-1)."""
        try:
            node = int((self._devices / address / "numa_node").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def located(self, gpu: devices.Gpu) -> devices.Gpu:
        """The GPU, with what the kernel knows of its place."""
        return dataclasses.replace(
            gpu,
            pcie_root=self.pcie_root(gpu.pci_address),
            numa_node=self.numa_node(gpu.pci_address),
        )
