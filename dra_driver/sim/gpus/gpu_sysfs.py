"""A `/sys` for the simulated GPUs: PCI paths and NUMA nodes, as links and files on disk."""

import pathlib
import shutil

from dra_driver.sim.gpus import gpu_models, gpu_state


def write(directory: pathlib.Path, node: gpu_state.Node) -> pathlib.Path:
    """Write `<directory>/sys` for these GPUs, and return its path.

    Two GPUs or more sit on two NUMA nodes, one half each; inside a half, neighbours share a PCIe
    root in pairs.
    """
    root, aside = directory / "sys", directory / ".sys.new"
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "bus" / "pci" / "devices").mkdir(parents=True)
    for position, gpu in enumerate(node.gpus):
        _write_device(aside, gpu, position, *_place(position, len(node.gpus)))
    if _content(aside) == _content(root):
        # Others may be reading what is there.
        shutil.rmtree(aside)
        return root
    shutil.rmtree(root, ignore_errors=True)
    aside.rename(root)
    return root


def _content(root: pathlib.Path) -> dict[str, str]:
    """What is in a tree: the text of files, and where links lead."""
    return {
        str(path.relative_to(root)): str(path.readlink())
        if path.is_symlink()
        else path.read_text(encoding="ascii")
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def _place(position: int, count: int) -> tuple[int, int]:
    """The NUMA node of a GPU, and the position of the first GPU on its PCIe root."""
    half = (count + 1) // 2
    numa_node, inside = divmod(position, half)
    return numa_node, numa_node * half + inside - inside % 2


def _write_device(
    root: pathlib.Path, gpu: gpu_state.Gpu, position: int, numa_node: int, first: int
) -> None:
    root_bus = gpu_state.bus(first) - 2
    port = f"0000:{root_bus:02x}:{position - first + 1:02x}.0"
    path = pathlib.PurePath("devices", f"pci0000:{root_bus:02x}", port, gpu.pci_address)
    device = root / path
    device.mkdir(parents=True)
    facts = {
        "numa_node": str(numa_node),
        "vendor": "0x10de",
        "device": f"0x{gpu_models.load(gpu.model).pci_device_id >> 16:04x}",
    }
    for name, value in facts.items():
        (device / name).write_text(f"{value}\n", encoding="ascii")
    link = root / "bus" / "pci" / "devices" / gpu.pci_address
    link.symlink_to(pathlib.PurePath("..", "..", "..", path))
