"""What no claim needs any more: our MIG instances, those of others when told to, and settings.

Ours are left over where a claim's record was lost. Only a complete list of claims tells that no
claim has one; without it nothing is removed.
"""

from collections.abc import Callable, Iterable

from dra_driver import errors, telemetry
from dra_driver.adapters import ledgers, locks, patience, records
from dra_driver.apps import attempts, inventory, waits
from dra_driver.logic import catalog
from dra_driver.model import devices, mig
from dra_driver.model import ledgers as ledger_model

LOCK_SECONDS = 30.0
"""How long a claim on the same GPU may be busy."""
END_SECONDS = 30.0
"""How long the end of a daemon may take."""
DAEMONS = 100
"""How many ends are waited for, at most."""


class Orphans:
    """Tells when a list of all claims is needed, and cleans up with it."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        known: records.Records,
        books: ledgers.Ledgers,
        held: locks.Locks,
        effects: attempts.Effects,
        *,
        adopt: bool,
        on_change: Callable[[], None],
    ) -> None:
        """With `adopt` instances that others made count as ours."""
        self._gpus = gpus
        self._known = known
        self._books = books
        self._locks = held
        self._partitioner = effects.partitioner
        self._sharer = effects.sharer
        self._adopt = adopt
        self._on_change = on_change
        self._log = telemetry.logger("orphans")

    def needs_view(self) -> bool:
        """Whether something looks as if it belonged to no claim."""
        cards = self._gpus.snapshot.cards
        # The ledgers first: a record is written before the ledger, and removed after it.
        made = {card.gpu.uuid: self._books.get(card.gpu.uuid).spots for card in cards}
        known = self._known.contents()
        if known.damaged:
            # What those claims have is not known, so a list would not help.
            return False
        return any(
            self._is_to_adopt(card) or made[card.gpu.uuid] - _claimed(card, known) for card in cards
        )

    def remove_daemons(self) -> None:
        """Stop the MPS daemons that no record has.

        All GPUs are locked: another instance may be about to need one of them again.
        """
        cards = [card.name for card in self._gpus.snapshot.cards]
        for _ in range(DAEMONS):
            try:
                if self._remove_daemons(cards):
                    return
            except errors.Retryable as error:
                self._log.warning("MPS daemons are not looked at for now", reason=str(error))
                return

    def _remove_daemons(self, cards: Iterable[str]) -> bool:
        """Whether they are gone; if not, one more of those that were told to end has."""
        try:
            with self._locks.hold(cards, patience.Patience(LOCK_SECONDS)):
                self._sharer.remove_unused(lambda: list(self._known.contents().records.values()))
        except waits.Wait as wait:
            wait.over(patience.Patience(END_SECONDS))
            return False
        return True

    def settle(self) -> None:
        """Put GPUs back to what they were where this driver set them and nothing needs it any more.

        No list is needed for that: who needs a MIG mode, a time slice or a compute mode holds the
        lock of the GPU until its instance is in the ledger, and has a record before.
        """
        for card in self._gpus.snapshot.cards:
            if not self._is_unsettled(self._books.get(card.gpu.uuid)):
                continue
            try:
                with self._locks.hold([card.name], patience.Patience(LOCK_SECONDS)):
                    self._partitioner.settle_mode(card.gpu.uuid)
                    known = self._known.contents()
                    # What claims need whose records are damaged is not known.
                    if not known.damaged:
                        self._sharer.settle(card.gpu.uuid, known.records.values())
            except errors.DriverError as error:
                self._log.warning("GPU not settled for now", device=card.name, reason=str(error))

    def remove(self, allocated: frozenset[str]) -> None:
        """Remove what no claim has.

        `allocated` are the names of all devices of this node that claims have. Records and ledgers
        are read after that was listed, so a claim that came later is not overlooked.
        """
        for card in self._gpus.snapshot.cards:
            if not (self._is_to_adopt(card) or self._books.get(card.gpu.uuid).made):
                continue
            try:
                with self._locks.hold([card.name], patience.Patience(LOCK_SECONDS)):
                    self._clean(card, allocated)
            except errors.DriverError as error:
                self._log.warning(
                    "MIG instances without a claim stay for now",
                    device=card.name,
                    reason=str(error),
                )
        if self._adopt:
            self._gpus.look()

    @staticmethod
    def _is_unsettled(ledger: ledger_model.Ledger) -> bool:
        before = (ledger.time_slice_before, ledger.compute_mode_before)
        return (ledger.mode_switched and not ledger.made) or before != (None, None)

    def _is_to_adopt(self, card: catalog.Card) -> bool:
        return self._adopt and bool(card.foreign)

    def _clean(self, card: catalog.Card, allocated: frozenset[str]) -> None:
        known = self._known.contents()
        if known.damaged:
            raise errors.Retryable(
                f"the records of claims {', '.join(sorted(known.damaged))} are damaged, so what "
                "these have is not known. Prepare them again, or restart the driver"
            )
        adopted = self._adopted(card)
        # By what is in the names, and not by the names: a profile may have none at the moment.
        there = {devices.parse_mig_device_name(name) for name in allocated}
        ours = self._books.get(card.gpu.uuid).spots
        for spot in sorted((ours | adopted) - _claimed(card, known)):
            name = _name(card, spot)
            if devices.parse_mig_device_name(name) not in there:
                self._remove(card, spot, name)
                continue
            if spot in adopted:
                self._partitioner.adopt(card.gpu, [spot])
            self._log.warning("MIG instance of a claim without a record stays", device=name)
        self._partitioner.settle_mode(card.gpu.uuid)

    def _adopted(self, card: catalog.Card) -> frozenset[mig.Spot]:
        """What others made and is to be removed; nothing is offered in its place before it is."""
        if not self._is_to_adopt(card):
            return frozenset()
        listed = [f"{one.gi} at {one.spot.placement}" for one in card.foreign]
        self._log.warning("adopting MIG instances", device=card.name, instances=listed)
        self._partitioner.adopt(card.gpu, [])
        return frozenset(one.spot for one in card.foreign)

    def _remove(self, card: catalog.Card, spot: mig.Spot, name: str) -> None:
        """Remove one; one that is in use keeps none of the others."""
        try:
            self._partitioner.remove(card.gpu.uuid, spot)
        except errors.DriverError as error:
            self._log.warning(
                "MIG instance without a claim stays for now", device=name, reason=str(error)
            )
            return
        self._log.warning("MIG instance without a claim removed", device=name)
        self._on_change()


def _claimed(card: catalog.Card, known: records.Contents) -> frozenset[mig.Spot]:
    return frozenset(
        partition.spot
        for record in known.records.values()
        for partition in record.partitions
        if partition.gpu == card.gpu.uuid
    )


def _name(card: catalog.Card, spot: mig.Spot) -> str:
    profiles = {profile.id: profile.name for profile in card.gpu.profiles}
    return devices.mig_device_name(card.gpu.minor, profiles.get(spot.profile_id, "unknown"), spot)
