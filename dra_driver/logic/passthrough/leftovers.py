"""What is left of a GPU that was taken for a claim of which no record tells any more."""

from dra_driver.logic.passthrough import cards
from dra_driver.model import bindings, devices, pci


def binding(bus: pci.Bus, gpu: str, address: str, name: str | None) -> bindings.Binding:
    """What has to be undone: the GPU goes to NVIDIA's driver.

    What the other functions of the card had before is not known: they are left without a driver.
    `name` is that of the device.
    """
    first = bus.functions.get(devices.PciAddress(address))
    group = -1 if first is None or first.group is None else first.group
    companions = [
        one
        for one in bus.functions.values()
        if first is not None
        and one.slot == first.slot
        and one.address != first.address
        and cards.is_vfio_driver(one.driver)
    ]
    return bindings.Binding(
        device=name or "",
        gpu=gpu,
        address=address,
        group=group,
        functions=(
            bindings.Function(address=address, driver=cards.NVIDIA),
            *(bindings.Function(address=one.address) for one in companions),
        ),
    )
