"""What the PCI bus adds to what NVML tells: which GPUs can be handed to virtual machines, and which
of them have been.

NVML says nothing of a GPU that another driver has. One that is bound for a claim is there as it was
before, by the claim's record, also while it is half way between two drivers. One that somebody else
has bound is known by its place.
"""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.logic.offering import abilities, catalog
from dra_driver.logic.passthrough import cards
from dra_driver.model import bindings, devices, pci, prepared

_UNREADABLE = "the PCI bus cannot be looked at: {reason}"

ModeOf = Callable[[devices.Gpu], devices.VfioMode]


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """The GPUs of one look, those that NVML does not tell of among them.

    `ours` are the addresses of those that are bound for claims, `foreign` of those that somebody
    else has bound. `found` tells by address what virtual machines get, or why they get nothing.
    `failures` are for people; `odd` may pass at the next look.
    """

    discovery: devices.Discovery
    mode_of: ModeOf | None = None
    found: Mapping[devices.PciAddress, devices.Passthrough | str] = dataclasses.field(
        default_factory=dict
    )
    ours: Collection[devices.PciAddress] = ()
    foreign: Collection[devices.PciAddress] = ()
    failures: tuple[str, ...] = ()
    odd: tuple[devices.GpuFailure, ...] = ()

    def is_told(self, gpu: devices.Gpu) -> bool:
        """Whether NVML tells of the GPU."""
        return gpu.pci_address not in self.ours and gpu.pci_address not in self.foreign

    def passed(self, card: catalog.Card) -> catalog.Card:
        """The card with what virtual machines get.

        Raises:
            errors.Rejected: nothing can be had of it.
        """
        if self.mode_of is None:
            return card
        gpu = card.gpu
        is_ours = gpu.pci_address in self.ours
        is_foreign = gpu.pci_address in self.foreign
        mode = self.mode_of(gpu)
        if is_foreign and mode is devices.VfioMode.OFF:
            raise errors.Rejected(
                "a VFIO driver has it, and `vfio` is off for it in the settings: set it on, or "
                f"bind the GPU to {cards.NVIDIA}"
            )
        if is_ours and mode is devices.VfioMode.OFF:
            # A claim has it still, and offers are as they were.
            mode = devices.VfioMode.ON
        nowhere = f"no PCI function is at {gpu.pci_address} (ls /sys/bus/pci/devices)"
        found: devices.Passthrough | str = self.found.get(gpu.pci_address, nowhere)
        if abilities.is_vgpu(gpu):
            found = f"{abilities.VGPU}: no virtual machine can be given it"
        return catalog.passed(card, mode, found, is_bound=is_ours or is_foreign)


@dataclasses.dataclass(frozen=True, slots=True)
class _Claimed:
    """The bindings of claims by address; `is_sure`: there are no others.

    `taken` are the GPUs that this driver has taken, by address: also those of which no record tells
    any more, which are brought back.
    """

    by_address: Mapping[devices.PciAddress, bindings.Binding]
    taken: Mapping[devices.PciAddress, devices.GpuUuid]
    is_sure: bool = True

    def __or__(self, after: "_Claimed") -> "_Claimed":
        """What was so at some time from this moment to a later one."""
        return _Claimed(
            {**self.by_address, **after.by_address},
            {**self.taken, **after.taken},
            self.is_sure and after.is_sure,
        )


class Passing:
    """Looks at the bus while GPUs may be handed over, or claims have some."""

    def __init__(
        self,
        scan: Callable[[], pci.Bus],
        known: records.Records,
        taken: Callable[[], Mapping[str, str]],
        mode_of: ModeOf,
        *,
        boot_id: str,
        is_on: bool,
    ) -> None:
        """`scan` may raise OSError; `taken` tells which GPUs this driver has taken from NVIDIA's.

        `is_on`: `mode_of` is not off for all GPUs.
        """
        self._scan = scan
        self._known = known
        self._taken = taken
        self._mode_of = mode_of
        self._boot_id = boot_id
        self._is_on = is_on
        self._bus: pci.Bus | None = None
        self._trouble = ""
        self._log = telemetry.logger("inventory")

    def begin(self) -> "Look":
        """What is known before NVML is asked.

        Raises:
            One of `files.TROUBLE`: it is not known what claims have.
        """
        # Also once it is off: an older instance may bind one until it has ended.
        claimed = self.claimed()
        is_needed = self._is_on or bool(claimed.by_address)
        return Look(self, claimed, self.scanned() if is_needed else None, is_needed=is_needed)

    def claimed(self) -> _Claimed:
        """What claims have bound in this boot of the node, or are about to."""
        contents = self._known.contents()
        is_sure = not contents.damaged
        found: dict[devices.PciAddress, bindings.Binding] = {}
        for record in contents.records.values():
            try:
                bound = bindings.of(record) if record.boot_id == self._boot_id else ()
            except errors.Rejected as error:
                self._say(str(error))
                is_sure = False
                continue
            is_sure = is_sure and not _is_unreadable(record)
            found |= {devices.PciAddress(one.address): one for one in bound if not one.found}
        taken = {
            devices.PciAddress(where): devices.GpuUuid(u) for u, where in self._taken().items()
        }
        return _Claimed(found, taken, is_sure)

    def scanned(self) -> pci.Bus | None:
        """The bus now, or as it was seen last; None where it never was."""
        try:
            self._bus = self._scan()
        except OSError as error:
            self._say(_UNREADABLE.format(reason=error))
        else:
            self._trouble = ""
        return self._bus

    @property
    def trouble(self) -> str:
        """Why the bus is not known; empty where it is."""
        return self._trouble

    def mode_of(self, gpu: devices.Gpu) -> devices.VfioMode:
        """Whether a GPU is handed over, by the settings."""
        return self._mode_of(gpu)

    @property
    def is_on(self) -> bool:
        """Whether GPUs are handed over."""
        return self._is_on

    @property
    def boot_id(self) -> str:
        """Which boot of the node this is."""
        return self._boot_id

    def _say(self, problem: str) -> None:
        if problem != self._trouble:
            self._log.warning("which GPUs virtual machines have is not known", reason=problem)
        self._trouble = problem


def _is_unreadable(record: prepared.Record) -> bool:
    part = record.parts.get(bindings.PART)
    return part is not None and part.version != bindings.VERSION


class Look:
    """One look, begun before NVML is asked and ended after it: bindings come and go meanwhile."""

    def __init__(
        self, passing: Passing, claimed: _Claimed, bus: pci.Bus | None, *, is_needed: bool
    ) -> None:
        self._passing = passing
        self._claimed = claimed
        self._bus = bus
        self._is_needed = is_needed

    def joined(self, discovery: devices.Discovery) -> Joined:
        """What NVML told, and what the bus adds."""
        if not self._is_needed:
            return Joined(discovery)
        # A record is written before its GPU leaves NVML's sight, and removed after it is back.
        claimed = self._claimed | self._passing.claimed()
        if self._bus is not None and _is_moving(self._bus, discovery, claimed.by_address):
            self._bus = self._passing.scanned()
        if self._bus is None:
            return self._without_bus(discovery, claimed)
        return _Joining(self._passing, discovery, claimed, self._bus).joined()

    def _without_bus(self, discovery: devices.Discovery, claimed: _Claimed) -> Joined:
        reason = self._passing.trouble
        bound = tuple(
            one.facts
            for address, one in sorted(claimed.by_address.items())
            if one.facts is not None and not _tells_of(discovery, address, one.gpu)
        )
        gpus = (*discovery.gpus, *bound)
        return Joined(
            dataclasses.replace(discovery, gpus=gpus),
            self._passing.mode_of,
            {gpu.pci_address: reason for gpu in gpus},
            ours=[gpu.pci_address for gpu in bound],
            odd=(devices.GpuFailure(-1, None, None, reason),),
        )


class _Joining:
    def __init__(
        self,
        passing: Passing,
        discovery: devices.Discovery,
        claimed: _Claimed,
        bus: pci.Bus,
    ) -> None:
        self._passing = passing
        self._discovery = discovery
        self._claimed = claimed
        self._bus = bus
        self._found: dict[devices.PciAddress, devices.Passthrough | str] = {}
        self._foreign: list[devices.Gpu] = []
        self._reasons: dict[pci.Function, str] = {}

    def joined(self) -> Joined:
        """See `Look.joined`."""
        discovery = self._discovery
        ours = [self._bound(function, one) for function, one in self._bound_for_claims()]
        told = (*discovery.gpus, *ours)
        for gpu in told:
            if (function := self._bus.functions.get(gpu.pci_address)) is not None:
                # NVIDIA's driver has it, or will have it again.
                function = dataclasses.replace(function, driver=cards.NVIDIA)
                self._found[gpu.pci_address] = cards.passable(function, self._bus)
        if self._passing.is_on:
            self._look_at_others({gpu.pci_address for gpu in told})
        return Joined(
            dataclasses.replace(
                discovery,
                gpus=(*told, *self._foreign),
                failures=(*discovery.failures, *self._failures()),
                sites=self._sites(told),
            ),
            self._passing.mode_of,
            self._found,
            ours=[gpu.pci_address for gpu in ours],
            foreign=[gpu.pci_address for gpu in self._foreign],
            failures=tuple(self._told()),
        )

    def _bound_for_claims(self) -> Iterator[tuple[pci.Function, bindings.Binding]]:
        for address, one in sorted(self._claimed.by_address.items()):
            function = self._bus.functions.get(address)
            if function is not None and not _tells_of(self._discovery, address, one.gpu):
                yield function, one

    def _bound(self, function: pci.Function, binding: bindings.Binding) -> devices.Gpu:
        return binding.facts or _gpu(function, devices.GpuUuid(binding.gpu))

    def _look_at_others(self, known: Collection[devices.PciAddress]) -> None:
        """GPUs that neither NVML nor a claim's record tells of."""
        failing = {one.pci_address for one in self._discovery.failures}
        for function in self._bus.gpus:
            address = function.address
            if address in known or address in failing or function.driver == cards.NVIDIA:
                continue
            found = cards.passable(function, self._bus)
            if address in self._claimed.taken:
                found = f"no claim has it any more, and it is brought back to {cards.NVIDIA}"
            elif isinstance(found, devices.Passthrough) and not self._claimed.is_sure:
                found = "the record of a claim cannot be read, which may have it"
            if isinstance(found, str):
                self._reasons[function] = found
            else:
                self._found[address] = found
                self._foreign.append(_gpu(function, _key(function)))

    def _failures(self) -> Iterator[devices.GpuFailure]:
        """Cards that are there, whoever they are."""
        for function, reason in self._reasons.items():
            if function.physical is None:
                uuid = self._claimed.taken.get(function.address, _key(function))
                yield devices.GpuFailure(-1, uuid, function.address, reason)

    def _told(self) -> Iterator[str]:
        virtual: dict[str, list[str]] = collections.defaultdict(list)
        for function, reason in self._reasons.items():
            if function.physical is None:
                yield f"the GPU at {function.address} is not offered: {reason}"
            else:
                virtual[function.physical].append(reason)
        for physical, reasons in virtual.items():
            more = f" (so are {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            yield f"virtual functions of {physical} are not offered: {reasons[0]}{more}"

    def _sites(self, told: Sequence[devices.Gpu]) -> dict[devices.GpuUuid, devices.Site]:
        functions = {
            gpu.uuid: function
            for gpu in told
            if (function := self._bus.functions.get(gpu.pci_address)) is not None
        }
        unseen = [self._bus.functions[gpu.pci_address] for gpu in self._foreign]
        unseen += [function for function in self._reasons if function.physical is None]
        functions |= {_key(function): function for function in unseen}
        return {
            uuid: devices.Site(one.address, one.vendor, one.device, self._passing.boot_id)
            for uuid, one in functions.items()
        }


def _key(function: pci.Function) -> devices.GpuUuid:
    return pci.unseen_gpu(function.address, function.vendor, function.device)


def _gpu(function: pci.Function, uuid: devices.GpuUuid) -> devices.Gpu:
    """A GPU of which NVML has not told: what the bus tells of it."""
    return devices.Gpu(
        index=-1,
        minor=-1,
        uuid=uuid,
        product_name=function.product or "",
        pci_address=function.address,
        pcie_root=function.pcie_root,
        numa_node=function.numa_node,
    )


def _tells_of(discovery: devices.Discovery, address: devices.PciAddress, uuid: str) -> bool:
    """Whether NVML lists a GPU, or what is in its place, in whatever state."""
    return any((where == address or who == uuid) for where, who in _listed(discovery))


def _is_moving(
    bus: pci.Bus, discovery: devices.Discovery, claimed: Collection[devices.PciAddress]
) -> bool:
    """Whether NVIDIA's driver had a GPU before NVML was asked, which said nothing of it."""
    listed = {where for where, _ in _listed(discovery)}
    return any(
        one.driver == cards.NVIDIA and one.address not in listed and one.address not in claimed
        for one in bus.gpus
    )


def _listed(
    discovery: devices.Discovery,
) -> Iterator[tuple[devices.PciAddress | None, devices.GpuUuid | None]]:
    """Where NVML sees a GPU, and who that is, as far as it tells."""
    for gpu in discovery.gpus:
        yield gpu.pci_address, gpu.uuid
    for one in discovery.failures:
        yield one.pci_address, one.uuid
