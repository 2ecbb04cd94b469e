"""`/sys`, `/dev`, the modules and the PCI id database of a node, as files on disk.

The ABI is that of Linux (`Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-devices-driver`,
`sysfs-kernel-iommu_groups`, `vfio.rst`). Plain files stand for device nodes, which only root can
make.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator

from dra_driver.sim.pci import pci_state

SYS, DEVICES = "sys", "dev"
_MEMORY = 0x14220C
"""The flags of each BAR of an H200 (Linux 6.18)."""
_RESOURCES = 13
_ALIASES = (
    "alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia",
    "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci",
    "alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci",
    "alias vfio_pci:v000010DEd00002345sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci",
)
"""Of a kernel with NVIDIA's driver; the devices are those of `nvgrace-gpu/main.c` (GH200)."""


def write(directory: pathlib.Path, bus: pci_state.Bus) -> pathlib.Path:
    """Have everything below `directory` as the bus is; the path of `/sys`.

    Nothing is touched that is so already: others may be reading it.
    """
    root, aside = directory / SYS, directory / f".{SYS}.new"
    shutil.rmtree(aside, ignore_errors=True)
    for folder in ("bus/pci/devices", "bus/pci/drivers", "kernel/iommu_groups", "module"):
        (aside / folder).mkdir(parents=True)
    for driver in bus.modules:
        _write_driver(aside, driver)
    for function in bus.present:
        _write_function(aside, bus, function)
    if _content(aside) == _content(root):
        shutil.rmtree(aside)
    else:
        for path in root.rglob("*"):
            if path.is_fifo():
                _answer(path, "")
        shutil.rmtree(root, ignore_errors=True)
        aside.rename(root)
    _write_host(directory, bus)
    write_nodes(directory, bus)
    return root


def show(directory: pathlib.Path, bus: pci_state.Bus, function: pci_state.Function) -> None:
    """Have what `/sys` and `/dev` tell of a function's driver as it is."""
    _bind(directory / SYS, bus, function)
    write_nodes(directory, bus)


def add_driver(directory: pathlib.Path, driver: str) -> None:
    """A module is loaded."""
    _write_driver(directory / SYS, driver)


def write_nodes(directory: pathlib.Path, bus: pci_state.Bus) -> None:
    """Have the device nodes that a kernel makes for the functions that VFIO drivers have."""
    root = directory / DEVICES
    wanted = set(_nodes(bus))
    for name in wanted:
        path = root / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
    for folder in (root, root / "vfio", root / "vfio" / "devices"):
        for path in _listed(folder):
            if str(path.relative_to(root)) not in wanted and not path.is_dir():
                path.unlink(missing_ok=True)


def _nodes(bus: pci_state.Bus) -> Iterator[str]:
    """Their names below `/dev`. The first two are there from the start of the machine."""
    yield "vfio/vfio"
    if bus.has_iommufd:
        yield "iommu"
    for function in bus.present:
        if pci_state.is_vfio(function.driver) and bus.has_iommu:
            yield f"vfio/{function.group}"
            if function.cdev is not None:
                yield f"vfio/devices/vfio{function.cdev}"


def _write_function(root: pathlib.Path, bus: pci_state.Bus, function: pci_state.Function) -> None:
    device = _place(root, function)
    device.mkdir(parents=True)
    facts = {
        "vendor": f"0x{function.vendor:04x}",
        "device": f"0x{function.device:04x}",
        "class": f"0x{function.kind:06x}",
        "modalias": function.modalias,
        "numa_node": str(function.numa_node),
        "resource": "\n".join(_resources(function.bars)),
    }
    for name, value in facts.items():
        (device / name).write_text(f"{value}\n", encoding="ascii")
    _link(root / "bus/pci/devices" / function.address, device)
    if function.physical is not None and (physical := bus.find(function.physical)) is not None:
        _link(device / "physfn", _place(root, physical))
    for number, one in enumerate(one for one in bus.present if one.physical == function.address):
        _link(device / f"virtfn{number}", _place(root, one))
    if bus.has_iommu:
        group = root / "kernel/iommu_groups" / str(function.group)
        (group / "devices").mkdir(parents=True, exist_ok=True)
        _link(group / "devices" / function.address, device)
        _link(device / "iommu_group", group)
    _bind(root, bus, function)


def _resources(bars: Iterable[int]) -> Iterator[str]:
    """Lines of `resource`: six BARs, of which one of 64 bits takes two, then what else there is."""
    start = 0x380000000000
    lines = [(0, 0, 0)] * _RESOURCES
    for number, size in enumerate(bars):
        lines[number] = (start, start + size - 1, _MEMORY) if size else (0, 0, 0)
        start += size
    for line in lines:
        yield " ".join(f"0x{number:016x}" for number in line)


def _write_driver(root: pathlib.Path, driver: str) -> None:
    folder = root / "bus/pci/drivers" / driver
    module = root / "module" / pci_state.module_of(driver)
    for made in (folder, module / "drivers"):
        made.mkdir(parents=True, exist_ok=True)
    for name in ("bind", "unbind", "new_id", "remove_id"):
        (folder / name).touch()
    _link(folder / "module", module)
    _link(module / "drivers" / f"pci:{driver}", folder)


def _bind(root: pathlib.Path, bus: pci_state.Bus, function: pci_state.Function) -> None:
    """Have the links and files that change with a function's driver as they should be."""
    device, drivers = _place(root, function), root / "bus/pci/drivers"
    driver = _linked(bus, function)
    for folder in _listed(drivers):
        if folder.name != driver:
            (folder / function.address).unlink(missing_ok=True)
    facts = {"driver_override": function.override or "(null)"}
    if function.physical is None and function.kind >> 16 == 0x03:
        facts["sriov_numvfs"] = str(function.virtual_functions)
    for name, value in facts.items():
        _put_locked(
            device / name, f"{value}\n", is_locked=bus.waiting(function.address) is not None
        )
    named = None if function.cdev is None else f"vfio{function.cdev}"
    for path in _listed(device / "vfio-dev"):
        if path.name != named:
            path.rmdir()
    if named is None:
        with contextlib.suppress(FileNotFoundError):
            (device / "vfio-dev").rmdir()
    else:
        (device / "vfio-dev" / named).mkdir(parents=True, exist_ok=True)
    if driver is None:
        (device / "driver").unlink(missing_ok=True)
    else:
        _link(device / "driver", drivers / driver)
        _link(drivers / driver / function.address, device)


def _linked(bus: pci_state.Bus, function: pci_state.Function) -> str | None:
    """The driver that links tell of: they go before it is left, and come before it is had (Linux,
    `__device_release_driver` and `really_probe` in `drivers/base/dd.c`).
    """
    waiting = bus.waiting(function.address)
    if waiting is None:
        return function.driver
    return waiting.driver if waiting.action == "bind" else None


def _write_host(directory: pathlib.Path, bus: pci_state.Bus) -> None:
    """What else of the host is read: the aliases of its kernel's modules, and names of devices."""
    modules = directory / "lib/modules" / os.uname().release
    names = directory / "usr/share/misc"
    for folder in (modules, names):
        folder.mkdir(parents=True, exist_ok=True)
    _put(modules / "modules.alias", "".join(f"{line}\n" for line in _ALIASES))
    known = {one.device: one.product for one in bus.functions if one.product}
    lines = [f"\t{device:04x}  {product}\n" for device, product in sorted(known.items())]
    _put(names / "pci.ids", "".join(("# Of a simulated node\n10de  NVIDIA Corporation\n", *lines)))


def _place(root: pathlib.Path, function: pci_state.Function) -> pathlib.Path:
    return root / "devices" / function.above / function.address


def _link(path: pathlib.Path, target: pathlib.Path) -> None:
    """A relative link, as those of the kernel are; not made again where it is so."""
    wanted = os.path.relpath(target, path.parent)
    if path.is_symlink():
        if str(path.readlink()) == wanted:
            return
        path.unlink()
    path.symlink_to(wanted)


def _put(path: pathlib.Path, text: str) -> None:
    """All at once: others may be reading it. Not at all where it is so."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="ascii") == text:
            return
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(text, encoding="ascii")
    aside.replace(path)


def _put_locked(path: pathlib.Path, text: str, *, is_locked: bool) -> None:
    """A file of which the kernel tells with the lock of the device held: while a driver is at work
    on that, who reads it does not come back (Linux, `driver_override_show` in
    `drivers/pci/pci-sysfs.c`, `sriov_numvfs_show` in `iov.c` from 5.5 to 6.11).
    """
    if is_locked and not path.is_fifo():
        aside = path.with_name(f".{path.name}.new")
        os.mkfifo(aside)
        aside.replace(path)
    elif not is_locked and path.is_fifo():
        aside = path.rename(path.with_name(f".{path.name}.old"))
        _put(path, text)
        _answer(aside, text)
        aside.unlink()
    elif not is_locked:
        _put(path, text)


def _answer(fifo: pathlib.Path, text: str) -> None:
    """Let those go who wait for what it says."""
    with contextlib.suppress(OSError):
        writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(writer, text.encode())
        finally:
            os.close(writer)


def _listed(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _content(root: pathlib.Path) -> dict[str, str]:
    """What is in a tree: the text of files, where links lead, and directories."""
    return {str(path.relative_to(root)): _told(path) for path in root.rglob("*")}


def _told(path: pathlib.Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    return "" if path.is_dir() or path.is_fifo() else path.read_text(encoding="ascii")
