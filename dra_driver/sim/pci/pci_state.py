"""The simulated PCI bus of one node: its functions, which driver has which, and loaded modules.

`<directory>/pci.json` is what a kernel knows; `/sys` and `/dev/vfio` on disk show it (`tree`).
"""

import pathlib
from typing import Literal

import pydantic

from dra_driver.sim import hardware_files

FILE = "pci.json"
NVIDIA, SOUND, GENERIC, GRACE = "nvidia", "snd_hda_intel", "vfio-pci", "nvgrace-gpu-vfio-pci"
"""The drivers that there are. A module has the name of its driver, with underscores."""
KNOWN = (NVIDIA, SOUND, GENERIC, GRACE)
AT_BOOT = (NVIDIA, SOUND)
"""Those that are loaded by themselves."""


class _State(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Function(_State):
    """A function of the bus. `above` is where in `/sys/devices` what it hangs on is.

    `native` is the driver that takes it by itself, `product` its name in the PCI id database.
    `beside` is the GPU with which it was put into the machine (`changing`), None for those that
    the machine is made of; `is_gone`: it was pulled out.
    """

    address: str
    above: str
    device: int
    kind: int
    group: int
    vendor: int = 0x10DE
    subsystem: int = 0
    bars: list[int] = []
    numa_node: int = -1
    native: str | None = None
    product: str | None = None
    beside: str | None = None
    physical: str | None = None
    driver: str | None = None
    override: str | None = None
    virtual_functions: int = 0
    cdev: int | None = None
    is_gone: bool = False

    @property
    def modalias(self) -> str:
        """As the kernel writes it (Linux, `file2alias.c`)."""
        sub = f"sv{self.vendor:08X}sd{self.subsystem:08X}"
        kind = f"bc{self.kind >> 16:02X}sc{self.kind >> 8 & 0xFF:02X}i{self.kind & 0xFF:02X}"
        return f"pci:v{self.vendor:08X}d{self.device:08X}{sub}{kind}"


class Pending(_State):
    """What the kernel has begun and not ended: a function is bound, or unbound, by a process."""

    address: str
    action: Literal["bind", "unbind"]
    driver: str
    pid: int


class Bus(_State):
    """All of a node. `modules` are the drivers that are loaded."""

    version: Literal[1] = 1
    functions: list[Function] = []
    modules: list[str] = list(AT_BOOT)
    has_iommu: bool = True
    has_iommufd: bool = True
    pending: list[Pending] = []

    def find(self, address: str) -> Function | None:
        """The function at an address, if there is one still."""
        return next(
            (one for one in self.functions if one.address == address and not one.is_gone), None
        )

    @property
    def present(self) -> list[Function]:
        """The functions that there are still, by address."""
        return sorted(
            (one for one in self.functions if not one.is_gone), key=lambda one: one.address
        )

    def waiting(self, address: str) -> Pending | None:
        """What is not done yet with a function."""
        return next((one for one in self.pending if one.address == address), None)


def open_file(directory: pathlib.Path) -> hardware_files.ModelFile[Bus]:
    """The file in which the bus of this directory is kept."""
    return hardware_files.ModelFile(directory / FILE, Bus())


def apart_from(bus: Bus, driver: str) -> frozenset[str]:
    """The addresses of the functions that a driver does not have."""
    return frozenset(one.address for one in bus.functions if one.is_gone or one.driver != driver)


def closed_to(bus: Bus, driver: str) -> frozenset[str]:
    """Those, and the ones that it gives up as soon as nobody has them open: nobody opens them."""
    leaving = {one.address for one in bus.pending if one.action == "unbind"}
    return apart_from(bus, driver) | leaving


def bind(bus: Bus, function: Function, driver: str) -> None:
    """The driver has the function from now on."""
    function.driver = driver
    if is_vfio(driver) and bus.has_iommu and bus.has_iommufd:
        taken = {one.cdev for one in bus.functions}
        function.cdev = next(number for number in range(len(taken) + 1) if number not in taken)


def unbind(function: Function) -> None:
    """No driver has it."""
    function.driver = function.cdev = None


def start(bus: Bus, function: Function) -> None:
    """The driver that takes it by itself does, if it is loaded and nobody said another."""
    if function.native in bus.modules and function.override in {None, function.native}:
        assert function.native is not None  # noqa: S101 - it is loaded
        bind(bus, function, function.native)


def is_vfio(driver: str | None) -> bool:
    """Whether it hands functions to programs."""
    return driver in {GENERIC, GRACE}


def module_of(driver: str) -> str:
    """The module that a driver is in."""
    return driver.replace("-", "_")
