"""What the kernel knows of a PCI device, under an injected `/sys`."""

import dataclasses
import pathlib
import re

from dra_driver.model import devices

_NODE = re.compile(r"node(\d+)")
_CPU = re.compile(r"cpu\d+")
_ROOT_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Sysfs:
    """Reads `/sys`, or a directory that looks like it."""

    def __init__(self, root: pathlib.Path = pathlib.Path("/sys")) -> None:
        self._devices = root / "bus" / "pci" / "devices"
        self._nodes = root / "devices" / "system" / "node"
        self._driver = root / "bus" / "pci" / "drivers" / "nvidia"

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

    def served(self) -> tuple[int, frozenset[str]] | None:
        """What changes when NVIDIA's driver is loaded anew, or the GPUs that it serves are others.

        The directory of the driver, and the addresses in it; None: it is not loaded.
        """
        try:
            names = frozenset(path.name for path in self._driver.iterdir() if ":" in path.name)
            return self._driver.stat().st_ino, names
        except OSError:
            return None

    def load(self) -> str:
        """What differs between two loads of NVIDIA's kernel module; empty: it is not loaded."""
        served = self.served()
        return "" if served is None else str(served[0])

    def nearest(self, node: int) -> tuple[int, ...]:
        """The other NUMA nodes on the socket of one that are nearest to it; none if unknown.

        By the kernel's table of distances (ACPI SLIT): a socket that is divided (NPS, SNC) has
        several nodes. Nodes without CPUs are on no socket.
        """
        numbers = sorted(
            int(found[1]) for path in _listed(self._nodes) if (found := _NODE.fullmatch(path.name))
        )
        try:
            row = (self._nodes / f"node{node}" / "distance").read_text(encoding="ascii").split()
            distances = dict(zip(numbers, map(int, row), strict=True))
        except (OSError, ValueError):
            return ()
        socket = self._socket(node)
        others = [
            other
            for other in numbers
            if other != node and socket is not None and self._socket(other) == socket
        ]
        least = min((distances[other] for other in others), default=0)
        return tuple(other for other in others if distances[other] == least)

    def _socket(self, node: int) -> int | None:
        """The number of the socket that a node's CPUs are on; None if the kernel says -1 too."""
        for path in _listed(self._nodes / f"node{node}"):
            if _CPU.fullmatch(path.name):
                try:
                    text = (path / "topology" / "physical_package_id").read_text(encoding="ascii")
                    number = int(text)
                except (OSError, ValueError):
                    continue
                return number if number >= 0 else None
        return None

    def located(self, gpu: devices.Gpu) -> devices.Gpu:
        """The GPU, with what the kernel knows of its place."""
        node = self.numa_node(gpu.pci_address)
        return dataclasses.replace(
            gpu,
            pcie_root=self.pcie_root(gpu.pci_address),
            numa_node=node,
            numa_near=() if node is None else self.nearest(node),
        )


def _listed(directory: pathlib.Path) -> list[pathlib.Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []
