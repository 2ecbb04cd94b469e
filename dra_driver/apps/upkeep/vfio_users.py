"""Which processes have a GPU open that a VFIO driver has: virtual machines, by its device nodes."""

import pathlib
from collections.abc import Sequence

from dra_driver.adapters.pci import pci_bus
from dra_driver.adapters.system import file_holders
from dra_driver.logic.passthrough import cards
from dra_driver.model import devices


class VfioUsers:
    """Asks procfs. Nodes that all virtual machines have open tell nothing: `/dev/vfio/vfio`."""

    def __init__(self, bus: pci_bus.PciBus, proc_root: pathlib.Path) -> None:
        self._bus = bus
        self._proc_root = proc_root

    def of(self, address: devices.PciAddress) -> Sequence[int]:
        """The pids of those that have the function open, or its IOMMU group."""
        function = self._bus.function(address)
        if function is None or not cards.is_vfio_driver(function.driver):
            return ()
        nodes = [] if function.group is None else [f"/dev/vfio/{function.group}"]
        nodes += [] if function.cdev is None else [f"/dev/vfio/devices/{function.cdev}"]
        return file_holders.pids(self._proc_root, [self._bus.seen(node) for node in nodes])
