"""Which GPUs can be passed through to a virtual machine, and what goes along.

A virtual machine is given an IOMMU group as a whole: what is in it can reach its memory, and it
theirs. Bridges are no part of that (Linux, `drivers/vfio/vfio_main.c`).
"""

from collections.abc import Sequence

from dra_driver.logic.passthrough import hurdles
from dra_driver.model import devices, pci

NVIDIA = "nvidia"
"""The driver from which GPUs are taken, and to which they go back."""
_Word = hurdles.Word
NO_IOMMU = hurdles.Hurdle(
    _Word.IOMMU_OFF,
    "the IOMMU is off, so no device can be handed to a virtual machine safely: switch it on in the "
    "firmware (VT-d, AMD-Vi) and for the kernel (intel_iommu=on, or amd_iommu=on), and reboot",
)


def passable(function: pci.Function, bus: pci.Bus) -> devices.Passthrough | str:
    """The GPU as a virtual machine is given it, or why it cannot be."""
    if function.physical is not None:
        return hurdles.Hurdle(
            _Word.VIRTUAL,
            f"{function.address} is a virtual function of {function.physical}, which is the "
            "hypervisor's to give",
        )
    if not bus.has_iommu:
        return NO_IOMMU
    if function.group is None:
        return hurdles.Hurdle(
            _Word.NO_GROUP,
            f"{function.address} is in no IOMMU group: the platform does not isolate it",
        )
    others = [one for one in bus.members(function.group) if one.address != function.address]
    if reason := _why_not_taken(function) or _why_not_alone(function, function.group, others):
        return reason
    return devices.Passthrough(
        address=function.address,
        vendor=function.vendor,
        model=function.device,
        group=function.group,
        modalias=function.modalias,
        companions=tuple(one.address for one in others if one.slot == function.slot),
        product=function.product,
        memory_bytes=function.memory_bytes,
        iommufd=bus.has_iommufd,
        is_found=is_vfio_driver(function.driver),
    )


def _why_not_taken(function: pci.Function) -> str | None:
    if function.driver is None:
        return hurdles.Hurdle(
            _Word.NO_DRIVER,
            f"{function.address} has no driver: bind it to {NVIDIA} (echo {function.address} > "
            f"/sys/bus/pci/drivers/{NVIDIA}/bind), or to a VFIO driver to have it offered so",
        )
    if function.driver != NVIDIA and not is_vfio_driver(function.driver):
        return hurdles.Hurdle(
            _Word.OTHER_DRIVER,
            f"{function.address} is bound to {function.driver}: only a GPU that {NVIDIA} or a VFIO "
            "driver has is handed over",
        )
    return None


def _why_not_alone(
    function: pci.Function, group: int, others: Sequence[pci.Function]
) -> str | None:
    for one in others:
        if one.slot != function.slot and one.base_class != pci.BRIDGE:
            return hurdles.Hurdle(
                _Word.FOREIGN,
                f"IOMMU group {group} of {function.address} has {one} too, which would go to the "
                "virtual machine with it: move one of the two to another slot, or switch ACS on in "
                "the firmware",
            )
    return None


def is_vfio_driver(driver: str | None) -> bool:
    """Whether it is one that hands functions to programs: `vfio-pci`, or a variant of it.

    Variants are called so by convention (`nvgrace-gpu-vfio-pci`, `mlx5_vfio_pci`).
    """
    return driver is not None and plain(driver).endswith("vfio_pci")


def plain(module: str) -> str:
    """The name of a module; the kernel takes a dash and an underscore for the same."""
    return module.replace("-", "_")
