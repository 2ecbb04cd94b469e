"""What must have been remembered of a GPU that a claim has as a VFIO device, where that is lost.

Nothing is taken from anybody by it: a GPU goes back to NVIDIA's driver only if it is known that
this driver took it from there (`ledgers.Ledger.handed_over`); else it stays as it is found.
"""

from collections.abc import Sequence

from dra_driver.logic.passthrough import cards
from dra_driver.model import bindings, devices, pci


def binding(
    device: str,
    gpu: devices.Gpu,
    bus: pci.Bus,
    *,
    is_ours: bool,
    nodes: Sequence[str] = (),
) -> bindings.Binding | None:
    """The binding of a device; None where nothing is bound, or to be brought back.

    `gpu` is the GPU as NVML told of it, or as much as is known. `is_ours`: this driver took it from
    NVIDIA's. `nodes` are those that containers get. What other functions of the card were bound to
    before is not known: they are left without a driver.
    """
    function = bus.functions.get(gpu.pci_address)
    if function is None:
        return None
    is_bound = cards.is_vfio_driver(function.driver)
    if not (is_ours or is_bound):
        return None
    known = None if pci.is_unseen(gpu.uuid) else gpu
    return bindings.Binding(
        device=device,
        gpu=gpu.uuid,
        address=function.address,
        group=-1 if function.group is None else function.group,
        found=not is_ours,
        module=cards.plain(function.driver) if function.driver and is_bound else None,
        driver=function.driver if is_bound else None,
        functions=_taken(function, bus) if is_ours else (),
        persistence=bool(is_ours and gpu.persistence_mode),
        nodes=tuple(nodes),
        facts=known,
    )


def _taken(function: pci.Function, bus: pci.Bus) -> tuple[bindings.Function, ...]:
    """The GPU, and what went along with it."""
    others = () if function.group is None else bus.members(function.group)
    return (
        bindings.Function(address=function.address, driver=cards.NVIDIA),
        *(
            bindings.Function(address=one.address)
            for one in others
            if one.slot == function.slot
            and one.address != function.address
            and cards.is_vfio_driver(one.driver)
        ),
    )
