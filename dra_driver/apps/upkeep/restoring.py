"""CDI specs that are gone, or name nodes that were numbered anew, while their claims are prepared:
written again, from what is remembered.

Their directory is in memory as a rule, and may be emptied while the driver runs, or does not. A pod
that has the claim already could start no container with it, or one with another claim's card, and
nobody would prepare it again.
"""

import contextlib
from collections.abc import Callable, Collection

from dra_driver import errors, telemetry
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import effect, specs, wiring
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts
from dra_driver.logic.preparing import device_numbers, planning
from dra_driver.model import devices, prepared

LOCK_SECONDS = 1.0
"""How long a claim may be busy; whoever is at it writes its spec, or the next look does."""


class Restorer:
    """Looks which specs are missing or outdated. The API is not asked."""

    def __init__(
        self,
        node: planning.Node,
        store: attempts.Store,
        gpus: inventory.Inventory,
        effects: wiring.Effects,
        *,
        leaving: Callable[[], Collection[str]],
    ) -> None:
        """`leaving` tells the UIDs of claims that are, or were in part, unprepared."""
        self._driver_name = node.driver_name
        self._known = store.records
        self._locks = store.locks
        self._boot_id = store.boot_id
        self._specs = specs.Specs(store.cdi_dir, node.driver_name)
        self._gpus = gpus
        self._injector = effects.injector
        self._effects = effects.listed
        self._partitioner = effects.partitioner
        self._leaving = leaving
        self._told: dict[str, str] = {}
        self._log = telemetry.logger("restorer")

    def look(self) -> None:
        """Write what is missing; what cannot be made now is told, once, and tried again.

        A spec that names a node which is another card's by now goes at once: a container that
        cannot start is better than one with somebody else's card.
        """
        # In this order: a claim that is unprepared loses its spec before its record.
        known = self._known.contents().records
        written, leaving = self._specs.uids(), {*self._leaving()}
        gpus = self._cards()
        missing = {
            uid: record
            for uid, record in known.items()
            if uid not in leaving
            and record.phase is prepared.Phase.COMPLETED
            and record.boot_id == self._boot_id
            and (uid not in written or _is_outdated(record, gpus))
        }
        self._told = {uid: reason for uid, reason in self._told.items() if uid in missing}
        for uid, record in missing.items():
            with contextlib.ExitStack() as stack:
                try:
                    waiting = patience.Patience(LOCK_SECONDS)
                    stack.enter_context(self._locks.hold([f"claim {uid}"], waiting))
                except errors.Retryable:
                    # Whoever is at it knows best.
                    continue
                self._restore_told(record)

    def _restore_told(self, record: prepared.Record) -> None:
        try:
            self._restore(record)
        except errors.DriverError as error:
            self._tell(record, str(error))

    def _restore(self, record: prepared.Record) -> None:
        # With the claim's lock held: it may have been unprepared, or prepared anew.
        if self._known.get(record.uid) != record:
            return
        cards = self._cards()
        is_there = self._specs.read(record.uid) is not None
        if is_there and not _is_outdated(record, cards):
            return
        if is_there and device_numbers.are_taken(record, cards):
            self._specs.remove(record.uid)
            self._log.warning("CDI spec names nodes of other cards; removed", claim=str(record.ref))
        numbered = {gpu.uuid: gpu for gpu in cards}
        found = gpus_of(record, self._gpus.snapshot)
        gpus = {name: numbered.get(gpu.uuid, gpu) for name, gpu in found.items()}
        shared = effect.edits(self._effects, record, gpus)
        self._specs.put(
            record.uid, specs.text(self._driver_name, self._injector, record, gpus, shared)
        )
        if _is_outdated(record, cards):
            minors = device_numbers.now(record, cards)
            self._known.write(record.model_copy(update={"minors": minors}))
            self._log.warning("cards have other numbers; CDI spec made anew", claim=str(record.ref))
        else:
            self._log.warning("CDI spec of a claim was gone; written again", claim=str(record.ref))

    def _cards(self) -> list[devices.Gpu]:
        """The GPUs that NVML tells of, with the numbers that they have now."""
        seen = [card.gpu for card in self._gpus.snapshot.served]
        try:
            return [self._partitioner.numbered(gpu) for gpu in seen]
        except errors.Retryable:
            # As they were at the last look.
            return seen

    def _tell(self, record: prepared.Record, reason: str) -> None:
        if self._told.get(record.uid) != reason:
            self._log.error(
                "CDI spec of a claim is gone, and cannot be written for now; its containers cannot "
                "start",
                claim=str(record.ref),
                reason=reason,
            )
        self._told[record.uid] = reason


def gpus_of(record: prepared.Record, seen: inventory.Snapshot) -> dict[str, devices.Gpu]:
    """The GPUs of a claim's devices, by device name.

    Raises:
        errors.Retryable: one of them is not there, is another one now, or was cut into an instance
            of which nothing is known.
    """
    gone = sorted({one.device for one in record.devices} - seen.offered.keys())
    if gone:
        raise errors.Retryable(
            f"devices {', '.join(gone)} are not there: look at `nvidia-smi` on the node"
        )
    found = {one.device: seen.offered[one.device].gpu for one in record.devices}
    made = {one.device for one in record.partitions if one.instance is not None}
    unknown = [one.device for one in record.devices if one.kind == "mig" and one.device not in made]
    if unknown:
        # With less than its instance a container would be given the whole card.
        raise errors.Retryable(
            f"of {unknown[0]} nothing but its name is known: delete the claim's pod"
        )
    for name, gpu in found.items():
        if record.cards.get(gpu.name, gpu.uuid) != gpu.uuid:
            raise errors.Retryable(
                f"device {name} is on {gpu.uuid} now, and was prepared on "
                f"{record.cards[gpu.name]}: delete the claim's pod"
            )
    return found


def _is_outdated(record: prepared.Record, gpus: Collection[devices.Gpu]) -> bool:
    """Whether its spec names other nodes than its cards have, or such as are other cards'."""
    is_other = device_numbers.now(record, gpus) != record.minors
    return is_other or device_numbers.are_taken(record, gpus)
