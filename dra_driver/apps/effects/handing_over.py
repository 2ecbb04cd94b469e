"""GPUs are taken from NVIDIA's driver for virtual machines, and brought back.

Whoever calls holds the lock of the GPU; what is to be done is remembered in the claim's record, and
in the GPU's ledger that it is ours. Order: nobody uses it → module → persistence mode off → nobody
else has it open → NVML is closed → nobody has it open → ledger → its functions, one after the
other, to the VFIO driver. Back: nobody has the group open → its functions, backwards → NVML tells
of it → persistence mode → ledger.
What the kernel does not come back from holds up this GPU alone, and is not touched until it has.
"""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Collection, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import ledgers
from dra_driver.adapters.driver import persistence_daemon
from dra_driver.adapters.nvml import nvml, nvml_errors, nvml_mig, nvml_reset
from dra_driver.adapters.pci import pci_bus
from dra_driver.adapters.system import file_holders, processes
from dra_driver.apps.effects import partitioning
from dra_driver.logic.offering import abilities
from dra_driver.logic.passthrough import cards, modules, nodes
from dra_driver.model import bindings, devices, pci, sharing

CLOSE_SECONDS = 10.0
"""How long calls of NVML that are at work may take until nobody of this process has it open."""
SEEN_SECONDS = 15.0
"""How long NVIDIA's driver may take with a GPU that it gets back: it starts its firmware."""
LOOK_SECONDS = 0.25
_PERSISTENCED = "nvidia-persiste"
"""The kernel cuts the names of processes to 15 letters."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """What a GPU is taken and brought back with.

    `nodes` are the device nodes of a GPU by its UUID and minor number; `missing` says what
    containers would lack of GPUs; `daemons` are those of MPS that serve a GPU, by its UUID;
    `keeper` is nvidia-persistenced.
    """

    bus: pci_bus.PciBus
    nvml: nvml.Nvml
    partitioner: partitioning.Partitioner
    books: ledgers.Ledgers
    nodes: Callable[[str, int], Sequence[pathlib.Path]]
    missing: Callable[[Sequence[devices.Gpu]], str | None]
    proc_root: pathlib.Path
    daemons: Callable[[str], Sequence[str]]
    keeper: persistence_daemon.PersistenceDaemon


class Handover:
    """Takes GPUs and brings them back; all of it may be done twice, and after being cut short."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._bus = tools.bus
        self._mig = nvml_mig.MigNvml(tools.nvml)
        self._modes = nvml_reset.ResetNvml(tools.nvml)
        self._describe = processes.Processes(tools.proc_root).describe
        self._log = telemetry.logger("handover")

    def planned(
        self, offer: devices.Offer, before: bindings.Binding | None = None
    ) -> bindings.Binding:
        """What is going to be done so that the device can be handed over; nothing is done.

        `before` is what was remembered of it. Of a GPU that is not with NVIDIA's driver any more
        that counts.

        Raises:
            errors.Rejected: it is no VFIO device.
            errors.Retryable: NVML does not tell.
        """
        found = offer.vfio
        if found is None:
            raise errors.Rejected(f"device of {offer.card} is not for virtual machines")
        seen = self._bus.function(found.address)
        if before is not None and (seen is None or seen.driver != cards.NVIDIA):
            return before
        name = devices.vfio_device_name(offer.card)
        ledger = self._tools.books.get(offer.gpu.uuid)
        # Somebody may have bound it since the last look.
        is_passed = found.is_found or (seen is not None and cards.is_vfio_driver(seen.driver))
        if is_passed and ledger.handed_over is None:
            return bindings.Binding(
                device=name,
                gpu=offer.gpu.uuid,
                address=found.address,
                group=found.group,
                found=True,
                driver=seen.driver if seen else None,
            )
        functions = (found.address, *found.companions)
        return bindings.Binding(
            device=name,
            gpu=offer.gpu.uuid,
            address=found.address,
            group=found.group,
            module=modules.best(found.modalias, self._bus.aliases()),
            functions=tuple(self._as_it_is(address, found.address) for address in functions),
            persistence=ledger.persistence_off or bool(self._persistence(offer.gpu)),
            facts=_whole(offer.gpu),
        )

    def is_bound(self, binding: bindings.Binding) -> bool:
        """Whether all that was to be bound is."""
        if binding.found:
            seen = self._function(binding.address)
            return seen is not None and cards.is_vfio_driver(seen.driver)
        found = [self._function(one.address) for one in binding.functions]
        return bool(found) and all(
            one is not None and one.driver is not None and one.driver == binding.driver
            for one in found
        )

    def take(
        self, binding: bindings.Binding, offer: devices.Offer, how: sharing.Vfio
    ) -> bindings.Binding:
        """Have the GPU bound to a VFIO driver, as far as it is not; the binding with its nodes.

        Raises:
            errors.Retryable: somebody is in the way, or the kernel refuses; the text says who.
        """
        if not binding.found:
            driver = self._bus.load(binding.module or modules.GENERIC)
            binding = binding.model_copy(update={"driver": driver})
            if not self.is_bound(binding):
                self._take(binding, offer, driver)
        seen = self._bus.function(devices.PciAddress(binding.address))
        if seen is None or not cards.is_vfio_driver(seen.driver):
            raise errors.Retryable(
                f"device {binding.device!r}: {seen or binding.address} is not bound to a VFIO "
                "driver any more. Bind it, or delete the pod"
            )
        paths = nodes.of(seen, how, has_iommufd=self._bus.scan().has_iommufd)
        self._bus.nodes(paths)
        return binding.model_copy(update={"nodes": paths})

    def give_back(self, binding: bindings.Binding) -> None:
        """Bring the GPU back to the driver that it had; what is there already is fine.

        Raises:
            errors.Retryable: not now; the text says why.
        """
        if binding.found:
            return
        self._refuse_hanging(binding)
        self._refuse_holders_of_group(binding)
        is_reserved = self._tools.books.get(binding.gpu).handed_over is not None
        for one in reversed(binding.functions):
            self._bind_back(binding, one, is_reserved=is_reserved)
        if any(one.driver == cards.NVIDIA for one in binding.functions):
            self._see_again(binding)
        self._note(binding, handed_over=None, persistence_off=False)

    def _take(self, binding: bindings.Binding, offer: devices.Offer, driver: str) -> None:
        self._refuse_hanging(binding)
        self._refuse_unfit(binding)
        first = self._function(binding.address)
        if first is not None and first.driver == cards.NVIDIA:
            self._free(binding, offer)
            # Whoever else has it open has it still then: nobody has to do without NVML for that.
            own = file_holders.own(self._tools.proc_root)
            self._refuse_holders(binding, offer, but={own})
            # Others do without NVML for no longer than that takes.
            with self._tools.nvml.closed(CLOSE_SECONDS):
                self._refuse_holders(binding, offer)
                self._note(binding, handed_over=binding.address)
                self._bus.allow(first.address, driver)
                self._bus.unbind(first.address)
        self._note(binding, handed_over=binding.address)
        self._bind_all(binding, driver)
        self._log.info("GPU handed over", device=binding.device, driver=driver, gpu=binding.gpu)

    def _refuse_unfit(self, binding: bindings.Binding) -> None:
        """Refuse what has changed since the last look at the bus."""
        bus = self._bus.scan()
        known = {one.address for one in binding.functions}
        for address in sorted(known):
            seen = bus.functions.get(devices.PciAddress(address))
            if seen is None:
                raise errors.Retryable(
                    f"device {binding.device!r}: {address} is not on the bus any more"
                )
            if seen.virtual_functions:
                raise errors.Retryable(
                    f"device {binding.device!r}: {seen} has {seen.virtual_functions} virtual "
                    "functions, which would go with it. Switch them off (sriov_numvfs)"
                )
        others = [
            one
            for one in bus.members(binding.group)
            if one.address not in known and one.base_class != pci.BRIDGE
        ]
        if others:
            raise errors.Retryable(
                f"device {binding.device!r}: IOMMU group {binding.group} has {others[0]} too, "
                "which would go to the virtual machine with it"
            )
        self._refuse_drivers(binding, bus)

    def _refuse_drivers(self, binding: bindings.Binding, bus: pci.Bus) -> None:
        for one in binding.functions:
            seen = bus.functions[devices.PciAddress(one.address)]
            is_expected = seen.driver in {None, one.driver} or cards.is_vfio_driver(seen.driver)
            if not is_expected:
                raise errors.Retryable(
                    f"device {binding.device!r}: {seen} was bound to {one.driver or 'no driver'} "
                    "when it was looked at; whoever has bound it since then may use it"
                )

    def _free(self, binding: bindings.Binding, offer: devices.Offer) -> None:
        """Have the GPU whole, without persistence mode; refuse one that is used."""
        if daemons := self._tools.daemons(binding.gpu):
            raise errors.Retryable(
                f"device {binding.device!r}: MPS daemon {daemons[0]} serves {binding.gpu} still, "
                "and goes with the last claim that has it"
            )
        self._tools.partitioner.make_whole(offer)
        with self._mig.kept_open():
            # Whose mode needs a reset, somebody may have switched it on since the last look.
            if abilities.cut(offer.gpu) and self._mig.state(binding.gpu).enabled:
                raise errors.Retryable(
                    f"device {binding.device!r}: {binding.gpu} is in MIG mode, and is handed over "
                    "as a whole only. Switch MIG mode off (nvidia-smi -mig 0)"
                )
            users = self._mig.users(binding.gpu)
            if users:
                self._refuse_users([one.pid for one in users], binding, "is used")
            if binding.persistence:
                self._note(binding, persistence_off=True)
                self._keep(binding.gpu, on=False)

    def _refuse_holders(
        self,
        binding: bindings.Binding,
        offer: devices.Offer,
        but: Collection[int | None] = (),
    ) -> None:
        opened = [
            *self._tools.nodes(offer.gpu.uuid, offer.gpu.minor),
            *self._bus.screens(devices.PciAddress(binding.address)),
        ]
        found = file_holders.pids(self._tools.proc_root, opened)
        pids = [pid for pid in found if pid not in but]
        if pids:
            self._refuse_users(pids, binding, "is held open")

    def _refuse_holders_of_group(self, binding: bindings.Binding) -> None:
        opened = [nodes.group(binding.group), *binding.nodes]
        own = [self._bus.seen(path) for path in opened if path not in {nodes.API, nodes.IOMMUFD}]
        pids = file_holders.pids(self._tools.proc_root, own)
        if pids:
            self._refuse_users(pids, binding, "is held open")

    def _refuse_users(self, pids: Sequence[int], binding: bindings.Binding, what: str) -> None:
        found = [self._describe(pid) for pid in pids]
        named = ", ".join(map(str, found))
        is_kept = any((one.command or "").startswith(_PERSISTENCED) for one in found)
        hint = ". It lets go after nvidia-smi -pm 0 on the node" if is_kept else ""
        raise errors.Retryable(
            f"device {binding.device!r}: {binding.gpu} at {binding.address} {what} by {named}: end "
            f"it, or delete its pod{hint}"
        )

    def _refuse_hanging(self, binding: bindings.Binding) -> None:
        for one in binding.functions:
            pids = self._bus.hanging(devices.PciAddress(one.address))
            if pids:
                raise errors.Retryable(
                    f"device {binding.device!r}: the kernel is at work on {one.address} still (pid "
                    f"{pids[0]}): dmesg on the node tells why. Nothing is done to it meanwhile; if "
                    "it does not end, reboot the node"
                )

    def _note(self, binding: bindings.Binding, **what: str | bool | None) -> None:
        """Have it known, ahead of it, what is ours to put back though the record were lost."""
        ledger = self._tools.books.get(binding.gpu)
        self._tools.books.put(ledger.model_copy(update=what))

    def _bind_all(self, binding: bindings.Binding, driver: str) -> None:
        for one in binding.functions:
            address = devices.PciAddress(one.address)
            seen = self._bus.function(address)
            if seen is not None and seen.driver == driver:
                continue
            self._bus.allow(address, driver)
            self._bus.unbind(address)
            self._bus.bind(address, driver)

    def _bind_back(
        self, binding: bindings.Binding, one: bindings.Function, *, is_reserved: bool
    ) -> None:
        address = devices.PciAddress(one.address)
        seen = self._bus.function(address)
        if seen is None:
            self._log.error("GPU has left the bus while it was handed over", address=address)
            return
        is_others = seen.driver not in {None, one.driver} and not cards.is_vfio_driver(seen.driver)
        if is_others:
            self._log.warning("somebody else has bound it; it stays so", function=str(seen))
            return
        is_back = seen.driver == one.driver
        if is_reserved or not is_back:
            # Whether it is reserved for a driver cannot be read without waiting for the kernel.
            self._bus.allow(address, None)
        if is_back:
            return
        self._bus.unbind(address)
        if one.driver is not None:
            self._bus.bind(address, one.driver)
        self._log.info("given back", address=address, driver=one.driver, device=binding.device)

    def _see_again(self, binding: bindings.Binding) -> None:
        """Wait until NVML tells of the GPU again, and have it as it was.

        Raises:
            errors.Retryable: it does not, within `SEEN_SECONDS`, or its device node is not there.
        """
        seen = self._function(binding.address)
        if seen is None or seen.driver != cards.NVIDIA:
            # It is gone, or somebody else's: neither is waited for.
            return
        minor = self._minor(binding)
        if binding.facts is not None:
            lacking = self._tools.missing([dataclasses.replace(binding.facts, minor=minor)])
            if lacking:
                raise errors.Retryable(f"device {binding.device!r} is back, and {lacking}")
        if binding.persistence or self._tools.books.get(binding.gpu).persistence_off:
            self._keep(binding.gpu, on=True)

    def _keep(self, gpu: str, *, on: bool) -> None:
        """Set persistence mode; a daemon that is not told of it is named as a holder later."""
        self._modes.set_persistence(gpu, on=on)
        if complaint := self._tools.keeper.tell(gpu, on=on):
            self._log.warning("nvidia-persistenced was not told", gpu=gpu, reason=complaint)

    def _minor(self, binding: bindings.Binding) -> int:
        deadline = time.monotonic() + SEEN_SECONDS
        while True:
            try:
                return self._mig.minor(binding.gpu)
            except errors.DriverError as error:
                if time.monotonic() >= deadline:
                    raise errors.Retryable(
                        f"device {binding.device!r}: {binding.address} is bound to "
                        f"{cards.NVIDIA} again, and NVML does not tell of {binding.gpu} within "
                        f"{SEEN_SECONDS:g} s: {error}"
                    ) from error
            time.sleep(LOOK_SECONDS)

    def _as_it_is(
        self, address: devices.PciAddress, first: devices.PciAddress
    ) -> bindings.Function:
        seen = self._bus.function(address)
        driver = seen.driver if seen else None
        if cards.is_vfio_driver(driver):
            # It is ours, and what it had before is not known any more.
            driver = cards.NVIDIA if address == first else None
        return bindings.Function(address=address, driver=driver)

    def _persistence(self, gpu: devices.Gpu) -> bool | None:
        try:
            return self._modes.persistence(gpu.uuid)
        except nvml_errors.GpuGone:
            return gpu.persistence_mode

    def _function(self, address: str) -> pci.Function | None:
        return self._bus.function(devices.PciAddress(address))


def _whole(gpu: devices.Gpu) -> devices.Gpu | None:
    """The GPU as it will be when it is handed over: nobody cuts it then."""
    if pci.is_unseen(gpu.uuid):
        return None
    mode = None if gpu.mig_enabled is None else False
    return dataclasses.replace(gpu, mig_enabled=mode, mig_pending=mode, instances=())
