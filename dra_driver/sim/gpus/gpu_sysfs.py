"""The simulated GPUs as functions of a PCI bus: where they sit, and what is on a card with them.

Names are those of the PCI id database (https://pci-ids.ucw.cz), BARs those of an H200: the largest
is the power of two that has room for the memory.
"""

import pathlib

from dra_driver.sim.gpus import gpu_models, gpu_state
from dra_driver.sim.pci import changing, pci_state

_CONTROLLER, _SOUND = 0x030200, 0x040300
_PRODUCTS = {
    "a100-40gb-sxm4": "GA100 [A100 SXM4 40GB]",
    "a100-80gb-sxm4": "GA100 [A100 SXM4 80GB]",
    "h100-80gb-hbm3": "GH100 [H100 SXM5 80GB]",
    "h200-141gb": "GH100 [H200 SXM 141GB]",
    "l4": "AD104GL [L4]",
    "t4": "TU104GL [Tesla T4]",
    "v100-16gb-sxm2": "GV100GL [Tesla V100 SXM2 16GB]",
}
_SOUNDS = {"l4": (0x22BC, "AD104 High Definition Audio Controller")}
"""Models with a second function, so that some card has one."""
_FIRST_GROUP = 16


def write(directory: pathlib.Path, node: gpu_state.Node) -> pathlib.Path:
    """Have `<directory>/sys` and `<directory>/dev` be those of these GPUs; the path of the first.

    Two GPUs or more sit on two NUMA nodes, one half each; inside a half, neighbours share a PCIe
    root in pairs. Each card is in an IOMMU group of its own. Which driver has a GPU that is there
    already stays as it is.
    """
    functions = [
        function
        for position, gpu in enumerate(node.gpus)
        for function in _functions(gpu, position, len(node.gpus))
    ]
    return changing.install(directory, functions)


def _place(position: int, count: int) -> tuple[int, int]:
    """The NUMA node of a GPU, and the position of the first GPU on its PCIe root."""
    half = (count + 1) // 2
    numa_node, inside = divmod(position, half)
    return numa_node, numa_node * half + inside - inside % 2


def _functions(gpu: gpu_state.Gpu, position: int, count: int) -> list[pci_state.Function]:
    numa_node, first = _place(position, count)
    root_bus = gpu_state.bus(first) - 2
    port = f"0000:{root_bus:02x}:{position - first + 1:02x}.0"
    model = gpu_models.load(gpu.model)
    main = pci_state.Function(
        address=gpu.pci_address,
        above=f"pci0000:{root_bus:02x}/{port}",
        device=model.pci_device_id >> 16,
        subsystem=(model.pci_subsystem_id or 0) >> 16,
        kind=_CONTROLLER,
        bars=[16 << 20, 0, 1 << (model.memory_bytes - 1).bit_length(), 0, 32 << 20],
        group=_FIRST_GROUP + int(gpu.pci_address.split(":")[1], 16),
        numa_node=numa_node,
        native=pci_state.NVIDIA,
        product=_PRODUCTS.get(model.name),
    )
    if model.name not in _SOUNDS:
        return [main]
    device, product = _SOUNDS[model.name]
    facts = {
        "address": gpu.pci_address.removesuffix("0") + "1",
        "device": device,
        "kind": _SOUND,
        "bars": [16 << 10],
        "native": pci_state.SOUND,
        "product": product,
    }
    return [main, main.model_copy(update=facts)]
