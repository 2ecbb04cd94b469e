"""Which GPUs that were bound for claims are not where they should be: they are stranded.

A claim that is prepared has its functions bound to its VFIO driver; one that is not has them where
they were before. A GPU that somebody else has bound is theirs, and is never stranded here.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from dra_driver import errors
from dra_driver.logic.passthrough import cards, leftovers
from dra_driver.model import bindings, devices, pci, prepared


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """Why GPUs, by UUID, are not where they should be, for people.

    Of those in `unknown` that cannot be said now: somebody is at work on them.
    """

    stranded: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unknown: frozenset[str] = frozenset()


def of(
    known: Iterable[prepared.Record],
    bus: pci.Bus,
    *,
    served: Collection[str] | None,
    leaving: Collection[str] = (),
    busy: Collection[str] = (),
    taken: Mapping[str, str] = MappingProxyType({}),
) -> Standing:
    """How the GPUs of claims stand; of each that is stranded one reason.

    Args:
        known: the records of all claims.
        bus: as it is while they are so.
        served: the UUIDs that NVML lists; None where it does not tell.
        leaving: the UIDs of claims that were to be taken back, and could not be altogether.
        busy: the UIDs of those that somebody is at work on, so that the bus may be otherwise.
        taken: the GPUs that this driver took from NVIDIA's: PCI addresses by UUID.
    """
    records = list(known)
    found: dict[str, str] = {}
    for record in records:
        for gpu, reason in _of(record, bus, served, is_leaving=record.uid in leaving):
            found.setdefault(gpu, reason)
    had = holders(records)
    for gpu, address in taken.items():
        left = leftovers.binding(bus, gpu, address, None)
        why = None if gpu in had else _why_not_back(left, bus, served)
        if why is not None:
            found.setdefault(gpu, f"{why} (of its claim nothing is known any more)")
    unknown = holders(record for record in records if record.uid in busy).keys()
    stays = {gpu: reason for gpu, reason in sorted(found.items()) if gpu not in unknown}
    return Standing(stays, frozenset(unknown))


def _of(
    record: prepared.Record, bus: pci.Bus, served: Collection[str] | None, *, is_leaving: bool
) -> Iterator[tuple[str, str]]:
    try:
        listed = bindings.of(record)
    except errors.Rejected as error:
        # Which are bound, and where to they go back, nobody knows.
        for gpu in sorted({*record.cards.values()} if _has_vfio(record) else ()):
            yield gpu, f"it may be bound for a virtual machine, and that is not known: {error}"
        return
    is_had = record.phase is prepared.Phase.COMPLETED and not is_leaving
    for one in listed:
        if one.found:
            continue
        reason = _why_not_had(one, bus) if is_had else _why_not_back(one, bus, served)
        if reason is not None:
            yield one.gpu, f"{reason} (claim {record.ref.short})"


def _has_vfio(record: prepared.Record) -> bool:
    return any(device.kind == "vfio" for device in record.devices)


def _why_not_had(one: bindings.Binding, bus: pci.Bus) -> str | None:
    """Why a claim that is prepared has it not; None where it has."""
    for function in one.functions:
        now = _at(function.address, bus)
        if now is None:
            return _gone(function.address)
        if one.driver is not None and not _is_same(now.driver, one.driver):
            return (
                f"a virtual machine is to have the GPU by {one.driver}, and {now} is not bound to "
                "that: delete the claim's pod, and it is put in order"
            )
    return None


def _why_not_back(
    one: bindings.Binding, bus: pci.Bus, served: Collection[str] | None
) -> str | None:
    """Why it is not back where it was; None where it is."""
    for function in one.functions:
        now = _at(function.address, bus)
        if now is None:
            return _gone(function.address)
        if function.driver is not None and now.driver != function.driver:
            return (
                f"the GPU was bound for a virtual machine and could not be brought back: {now} is "
                f"to be bound to {function.driver}. It is tried again"
            )
    had = {function.address: function.driver for function in one.functions}
    is_ours = had.get(one.address) == cards.NVIDIA
    if is_ours and served is not None and one.gpu not in served:
        return (
            f"the GPU was bound for a virtual machine and {cards.NVIDIA} has it again, but NVML "
            "does not list it. It is tried again"
        )
    return None


def _at(address: str, bus: pci.Bus) -> pci.Function | None:
    return bus.functions.get(devices.PciAddress(address))


def _is_same(driver: str | None, other: str) -> bool:
    return driver is not None and cards.plain(driver) == cards.plain(other)


def _gone(address: str) -> str:
    return (
        f"the GPU was bound for a virtual machine, and {address} is not on the PCI bus any more: "
        "look at the kernel log (dmesg), and reboot the node"
    )


def holders(known: Iterable[prepared.Record]) -> dict[str, tuple[bindings.Binding, str]]:
    """The bindings that records tell of, and whose they are (namespace/name), by UUID of the GPU.

    Of a damaged one nothing is known.
    """
    found: dict[str, tuple[bindings.Binding, str]] = {}
    for record in known:
        try:
            listed = bindings.of(record)
        except errors.Rejected:
            continue
        found |= {one.gpu: (one, record.ref.short) for one in listed}
    return found


def told(gpu: str, known: Iterable[prepared.Record]) -> str:
    """Why NVML does not tell of a GPU that a VFIO driver has, for people."""
    by_gpu = holders(known)
    if gpu not in by_gpu:
        return "bound to a VFIO driver by somebody else: NVML does not see it"
    one, claim = by_gpu[gpu]
    return f"bound to {one.driver or 'a VFIO driver'} for claim {claim}: NVML does not see it"
