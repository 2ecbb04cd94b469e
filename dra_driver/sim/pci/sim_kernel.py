"""The kernel of a simulated node: what is written into its `/sys` is done there."""

import errno
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Literal, Protocol

from dra_driver.adapters.pci import pci_kernel
from dra_driver.model import devices
from dra_driver.sim.pci import changing, faults, pci_state, tree

_HANG_SECONDS = 0.05
"""What hangs until somebody ends it, is not waited for longer: tests have no time."""
_POLL_SECONDS = 0.005
_FIRST_PID = 2**22 + 1
"""Above what Linux gives to processes: nobody else has these numbers."""


class Driver(Protocol):
    """What a simulated driver does with its functions beyond having them."""

    def is_used(self, address: str) -> bool:
        """Whether somebody has the function open: it cannot be unbound until they let go."""

    def left(self, address: str) -> None:
        """It does not have the function any more."""


class SimKernel:
    """See `pci_kernel.Kernel`. State and faults are files in `state_dir`.

    `drivers` are those that do more than have functions, by name.
    """

    def __init__(
        self, state_dir: pathlib.Path, drivers: Mapping[str, Driver] | None = None
    ) -> None:
        self._state_dir = state_dir
        self._file = pci_state.open_file(state_dir)
        self._drivers = drivers or {}

    def write(self, path: pathlib.Path, text: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        if not path.exists():
            raise _refusal(errno.ENOENT)
        self._settle()
        if path.name == "driver_override":
            self._allow(path.parent.name, text.strip() or None)
        elif path.name == "bind":
            self._change("bind", text.strip(), path.parent.name, seconds)
        elif path.name == "unbind":
            self._change("unbind", text.strip(), path.parent.name, seconds)
        else:
            raise _refusal(errno.EACCES)

    def load(self, module: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        wanted = module.replace("-", "_")
        driver = next((one for one in pci_state.KNOWN if pci_state.module_of(one) == wanted), None)
        fault = faults.take(self._state_dir, "load", None, module)
        if fault is not None and fault.error is None:
            raise pci_kernel.Hung(f"modprobe {module} did not end within {seconds:g} s")
        with self._file.edit() as bus:
            if driver is None or (fault is not None and driver not in bus.modules):
                raise pci_kernel.Refused(
                    f"modprobe: FATAL: Module {module} not found in directory "
                    f"/lib/modules/{os.uname().release}"
                )
            if driver not in bus.modules:
                bus.modules.append(driver)
                tree.add_driver(self._state_dir, driver)

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """See `pci_kernel.Kernel`."""
        self._settle()
        return tuple(one.pid for one in self._file.read().pending if one.address == address)

    def _allow(self, address: str, driver: str | None) -> None:
        if self._file.read().waiting(address) is not None:
            # The kernel takes the lock of the device for it, which the other one has.
            raise _hung(_HANG_SECONDS)
        self._meet("override", address, driver)
        with self._file.edit() as bus:
            function = _there(bus, address)
            function.override = driver
            tree.show(self._state_dir, bus, function)

    def _change(
        self, action: Literal["bind", "unbind"], address: str, driver: str, seconds: float
    ) -> None:
        if self._file.read().waiting(address) is not None:
            raise _hung(min(seconds, _HANG_SECONDS))
        self._meet(action, address, driver)
        with self._file.edit() as bus:
            function = _there(bus, address)
            _check(action, bus, function, driver)
            pid = max((one.pid + 1 for one in bus.pending), default=_FIRST_PID)
            what = pci_state.Pending(address=address, action=action, driver=driver, pid=pid)
            if not self._is_held_up(what):
                self._do(bus, what)
                return
            bus.pending.append(what)
            tree.show(self._state_dir, bus, function)
        if faults.hangs(self._state_dir, action, address, driver):
            seconds = min(seconds, _HANG_SECONDS)
        self._wait(address, seconds)

    def _wait(self, address: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.hanging(devices.PciAddress(address)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise _hung(seconds)
            time.sleep(min(left, _POLL_SECONDS))

    def _meet(self, action: faults.Action, address: str, driver: str | None) -> None:
        fault = faults.take(self._state_dir, action, address, driver)
        if fault is None or fault.error is None:
            return
        if fault.vanishes:
            changing.pull(self._state_dir, address)
        raise _refusal(fault.error)

    def _settle(self) -> None:
        """Do what had begun and is held up no more."""
        if not any(not self._is_held_up(one) for one in self._file.read().pending):
            return
        with self._file.edit() as bus:
            for one in [one for one in bus.pending if not self._is_held_up(one)]:
                bus.pending.remove(one)
                self._do(bus, one)

    def _is_held_up(self, what: pci_state.Pending) -> bool:
        if faults.hangs(self._state_dir, what.action, what.address, what.driver):
            return True
        driver = self._drivers.get(what.driver)
        return what.action == "unbind" and driver is not None and driver.is_used(what.address)

    def _do(self, bus: pci_state.Bus, what: pci_state.Pending) -> None:
        function = bus.find(what.address)
        if function is None:
            return
        if what.action == "bind":
            pci_state.bind(bus, function, what.driver)
        else:
            pci_state.unbind(function)
            if what.driver in self._drivers:
                self._drivers[what.driver].left(what.address)
        tree.show(self._state_dir, bus, function)


def _there(bus: pci_state.Bus, address: str) -> pci_state.Function:
    function = bus.find(address)
    if function is None:
        raise _refusal(errno.ENODEV)
    return function


def _check(
    action: Literal["bind", "unbind"],
    bus: pci_state.Bus,
    function: pci_state.Function,
    driver: str,
) -> None:
    """As `bind_store`, `unbind_store` (Linux, `drivers/base/bus.c`) and `pci_match_device` do."""
    if action == "unbind":
        if function.driver != driver:
            raise _refusal(errno.ENODEV)
        return
    takes = driver == (function.override or function.native)
    if not takes or driver not in bus.modules or not _serves(driver, function):
        raise _refusal(errno.ENODEV)
    if function.driver is not None:
        raise _refusal(errno.EBUSY)
    if pci_state.is_vfio(driver) and not bus.has_iommu:
        raise _refusal(errno.EINVAL)


def _serves(driver: str, function: pci_state.Function) -> bool:
    """Whether its probe takes the function; what is in an IOMMU group, a VFIO driver does."""
    return pci_state.is_vfio(driver) or function.native == driver


def _refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _hung(seconds: float) -> pci_kernel.Hung:
    time.sleep(0 if seconds <= 0 else min(seconds, _POLL_SECONDS))
    return pci_kernel.Hung(f"the kernel did not come back within {seconds:g} s")
