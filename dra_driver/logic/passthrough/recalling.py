"""What must have been remembered of a GPU that a claim has as a VFIO device, where that is lost.

Nothing is taken from anybody by it: a GPU goes back to NVIDIA's driver only if it is known that
this driver took it from there (`ledgers.Ledger.handed_over`); else it stays as it is found.
"""

from collections.abc import Sequence

from dra_driver.logic.passthrough import cards, leftovers
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
    found = leftovers.binding(bus, gpu.uuid, gpu.pci_address, device)
    changes: dict[str, object] = {"nodes": tuple(nodes)}
    if not pci.is_unseen(gpu.uuid):
        changes["facts"] = gpu
    if is_bound:
        changes |= {"driver": function.driver, "module": cards.plain(function.driver or "")}
    if is_ours:
        changes["persistence"] = bool(gpu.persistence_mode)
    else:
        changes |= {"found": True, "module": None, "functions": ()}
    return found.model_copy(update=changes)
