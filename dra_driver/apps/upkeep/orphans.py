"""What no claim needs any more: our MIG instances, those of others when told to, and settings.

Ours are left over where a claim's record was lost. Only a complete list of claims tells that no
claim has one; without it nothing is removed.
"""

from collections.abc import Callable, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, ledgers, records
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import waits, wiring
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts
from dra_driver.apps.upkeep import device_users, mending
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import recounting
from dra_driver.model import claims, devices, mig, prepared
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
        effects: wiring.Effects,
        mender: mending.Mender,
        users: device_users.DeviceUsers,
        *,
        adopt: bool,
        on_change: Callable[[], None],
    ) -> None:
        """With `adopt` instances that others made count as ours."""
        self._gpus = gpus
        self._known = store.records
        self._locks = store.locks
        self._books = books
        self._partitioner = effects.partitioner
        self._sharer = effects.sharer
        self._effects = effects.listed
        self._mender = mender
        self._users = users
        self._adopt = adopt
        self._on_change = on_change
        self._told: dict[str, str] = {}
        self._log = telemetry.logger("orphans")

    def needs_view(self) -> bool:
        """Whether something looks as if it belonged to no claim, or a claim's record is lost."""
        cards = self._gpus.snapshot.cards
        # The ledgers first: a record is written before the ledger, and removed after it.
        made = {card.gpu.uuid: self._books.get(card.gpu.uuid).spots for card in cards}
        if self._mender.lost():
            return True
        known = self._known.contents()
        return any(
            self._is_to_adopt(card) or made[card.gpu.uuid] - _claimed(card, known) for card in cards
        )

    def rebuild(self, found: Mapping[str, claims.ResourceClaim]) -> None:
        """Rebuild the records that are lost, with the claims that have devices here, by UID."""
        self._mender.mend(found)

    def remove_daemons(self) -> None:
        """Stop the MPS daemons that no record has, and no process uses.

        While a record is lost that cannot be rebuilt, its claim may be at work with any of them.
        """
        if self._mender.lost():
            return
        for domain, device in self._unused().items():
            try:
                self._end_daemon(domain, device)
            except errors.DriverError as error:
                self._tell(domain, f"{error}")
            else:
                self._told.pop(domain, None)

    def _end_daemon(self, domain: str, device: str | None) -> None:
        try:
            self._remove_daemon(domain, device)
        except waits.Wait as wait:
            wait.over(patience.Patience(END_SECONDS))
            self._remove_daemon(domain, device)

    def _remove_daemon(self, domain: str, device: str | None) -> None:
        # Before anything is locked: NVML may hang.
        uuids = device.split(",") if device else []
        users = self._users.of_devices(uuids) if uuids else None
        if users is not None:
            raise errors.Retryable(f"its devices are used by {users}")
        # Another instance may be about to need it again, and has locked its GPUs then.
        every = [card.gpu for card in self._gpus.snapshot.cards]
        gpus = [gpu for gpu in every if gpu.uuid in uuids] or every
        locks = [lock for gpu in gpus for lock in gpu.locks]
        with self._locks.hold(locks, patience.Patience(LOCK_SECONDS)):
            if domain in self._unused() and not self._mender.lost():
                self._log.warning("MPS daemon without a claim is removed", domain=domain)
                self._sharer.remove(domain)

    def _unused(self) -> Mapping[str, str | None]:
        return self._sharer.unused(self._records)

    def _records(self) -> list[prepared.Record]:
        return list(self._known.contents().records.values())

    def _tell(self, domain: str, reason: str) -> None:
        """Once for each reason: what cannot be removed now is tried again and again."""
        if self._told.get(domain) != reason:
            self._log.warning(
                "MPS daemon without a claim stays for now", domain=domain, reason=reason
            )
        self._told[domain] = reason

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

    def remove(self, allocated: frozenset[str]) -> None:
        """Remove what no claim has.

        `allocated` are the names of all devices of this node that claims have. Records and ledgers
        are read after that was listed, so a claim that came later is not overlooked.
        """
        for card in self._gpus.snapshot.cards:
            if not (self._is_to_adopt(card) or self._books.get(card.gpu.uuid).made):
                continue
            try:
                with self._locks.hold(card.gpu.locks, patience.Patience(LOCK_SECONDS)):
                    self._clean(card, allocated)
            except errors.DriverError as error:
                self._log.warning(
                    "MIG instances without a claim stay for now",
                    device=card.name,
                    reason=str(error),
                )
        if self._adopt:
            self._gpus.look()

    def _is_unsettled(self, ledger: ledger_model.Ledger) -> bool:
        if self._books.has_old(ledger.gpu):
            return True
        before = (ledger.time_slice_before, ledger.compute_mode_before)
        return (ledger.mode_switched and not ledger.made) or before != (None, None)

    def _is_to_adopt(self, card: catalog.Card) -> bool:
        return self._adopt and bool(card.foreign)

    def _clean(self, card: catalog.Card, allocated: frozenset[str]) -> None:
        lost = self._mender.lost()
        known = self._known.contents()
        if lost:
            raise errors.Retryable(
                f"the records of claims {', '.join(lost)} are lost, so what these have is not "
                "known. They are rebuilt as soon as the API tells of them"
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
    return devices.mig_device_name(card.name, profiles.get(spot.profile_id, "unknown"), spot)
