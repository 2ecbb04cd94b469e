"""The effect of VFIO: a claim's GPUs are bound to a driver that hands them to a virtual machine.

See `effect.Effect`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from dra_driver import errors
from dra_driver.adapters.disk import ledgers
from dra_driver.adapters.pci import pci_bus
from dra_driver.apps.effects import effect, handing_over
from dra_driver.logic.offering import catalog
from dra_driver.logic.passthrough import leftovers
from dra_driver.logic.preparing import cdi, planning, reports
from dra_driver.model import bindings, devices, driver, prepared, sharing


class Passthrough:
    """GPUs of claims for virtual machines."""

    parts: Mapping[str, Collection[int]] = MappingProxyType(
        {bindings.PART: frozenset({bindings.VERSION})}
    )
    written_ahead = True

    def __init__(
        self,
        handover: handing_over.Handover,
        bus: pci_bus.PciBus,
        books: ledgers.Ledgers,
        handed_over: Callable[[Sequence[driver.DeviceNode]], cdi.Edits],
        card_names: Callable[[], Mapping[str, str]],
    ) -> None:
        """`handed_over` gives what containers get of device nodes, `card_names` how cards are
        called, by UUID: also those that nobody sees.
        """
        self._handover = handover
        self._bus = bus
        self._books = books
        self._handed_over = handed_over
        self._card_names = card_names
        self._troubles: dict[str, effect.Troubles] = {}

    def remember(self, record: prepared.Record, job: effect.Job) -> prepared.Record:
        """See `effect.Effect`."""
        before = bindings.of(job.before) if job.before else ()
        if job.in_use:
            return bindings.into(record, before)
        known = {(one.device, one.gpu): one for one in before}
        wanted = {
            entry.device: job.plan.offers[entry.device]
            for entry in job.plan.entries
            if entry.kind == "vfio"
        }
        planned = (
            self._handover.planned(offer, known.get((name, offer.gpu.uuid)))
            for name, offer in wanted.items()
        )
        return bindings.into(record, tuple(planned))

    def is_in(self, record: prepared.Record) -> bool:
        """See `effect.Effect`."""
        return bool(bindings.of(record))

    def is_intact(self, record: prepared.Record, plan: planning.Plan) -> bool:
        """See `effect.Effect`."""
        planned = {entry.device for entry in plan.entries if entry.kind == "vfio"}
        found = bindings.of(record)
        return {one.device for one in found} == planned and all(
            self._handover.is_bound(one) for one in found
        )

    def renounce(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`. What is bound half way is bound on."""

    def make(self, record: prepared.Record, job: effect.Job) -> effect.Made:
        """See `effect.Effect`.

        Raises:
            errors.Retryable: a GPU is used, or the kernel refuses; the text says who, and what.
        """
        if job.in_use:
            return effect.Made(record, self.edits(record, {}))
        made = tuple(
            self._handover.take(
                one,
                job.plan.offers[one.device],
                job.plan.needs.vfio.get(one.device, sharing.Vfio()),
            )
            for one in bindings.of(record)
        )
        record = bindings.into(record, made)
        return effect.Made(record, self.edits(record, {}))

    def edits(self, record: prepared.Record, gpus: Mapping[str, devices.Gpu]) -> effect.Edits:  # noqa: ARG002
        """See `effect.Effect`: the nodes of VFIO."""
        return {
            cdi.device_key(one.device): self._handed_over(self._bus.nodes(one.nodes))
            for one in bindings.of(record)
        }

    def undo(self, record: prepared.Record, others: effect.Others) -> None:  # noqa: ARG002
        """See `effect.Effect`. Each is tried, whatever becomes of the others.

        Raises:
            errors.Retryable: one could not be brought back now; the text says why.
        """
        failures = []
        for one in reversed(bindings.of(record)):
            try:
                self._handover.give_back(one)
            except errors.DriverError as error:
                failures.append(str(error))
        if failures:
            raise errors.Retryable("; ".join(failures))
        self._troubles.pop(record.uid, None)

    def settle(self, gpu: str, records: effect.Others | None) -> None:
        """See `effect.Effect`. What no record tells of is a leftover: that takes all claims."""

    def leftovers(
        self, _cards: Sequence[catalog.Card], records: Callable[[], effect.Others]
    ) -> Sequence[effect.Leftover]:
        """See `effect.Effect`: GPUs that the ledger says are ours, and no record."""
        taken = self._books.handed_over()
        if not taken:
            return []
        bus = self._bus.scan()
        claimed = {one.gpu for record in records() for one in bindings.of(record)}
        names = {gpu: devices.vfio_device_name(card) for gpu, card in self._card_names().items()}
        return [
            self._leftover(leftovers.binding(bus, gpu, address, names.get(gpu)))
            for gpu, address in sorted(taken.items())
            if gpu not in claimed
        ]

    def _leftover(self, binding: bindings.Binding) -> effect.Leftover:
        return effect.Leftover(
            "GPU for a virtual machine",
            binding.device or binding.address,
            (binding.gpu,),
            lambda: self._handover.give_back(binding),
            device=binding.device or None,
        )

    def tells(self, record: prepared.Record) -> effect.Told:
        """See `effect.Effect`: where the GPU is, and who has it."""
        return {
            cdi.device_key(one.device): {
                "pciBusID": one.address,
                "iommuGroup": one.group,
                "boundTo": one.driver,
            }
            for one in bindings.of(record)
        }

    def troubles(self, record: prepared.Record, *, anew: bool) -> effect.Troubles:
        """See `effect.Effect`: GPUs that are not bound as they have to be."""
        if anew:
            found = {
                cdi.device_key(one.device): reports.Trouble(
                    "NotBound",
                    f"{one.address} is not bound to {one.driver or 'a VFIO driver'}: the virtual "
                    "machine has lost it. Delete the pod",
                )
                for one in bindings.of(record)
                if not self._handover.is_bound(one)
            }
            # The claim may be undone at the same time.
            self._troubles.pop(record.uid, None)
            if found:
                self._troubles[record.uid] = found
        return self._troubles.get(record.uid, reports.FINE)

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """See `effect.Effect`."""
        left = tuple(one for one in bindings.of(record) if one.device not in shared)
        return bindings.into(record, left)
