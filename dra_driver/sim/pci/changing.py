"""What people, firmware and boots do to the simulated bus of a machine, for tests to do it.

Each takes the directory in which the bus is kept. Faults of the kernel are in `faults`.
"""

import pathlib
from collections.abc import Iterable

from dra_driver import errors
from dra_driver.sim.pci import faults, pci_state, tree

_STATE = ("driver", "override", "virtual_functions", "cdev", "is_gone", "group")
"""Of a function that is in the machine still."""
_FIRST_EXTRA_GROUP = 500


def install(directory: pathlib.Path, functions: Iterable[pci_state.Function]) -> pathlib.Path:
    """Put these functions into the machine, and show them; the path of its `/sys`.

    One that is there already, at the same address, stays with its driver and group; so does what
    somebody put beside it. Any other is new, and has the driver that takes it by itself.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with pci_state.open_file(directory).edit() as bus:
        known = {one.address: one for one in bus.functions}
        made = [_kept(bus, one, known.get(one.address)) for one in functions]
        kept = {one.address for one in made if _is_same(one, known.get(one.address))}
        taken = {one.address for one in made}
        extra = [one for one in bus.functions if one.beside in kept and one.address not in taken]
        bus.functions = [*made, *extra]
        there = {one.address for one in bus.functions}
        bus.pending = [one for one in bus.pending if one.address in there]
        return tree.write(directory, bus)


def _is_same(new: pci_state.Function, known: pci_state.Function | None) -> bool:
    return known is not None and (new.vendor, new.device) == (known.vendor, known.device)


def _kept(
    bus: pci_state.Bus, new: pci_state.Function, known: pci_state.Function | None
) -> pci_state.Function:
    if known is None or not _is_same(new, known):
        pci_state.start(bus, new)
        return new
    return new.model_copy(update={name: getattr(known, name) for name in _STATE})


def reboot(directory: pathlib.Path) -> None:
    """The machine starts anew: each function has the driver that takes it by itself, or none.

    What was pulled out is back, virtual functions are off. Which boot it is, the driver is told by
    its boot id file, which is not changed here.
    """
    with pci_state.open_file(directory).edit() as bus:
        if not bus.functions:
            return
        bus.functions = [one for one in bus.functions if one.physical is None]
        bus.modules, bus.pending = list(pci_state.AT_BOOT), []
        for function in bus.functions:
            pci_state.unbind(function)
            function.override, function.is_gone, function.virtual_functions = None, False, 0
            pci_state.start(bus, function)
        tree.write(directory, bus)


def bind(directory: pathlib.Path, address: str, driver: str | None) -> None:
    """An administrator gives a function to a driver, whose module is loaded for it, or to none."""
    with pci_state.open_file(directory).edit() as bus:
        function = _found(bus, address)
        pci_state.unbind(function)
        function.override = driver if pci_state.is_vfio(driver) else None
        if driver is not None:
            if driver not in bus.modules:
                bus.modules.append(driver)
            pci_state.bind(bus, function, driver)
        tree.write(directory, bus)


def unload(directory: pathlib.Path, driver: str) -> None:
    """The module of a driver is taken out: its functions have none."""
    with pci_state.open_file(directory).edit() as bus:
        if not bus.functions or driver not in bus.modules:
            return
        bus.modules.remove(driver)
        for function in bus.functions:
            if function.driver == driver:
                pci_state.unbind(function)
        tree.write(directory, bus)


def load(directory: pathlib.Path, driver: str) -> None:
    """It is loaded again, and takes what no other driver has."""
    with pci_state.open_file(directory).edit() as bus:
        if not bus.functions or driver in bus.modules:
            return
        bus.modules.append(driver)
        for function in bus.present:
            if function.driver is None and function.native == driver:
                pci_state.start(bus, function)
        tree.write(directory, bus)


def pull(directory: pathlib.Path, address: str) -> None:
    """The function is pulled out, whatever is done with it."""
    with pci_state.open_file(directory).edit() as bus:
        function = _found(bus, address)
        bus.pending = [one for one in bus.pending if one.address != address]
        pci_state.unbind(function)
        function.override, function.is_gone = None, True
        tree.write(directory, bus)


def put_back(directory: pathlib.Path, address: str) -> None:
    """What was pulled out is in the machine again, with the driver that takes it by itself."""
    with pci_state.open_file(directory).edit() as bus:
        function = next(one for one in bus.functions if one.address == address)
        if function.is_gone:
            function.is_gone = False
            pci_state.start(bus, function)
        tree.write(directory, bus)


def set_iommu(directory: pathlib.Path, *, on: bool, iommufd: bool = True) -> None:
    """The machine was started with an IOMMU or without, by a kernel with IOMMUFD or without."""
    with pci_state.open_file(directory).edit() as bus:
        bus.has_iommu, bus.has_iommufd = on, iommufd
        for function in bus.functions:
            function.cdev = None
            if function.driver is not None:
                pci_state.bind(bus, function, function.driver)
        tree.write(directory, bus)


def add_foreign(directory: pathlib.Path, beside: str, *, kind: int = 0x010802) -> str:
    """A device of somebody else is in the IOMMU group of a GPU; its address.

    `kind` is its class: a disk (NVMe) if nothing is said; 0x060400 is a bridge.
    """
    with pci_state.open_file(directory).edit() as bus:
        gpu = _found(bus, beside)
        taken = {one.address for one in bus.functions}
        address = next(
            free for number in range(1, 32) if (free := f"0000:e0:{number:02x}.0") not in taken
        )
        bus.functions.append(
            pci_state.Function(
                address=address,
                above="pci0000:e0",
                vendor=0x144D,
                device=0xA80A,
                kind=kind,
                group=gpu.group,
                bars=[0x4000],
                numa_node=gpu.numa_node,
                beside=beside,
            )
        )
        tree.write(directory, bus)
    return address


def join(directory: pathlib.Path, *addresses: str) -> None:
    """The cards at these addresses are in one IOMMU group, that of the first."""
    with pci_state.open_file(directory).edit() as bus:
        groups = [_found(bus, address).group for address in addresses]
        for function in bus.functions:
            if function.group in groups:
                function.group = groups[0]
        tree.write(directory, bus)


def set_virtual_functions(directory: pathlib.Path, address: str, count: int) -> list[str]:
    """So many virtual functions of a GPU are on; their addresses. Each is in a group of its own."""
    with pci_state.open_file(directory).edit() as bus:
        gpu = _found(bus, address)
        gpu.virtual_functions = count
        bus.functions = [one for one in bus.functions if one.physical != address]
        first = max(_FIRST_EXTRA_GROUP, *(one.group + 1 for one in bus.functions))
        made = [_virtual(gpu, number, first + number) for number in range(count)]
        for one in made:
            pci_state.start(bus, one)
        bus.functions += made
        tree.write(directory, bus)
    return [one.address for one in made]


def _virtual(gpu: pci_state.Function, number: int, group: int) -> pci_state.Function:
    place = 4 + number
    return pci_state.Function(
        address=f"{gpu.address[:8]}{place // 8:02x}.{place % 8}",
        above=gpu.above,
        device=gpu.device,
        kind=gpu.kind,
        group=group,
        numa_node=gpu.numa_node,
        native=gpu.native,
        product=gpu.product,
        beside=gpu.address,
        physical=gpu.address,
    )


def repair(directory: pathlib.Path) -> None:
    """Nothing is wrong with the machine and its kernel: as after `reboot`, and without faults."""
    faults.clear(directory)
    with pci_state.open_file(directory).edit() as bus:
        bus.functions = [one for one in bus.functions if one.beside is None]
        bus.has_iommu = bus.has_iommufd = True
    reboot(directory)


def _found(bus: pci_state.Bus, address: str) -> pci_state.Function:
    function = bus.find(address)
    if function is None:
        known = ", ".join(one.address for one in bus.present)
        raise errors.Rejected(f"PCI function {address!r}: the machine has {known or 'none'}")
    return function
