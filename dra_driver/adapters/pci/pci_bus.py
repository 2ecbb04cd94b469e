"""The PCI bus of the node: NVIDIA's GPUs, what is beside them, and which driver has which."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.pci import pci_kernel, pci_tree
from dra_driver.model import devices, driver, pci, pci_ids

SECONDS = 20.0
"""How long the kernel may take for one change. Unbinding a GPU that nobody uses takes a few."""
LOAD_SECONDS = 30.0
"""How long the kernel may take to load a module."""
_IOMMUFD = "/dev/iommu"
_MODULES = ("/lib/modules", "/usr/lib/modules")
_IDS = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

FindNode = Callable[[driver_root.Root, str], driver.DeviceNode | None]
"""The device node at an absolute path under a root, None where there is none."""


class PciBus:
    """Reads and changes the bus, through sysfs; what the kernel is asked to do is bounded."""

    def __init__(
        self,
        kernel: pci_kernel.Kernel,
        *,
        sysfs: pathlib.Path,
        host_root: pathlib.Path,
        node: FindNode = driver_root.device_node,
        seconds: float = SECONDS,
    ) -> None:
        """`host_root` is where the host's `/dev` and `/lib/modules` are seen.

        `node` finds device nodes; `seconds` are how long the kernel may take for one change.
        """
        self._kernel = kernel
        self._tree = pci_tree.PciTree(sysfs)
        self._host = driver_root.Root("/", host_root)
        self._node = node
        self._seconds = seconds
        self._products: Mapping[int, str] | None = None

    def scan(self) -> pci.Bus:
        """What is on the bus now, of GPUs and what shares a group with one."""
        found: dict[devices.PciAddress, pci.Function] = {}
        for address in self._tree.gpus():
            self._add(found, address)
        for group in {one.group for one in found.values() if one.group is not None}:
            for address in self._tree.members(group):
                self._add(found, address)
        return pci.Bus(
            functions=found,
            has_iommu=self._tree.has_iommu(),
            has_iommufd=self.seen(_IOMMUFD).exists(),
        )

    def function(self, address: devices.PciAddress) -> pci.Function | None:
        """One function as it is now; None where there is none at the address."""
        found = self._tree.function(address)
        if found is None or found.vendor != pci.NVIDIA:
            return found
        return dataclasses.replace(found, product=self._named().get(found.device))

    def aliases(self) -> Sequence[str]:
        """The lines of the running kernel's `modules.alias`; none where it is not to be had."""
        for folder in _MODULES:
            with contextlib.suppress(OSError):
                path = self.seen(f"{folder}/{os.uname().release}/modules.alias")
                return path.read_text(encoding="utf-8", errors="replace").splitlines()
        return ()

    def driver_of(self, module: str) -> str | None:
        """The PCI driver that a module has; None while it is not loaded."""
        return self._tree.driver_of(module)

    def load(self, module: str) -> str:
        """Have a module loaded; the name of its PCI driver.

        Raises:
            errors.Retryable: it cannot be loaded; the text says what to do.
        """
        found = self.driver_of(_checked("module", module, _NAME))
        if found is None:
            self._kernel.load(module, LOAD_SECONDS)
            found = self.driver_of(module)
        if found is None:
            raise pci_kernel.Refused(
                f"kernel module {module}: it is loaded, and there is no PCI driver of it: see "
                "dmesg on the node, and whether the module is one that passes devices through"
            )
        return found

    def allow(self, address: devices.PciAddress, driver: str | None) -> None:
        """Have only this driver bound to the function, or any that fits (`driver_override`).

        Raises:
            errors.Retryable: the kernel says no, or does not come back.
        """
        if driver is not None:
            _checked("driver", driver, _NAME)
        doing = f"reserving it for {driver}" if driver else "leaving it to any driver"
        with self._asking(address, doing):
            # A newline alone takes back what was said (sysfs-bus-pci, `driver_override`).
            path = self._tree.override(address)
            self._kernel.write(path, f"{driver or ''}\n", self._seconds)

    def unbind(self, address: devices.PciAddress) -> None:
        """Take the function from its driver; fine where it has none.

        Raises:
            errors.Retryable: the kernel says no, or does not come back.
        """
        had = self._tree.driver(address)
        with self._asking(address, f"taking it from {had or 'its driver'}"):
            if had is None:
                return
            try:
                self._kernel.write(self._tree.door(had, "unbind"), address, self._seconds)
            except OSError:
                # Somebody was quicker.
                if self._tree.driver(address) is not None:
                    raise

    def bind(self, address: devices.PciAddress, driver: str) -> None:
        """Give the function, which has no driver, to this one; fine where it has it already.

        Raises:
            errors.Retryable: the kernel says no, or does not come back.
        """
        with self._asking(address, f"giving it to {_checked('driver', driver, _NAME)}"):
            if self._tree.driver(address) == driver:
                return
            try:
                self._kernel.write(self._tree.door(driver, "bind"), address, self._seconds)
            except OSError:
                if self._tree.driver(address) != driver:
                    raise
            has = self._tree.driver(address)
            if has != driver:
                raise pci_kernel.Refused(
                    f"{address}: giving it to {driver}: the kernel says that it is done, and its "
                    f"driver is {has or 'none'}: see dmesg on the node"
                )

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """The processes that change the driver of the function at this moment."""
        return self._kernel.hanging(address)

    def nodes(self, paths: Sequence[str]) -> tuple[driver.DeviceNode, ...]:
        """Device nodes of the host.

        Raises:
            errors.Retryable: one is not there.
        """
        found = {path: self._node(self._host, path) for path in paths}
        missing = [path for path, node in found.items() if node is None]
        if missing:
            raise errors.Retryable(
                f"no such character device on the host: {', '.join(missing)}, looked for below "
                f"{str(self._host.seen)!r}: see dmesg on the node, and whether /dev of the host "
                "is mounted there (--host-root)"
            )
        return tuple(node for node in found.values() if node is not None)

    def screens(self, address: devices.PciAddress) -> list[pathlib.Path]:
        """Where this process sees the device nodes by which programs draw with a GPU."""
        return [self.seen(f"/dev/dri/{name}") for name in self._tree.screens(address)]

    def seen(self, path: str) -> pathlib.Path:
        """Where this process sees a device node of the host."""
        return self._host.at(path)

    def _add(
        self, found: dict[devices.PciAddress, pci.Function], address: devices.PciAddress
    ) -> None:
        function = None if address in found else self.function(address)
        if function is not None:
            found[address] = function

    def _named(self) -> Mapping[int, str]:
        """What NVIDIA's devices are called; read once, as hosts do not change it often."""
        if self._products is None:
            own = pathlib.Path(_IDS[0])
            self._products = _products([*(self.seen(path) for path in _IDS), own])
        return self._products

    @contextlib.contextmanager
    def _asking(self, address: devices.PciAddress, doing: str) -> Iterator[None]:
        """What the kernel says no to is told, with the function and its driver.

        Nothing more is asked of it about a function of which it has not come back.
        """
        _checked("PCI address", address, _ADDRESS)
        if pids := self.hanging(address):
            raise pci_kernel.Hung(
                f"{address}: {doing}: an earlier change of its driver hangs in the kernel "
                f"({_processes(pids)}): end what uses the device, see dmesg on the node; if it "
                "stays so, reboot the node"
            )
        try:
            yield
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error.errno))
            raise pci_kernel.Refused(
                f"{address} ({self._tree.driver(address) or 'no driver'}): {doing}: the kernel "
                f"says {name} ({error.strerror or error}): see dmesg on the node"
            ) from error
        except pci_kernel.Hung as error:
            raise pci_kernel.Hung(
                f"{address}: {doing}: {error}: end what uses the device, see dmesg on the node; "
                "it may be done yet"
            ) from error


def _products(paths: Sequence[pathlib.Path]) -> Mapping[int, str]:
    for path in paths:
        with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
            return pci_ids.products(lines, pci.NVIDIA)
    return {}


def _processes(pids: Sequence[int]) -> str:
    return f"pid {', '.join(map(str, pids))}"


def _checked(what: str, text: str, allowed: re.Pattern[str]) -> str:
    """So that it is one element of a path."""
    if not allowed.fullmatch(text):
        raise errors.Rejected(f"{what} {text!r}: it has to match {allowed.pattern}")
    return text
