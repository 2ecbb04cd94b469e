"""What sysfs tells of PCI functions (Linux, `Documentation/ABI/testing/sysfs-bus-pci`).

Functions come and go at any moment, with hot plug, virtual functions and resets: one that goes
while it is read is not there. Nothing is read that the kernel tells with the lock of the device
held, as `driver_override` and `sriov_numvfs` (Linux, `drivers/pci/pci-sysfs.c`, `iov.c`): while a
driver does not let go of its device, whoever reads that does not come back.
"""

import contextlib
import pathlib
from collections.abc import Iterator

from dra_driver.adapters.system import sysfs
from dra_driver.model import devices, pci

_BARS = 6
_IORESOURCE_MEM = 0x200
"""Linux, `include/linux/ioport.h`."""
_DRI = ("card", "renderD")
"""Linux, `Documentation/gpu/drm-uapi.rst`."""


class PciTree:
    """Reads `/sys`, or a directory that looks like it."""

    def __init__(self, root: pathlib.Path) -> None:
        self._devices = root / "bus" / "pci" / "devices"
        self._drivers = root / "bus" / "pci" / "drivers"
        self._groups = root / "kernel" / "iommu_groups"
        self._modules = root / "module"
        self._place = sysfs.Sysfs(root)

    def gpus(self) -> Iterator[devices.PciAddress]:
        """The addresses of all of NVIDIA's display functions: two small files of each function."""
        for path in _listed(self._devices):
            with contextlib.suppress(OSError, ValueError):
                vendor, kind = _number(path / "vendor"), _number(path / "class")
                if vendor == pci.NVIDIA and kind >> 16 == pci.DISPLAY:
                    yield devices.PciAddress(path.name)

    def members(self, group: int) -> list[devices.PciAddress]:
        """The addresses of what is in an IOMMU group."""
        folder = self._groups / str(group) / "devices"
        return [devices.PciAddress(path.name) for path in _listed(folder)]

    def has_iommu(self) -> bool:
        """Whether there are IOMMU groups."""
        return bool(_listed(self._groups))

    def function(self, address: devices.PciAddress) -> pci.Function | None:
        """A function as it is now, without the name of its product; None where there is none."""
        path = self._devices / address
        physical = _target(path / "physfn")
        try:
            found = pci.Function(
                address=address,
                vendor=_number(path / "vendor"),
                device=_number(path / "device"),
                kind=_number(path / "class"),
                modalias=_text(path / "modalias"),
                driver=self.driver(address),
                group=_group(path),
                memory_bytes=_memory(_text(path / "resource")),
                numa_node=self._place.numa_node(address),
                pcie_root=self._place.pcie_root(address),
                physical=None if physical is None else devices.PciAddress(physical),
                virtual_functions=sum(one.name.startswith("virtfn") for one in _listed(path)),
                cdev=next((one.name for one in _listed(path / "vfio-dev")), None),
            )
        except (OSError, ValueError):
            return None
        # What could not be read may be what went with it.
        return found if path.exists() else None

    def driver(self, address: devices.PciAddress) -> str | None:
        """The driver that a function is bound to."""
        return _target(self._devices / address / "driver")

    def screens(self, address: devices.PciAddress) -> list[str]:
        """The names below `/dev/dri` of what draws with a function; none without such a driver."""
        names = (path.name for path in _listed(self._devices / address / "drm"))
        return [name for name in names if name.startswith(_DRI)]

    def driver_of(self, module: str) -> str | None:
        """The PCI driver that a module has; None while it has none.

        It is called like its module, but for dashes; where it is not, the module tells.
        """
        for path in _listed(self._drivers):
            if _plain(path.name) == _plain(module):
                return path.name
        for path in _listed(self._modules / _plain(module) / "drivers"):
            bus, _, name = path.name.partition(":")
            if bus == "pci" and name:
                return name
        return None

    def override(self, address: devices.PciAddress) -> pathlib.Path:
        """The file that says which driver alone may have a function."""
        return self._devices / address / "driver_override"

    def door(self, driver: str, action: str) -> pathlib.Path:
        """The file of a driver into which addresses are written, for it to `bind` or `unbind`."""
        return self._drivers / driver / action


def _plain(module: str) -> str:
    """The kernel takes a dash and an underscore for the same."""
    return module.replace("-", "_")


def _text(path: pathlib.Path) -> str:
    return path.read_text(encoding="ascii", errors="replace").strip()


def _number(path: pathlib.Path) -> int:
    return int(_text(path), 16)


def _group(path: pathlib.Path) -> int | None:
    target = _target(path / "iommu_group")
    return None if target is None else int(target)


def _target(path: pathlib.Path) -> str | None:
    """The last element of where a link leads."""
    try:
        return path.readlink().name
    except OSError:
        return None


def _memory(text: str) -> int:
    """The size of all memory BARs, by the lines of `resource`: start, end and flags of each."""
    total = 0
    for line in text.splitlines()[:_BARS]:
        start, end, flags = (int(number, 16) for number in line.split())
        if flags & _IORESOURCE_MEM and end > start:
            total += end - start + 1
    return total


def _listed(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
