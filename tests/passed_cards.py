"""GPUs on a PCI bus that is made by hand, as virtual machines are given them."""

import dataclasses

from dra_driver.logic.offering import catalog
from dra_driver.logic.passthrough import cards
from dra_driver.model import devices, pci

H100, T4 = 0x2330, 0x1EB8
AUDIO = 0x040300
ON, ONLY, OFF = devices.VfioMode.ON, devices.VfioMode.ONLY, devices.VfioMode.OFF


def function(address, *, driver=cards.NVIDIA, group=None, device=H100, **facts):
    """A GPU, in an IOMMU group of its own."""
    number = int(address.split(":")[1], 16)
    return pci.Function(
        devices.PciAddress(address),
        pci.NVIDIA,
        device,
        0x030200,
        f"pci:v000010DEd{device:08X}",
        driver=driver,
        group=number if group is None else group,
        **{"memory_bytes": 80 * 2**30, "product": "GH100", "numa_node": 0} | facts,
    )


def bus(*functions, **facts):
    found = {one.address: one for one in functions}
    return pci.Bus(found, **{"has_iommu": True, "has_iommufd": True} | facts)


def of(gpu, **facts):
    """What a virtual machine gets of a GPU."""
    one = function(gpu.pci_address, **facts)
    return cards.passable(one, bus(one))


def passed(listed, mode=ON):
    """Cards that are handed to virtual machines too."""
    return [catalog.passed(card, mode, of(card.gpu)) for card in listed]


def found_bound(number, **facts):
    """A card that somebody else has bound, and of which NVML has never told."""
    one = function(f"0000:{0x80 + number:02x}:00.0", driver="vfio-pci", **facts)
    key = pci.unseen_gpu(one.address, one.vendor, one.device)
    gpu = devices.Gpu(-1, -1, key, "", one.address, device=f"gpu-{number}")
    return catalog.passed(catalog.Card(gpu, {}), ON, cards.passable(one, bus(one)), is_bound=True)


def claimed(card):
    """The card as it is while a claim has it."""
    return dataclasses.replace(card, is_bound=True)
