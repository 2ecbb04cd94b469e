"""What the doctor makes of the PCI bus: which GPUs virtual machines can be given, and why not."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.passthrough import cards, nodes, standing
from dra_driver.model import devices, pci, prepared

_CHECK = "VFIO"
_SYSFS = "/sys/bus/pci/devices"
_WAITS = "a claim that wants it waits for that"


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A kernel module for VFIO; `driver` is its PCI driver, None while it is not loaded.

    `has_loader`: the host has the program that loads it; `is_known`: its table has the module.
    """

    name: str
    driver: str | None
    is_known: bool
    has_loader: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What there is. `gpus` are those that NVML tells of, `known` the records of claims.

    `holders` are who has GPUs open, in words, by their address.
    """

    bus: pci.Bus
    gpus: Sequence[devices.Gpu] = ()
    known: Sequence[prepared.Record] = ()
    modules: Sequence[Module] = ()
    has_api: bool = True
    holders: Mapping[devices.PciAddress, str] = dataclasses.field(default_factory=dict)


def findings(seen: Seen) -> list[diagnosis.Finding]:
    """What of the node is in the way, and then each GPU."""
    return [
        _iommu(seen.bus),
        *_iommufd(seen.bus),
        *map(_module, seen.modules),
        *_api(seen),
        *_functions(seen),
    ]


def _iommu(bus: pci.Bus) -> diagnosis.Finding:
    check, looked_at = "IOMMU", "/sys/kernel/iommu_groups"
    if bus.has_iommu:
        return diagnosis.fine(check, looked_at, "it is on")
    return diagnosis.problem(check, looked_at, *_split(cards.NO_IOMMU))


def _iommufd(bus: pci.Bus) -> Iterator[diagnosis.Finding]:
    check = "IOMMUFD"
    if bus.has_iommufd:
        yield diagnosis.fine(check, nodes.IOMMUFD, "is there")
    elif bus.has_iommu:
        yield diagnosis.note(
            check,
            nodes.IOMMUFD,
            "it is absent: virtual machines are given their GPUs by IOMMU group, also where claims "
            "prefer IOMMUFD",
            "modprobe iommufd, on a kernel with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV (Linux "
            "6.6 or newer)",
        )


def _module(module: Module) -> diagnosis.Finding:
    check, looked_at = "VFIO module", module.name
    if module.driver is not None:
        return diagnosis.fine(check, looked_at, f"is loaded, with the driver {module.driver}")
    if module.is_known and module.has_loader:
        return diagnosis.fine(check, looked_at, "is there, and loaded for the first claim")
    lacks = (
        "the running kernel has no such module (modules.alias)"
        if module.has_loader
        else "it is not loaded, and there is no modprobe below --host-root that could do that"
    )
    return diagnosis.problem(
        check,
        looked_at,
        lacks,
        f"modprobe {module.name} on the node; if that fails, install the kernel's package with it. "
        "Else give the plugin the host's root: --host-root, in the chart with settings.vfio",
    )


def _api(seen: Seen) -> Iterator[diagnosis.Finding]:
    is_loaded = any(module.driver is not None for module in seen.modules)
    if is_loaded and not seen.has_api:
        yield diagnosis.problem(
            _CHECK,
            nodes.API,
            "the device node is absent: no claim can be given its IOMMU group",
            "modprobe vfio on the node; ls -l /dev/vfio shows what udev has made of it",
        )


def _functions(seen: Seen) -> Iterator[diagnosis.Finding]:
    holders = standing.holders(seen.known)
    had = {one.address: (one, claim) for one, claim in holders.values()}
    by_address = {gpu.pci_address: gpu for gpu in seen.gpus}
    ready = []
    for function in seen.bus.gpus:
        if function.address in had:
            one, claim = had[function.address]
            where = f"for claim {claim}" + (", as it was found" if one.found else "")
            if cards.is_vfio_driver(function.driver):
                text = f"{function.address} is bound to {function.driver} {where}"
                yield diagnosis.fine(_CHECK, f"{_SYSFS}/{function.address}", text)
                continue
            yield diagnosis.problem(
                _CHECK,
                f"{_SYSFS}/{function.address}",
                f"{function} is not bound to {one.driver or 'a VFIO driver'}, {where}",
                "the driver puts it in order once the claim's pod is gone: delete that; dmesg | "
                "grep -i -e vfio -e nvrm tells what is in the way",
            )
        else:
            in_the_way = list(_in_the_way(function, by_address.get(function.address), seen))
            yield from in_the_way
            ready += [] if in_the_way else [function.address]
    # Without an IOMMU none is, which is told by itself.
    if ready and seen.bus.has_iommu:
        yield diagnosis.fine(_CHECK, _SYSFS, f"can be handed over: {', '.join(ready)}")


def _in_the_way(
    function: pci.Function, gpu: devices.Gpu | None, seen: Seen
) -> Iterator[diagnosis.Finding]:
    looked_at = f"{_SYSFS}/{function.address}"
    found = cards.passable(function, seen.bus)
    if isinstance(found, str):
        if found != cards.NO_IOMMU:
            # That is told once for all.
            yield diagnosis.note(_CHECK, looked_at, *_split(found))
        return
    if function.virtual_functions:
        yield diagnosis.note(
            _CHECK,
            looked_at,
            f"{function.virtual_functions} virtual functions of it are on, which would go with it: "
            f"{_WAITS}",
            f"echo 0 > {looked_at}/sriov_numvfs, with no virtual machine on them",
        )
    if gpu is not None and gpu.mig_enabled:
        yield diagnosis.note(
            _CHECK,
            looked_at,
            f"GPU {gpu.index} is in MIG mode, and is handed over as a whole only: {_WAITS}",
            f"end the claims that have partitions of it, and nvidia-smi -i {gpu.index} -mig 0 "
            "where the driver has not switched it on",
        )
    if function.address in seen.holders:
        yield diagnosis.note(
            _CHECK,
            looked_at,
            f"it is held open by {seen.holders[function.address]}: {_WAITS}",
            "end what is no workload on this node: a display server, DCGM and its exporter, other "
            "device plugins. nvidia-persistenced lets go of it with its persistence mode",
        )


def _split(reason: str) -> tuple[str, str]:
    """A reason of `cards.passable` as cause and remedy."""
    cause, _, remedy = reason.partition(": ")
    return cause, remedy or "leave it out by a rule of `gpus` with vfio off"
