"""What no claim needs any more: what effects left over, and what GPUs are still set to.

What no record tells of is left over: a record was lost, or the driver was killed. A device that a
claim may have goes only by a complete list of claims, which tells that none has it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, ledgers
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import effect, waits
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts
from dra_driver.apps.upkeep import device_users, mending
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import recounting
from dra_driver.model import claims, devices, prepared
from dra_driver.model import ledgers as ledger_model

LOCK_SECONDS = 30.0
"""How long a claim on the same GPU may be busy."""
END_SECONDS = 30.0
"""How long the end of a daemon may take."""


class Orphans:
    """Tells when a list of all claims is needed, and cleans up with it."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        store: attempts.Store,
        books: ledgers.Ledgers,
        effects: Sequence[effect.Effect],
        mender: mending.Mender,
        users: device_users.DeviceUsers,
        *,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is told when a device is gone that no claim had."""
        self._gpus = gpus
        self._known = store.records
        self._locks = store.locks
        self._books = books
        self._effects = effects
        self._mender = mender
        self._users = users
        self._on_change = on_change
        self._told: dict[tuple[str, str], str] = {}
        self._log = telemetry.logger("orphans")

    def needs_view(self) -> bool:
        """Whether something looks as if it belonged to no claim, or a claim's record is lost."""
        # The leftovers first, as records are read after what is there.
        found = any(left.device is not None for left in self._leftovers())
        return found or bool(self._mender.lost())

    def rebuild(self, found: Mapping[str, claims.ResourceClaim]) -> None:
        """Rebuild the records that are lost, with the claims that have devices here, by UID."""
        self._mender.mend(found)

    def sweep(self) -> None:
        """Remove what no record tells of and no process uses, as far as it is no claim's device.

        While a record is lost that cannot be rebuilt, its claim may be at work with any of that.
        """
        if not self._mender.lost():
            for left in self._leftovers():
                if left.device is None:
                    self._remove(left)

    def remove(self, allocated: frozenset[str]) -> None:
        """Remove devices that no claim has.

        `allocated` are the names of all devices of this node that claims have. What is there, and
        records, are read after that was listed, so a claim that came later is not overlooked.
        """
        # By what is in the names, and not by the names: a profile may have none at the moment.
        there = {_identity(name) for name in allocated}
        found = [left for left in self._leftovers() if left.device is not None]
        for left in found:
            if left.device is not None and _identity(left.device) in there:
                self._keep(left)
            elif self._remove(left):
                self._on_change()
        if found:
            self.settle()
            self._gpus.look()

    def _leftovers(self) -> list[effect.Leftover]:
        return effect.leftovers(self._effects, self._gpus.snapshot.cards, self._records)

    def _is_there(self, left: effect.Leftover) -> bool:
        return any(one.key == left.key for one in self._leftovers())

    def _records(self) -> list[prepared.Record]:
        return list(self._known.contents().records.values())

    def _keep(self, left: effect.Leftover) -> None:
        try:
            with self._locks.hold(self._cards(left), patience.Patience(LOCK_SECONDS)):
                if self._is_there(left):
                    left.keep()
        except errors.DriverError as error:
            self._tell(left, str(error))
        else:
            self._log.warning(f"{left.kind} of a claim without a record stays", name=left.name)

    def _remove(self, left: effect.Leftover) -> bool:
        """Whether it is gone; what is in use, or cannot go, keeps none of the others."""
        try:
            try:
                self._remove_now(left)
            except waits.Wait as wait:
                wait.over(patience.Patience(END_SECONDS))
                self._remove_now(left)
        except errors.DriverError as error:
            self._tell(left, str(error))
            return False
        self._told.pop(left.key, None)
        return True

    def _remove_now(self, left: effect.Leftover) -> None:
        # Before anything is locked: NVML may hang.
        users = self._users.of_devices(left.uses) if left.uses else None
        if users is not None:
            raise errors.Retryable(f"its devices are used by {users}")
        # Another instance may be about to need it again, and has locked its GPUs then.
        with self._locks.hold(self._cards(left), patience.Patience(LOCK_SECONDS)):
            if lost := self._mender.lost():
                raise errors.Retryable(
                    f"the records of claims {', '.join(lost)} are lost, so what these have is not "
                    "known. They are rebuilt as soon as the API tells of them"
                )
            if self._is_there(left):
                left.remove()
                self._log.warning(f"{left.kind} without a claim removed", name=left.name)

    def _cards(self, left: effect.Leftover) -> Iterable[str]:
        """The locks of the GPUs that it is on; of all where that is not known."""
        every = [card.gpu for card in self._gpus.snapshot.cards]
        gpus = [gpu for gpu in every if gpu.uuid in left.gpus]
        if not gpus and left.device is not None:
            # A GPU is not offered while it is brought back from a virtual machine.
            return [devices.card_of(left.device)]
        return [lock for gpu in gpus or every for lock in gpu.locks]

    def _tell(self, left: effect.Leftover, reason: str) -> None:
        """Once for each reason: what cannot be removed now is tried again and again."""
        if self._told.get(left.key) != reason:
            self._log.warning(
                f"{left.kind} without a claim stays for now", name=left.name, reason=reason
            )
        self._told[left.key] = reason

    def settle(self) -> None:
        """Put GPUs back to what they were where this driver set them and nothing needs it any more.

        No list is needed for that: who needs a MIG mode, a time slice or a compute mode holds the
        lock of the GPU until its instance is in the ledger, and has a record before.
        """
        for card in self._gpus.snapshot.cards:
            uuid = card.gpu.uuid
            try:
                damaged = self._books.damaged(uuid)
                if not (damaged or self._is_unsettled(self._books.get(uuid))):
                    continue
                with self._locks.hold(card.gpu.locks, patience.Patience(LOCK_SECONDS)):
                    self._mend_ledger(card)
                    # Read with the lock held: it may have been bound since the look.
                    if uuid in self._gpus.snapshot.bound or self._books.get(uuid).handed_over:
                        continue
                    # What claims need whose records are lost is not known.
                    known = None if self._mender.lost() else self._records()
                    for one in self._effects:
                        one.settle(uuid, known)
            except errors.DriverError as error:
                self._log.warning("GPU not settled for now", device=card.name, reason=str(error))

    def _mend_ledger(self, card: catalog.Card) -> None:
        """Put what can be known in the place of damaged files; pages, of what is in one file."""
        uuid = card.gpu.uuid
        for key, reason in self._books.damaged(uuid).items():
            try:
                page, aside = self._books.mend(key)
            except files.TROUBLE as error:
                # Its name tells as much.
                self._log.warning(
                    "damaged page of a GPU's ledger stays for now", file=key, reason=str(error)
                )
                continue
            self._log.error(
                "file of a GPU's ledger cannot be read; "
                + ("rebuilt from its name" if page else "what claims have is rebuilt from records"),
                device=card.name,
                file=key,
                reason=reason,
                set_aside=None if aside is None else str(aside),
            )
            if page is None:
                known = recounting.told_by_records(self._books.get(uuid), card.gpu, self._records())
                self._books.put(known)
        if self._books.has_old(uuid):
            self._books.put(self._books.get(uuid))

    def _is_unsettled(self, ledger: ledger_model.Ledger) -> bool:
        if self._books.has_old(ledger.gpu):
            return True
        before = (ledger.time_slice_before, ledger.compute_mode_before)
        return (ledger.mode_switched and not ledger.made) or before != (None, None)


def _identity(name: str) -> object:
    return devices.parse_mig_device_name(name) or name
