"""What is done with the state that an earlier life of the driver left on the node."""

import contextlib
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters import files, patience
from dra_driver.apps import attempts, sharing
from dra_driver.logic import cdi, planning, sharing_plan
from dra_driver.model import claims, devices, prepared

LOCK_SECONDS = 30.0
"""How long another instance of the driver may be busy with a claim."""

ABSENT = "the file is gone"

ClaimList = Callable[[Collection[str]], list[claims.ResourceClaim]]
Offers = Callable[[], Mapping[str, devices.Offer]]
Divisions = Callable[[], sharing_plan.Divisions]


class Recovery:
    """Run once, before the first call is answered."""

    def __init__(
        self,
        node: planning.Node,
        store: attempts.Store,
        *,
        claim_list: ClaimList,
        offers: Offers,
        divisions: Divisions = dict,
    ) -> None:
        """None of them is asked unless something is lost.

        `claim_list` gives the claims with these UIDs, and maybe others, `offers` the devices of
        this node by name, `divisions` how those are divided that many claims consume.
        """
        self._node = node
        self._store = store
        self._claim_list = claim_list
        self._offers = offers
        self._divisions = divisions
        self._log = telemetry.logger("recovery")

    def run(self) -> None:
        """Drop what ended with an earlier boot, rebuild what is lost, clear what was half done."""
        self._drop_earlier_boots()
        self._rebuild()
        self._clear_leftovers()

    def _drop_earlier_boots(self) -> None:
        """After a reboot no container runs, and the kubelet asks again for each claim it wants."""
        for uid, record in sorted(self._store.records.contents().records.items()):
            if record.boot_id == self._store.boot_id:
                continue
            with self._claim(uid):
                # Another instance may have prepared the claim anew since the look.
                if self._store.records.contents().records.get(uid) != record:
                    continue
                files.remove(self._spec_path(uid))
                self._store.records.remove(uid)
            self._log.info("prepared before the node's last boot: dropped", claim=str(record.ref))

    def _rebuild(self) -> None:
        contents = self._store.records.contents()
        lost = contents.damaged.keys() | (self._uids_of_specs() - contents.records.keys())
        if not lost:
            return
        known = self._claims_by_uid(lost)
        for uid in sorted(lost):
            with self._claim(uid):
                # Another instance may have been busy with the claim during the first look.
                reason = self._loss(uid)
                if reason is not None:
                    self._set_aside(uid, reason)
                    self._rebuild_one(uid, known.get(uid))

    def _loss(self, uid: str) -> str | None:
        """Why the record of a claim has to be rebuilt; None where it has not."""
        try:
            record = self._store.records.get(uid)
        except errors.Rejected as error:
            return str(error)
        if record is None and self._spec_path(uid).exists():
            return ABSENT
        return None

    def _set_aside(self, uid: str, reason: str) -> None:
        aside = None if reason == ABSENT else str(self._store.records.keep_aside(uid))
        self._log.error(
            "record of a claim cannot be read; rebuilding it",
            claim_uid=uid,
            reason=reason,
            set_aside=aside,
        )

    def _rebuild_one(self, uid: str, claim: claims.ResourceClaim | None) -> None:
        text = self._spec_text(uid)
        entries = self._entries(uid, claim, text)
        if not entries:
            files.remove(self._spec_path(uid))
            self._store.records.remove(uid)
            self._log.error(
                "neither the API nor a CDI spec tells what was prepared; nothing is remembered of "
                "the claim. If its pod still runs, delete it",
                claim_uid=uid,
            )
            return
        record = prepared.Record(
            uid=uid,
            namespace=claim.ref.namespace if claim else "",
            name=claim.ref.name if claim else "",
            phase=prepared.Phase.COMPLETED,
            boot_id=self._store.boot_id,
            devices=entries,
            rebuilt=True,
            partitions=self._partitions(entries),
            sharing=self._sharing(uid, claim) or self._recalled(uid, entries, text),
        )
        self._store.records.write(record)
        self._log.warning(
            "record rebuilt",
            claim_uid=uid,
            source="API" if claim else "CDI spec",
            devices=[entry.device for entry in entries],
        )

    def _entries(
        self, uid: str, claim: claims.ResourceClaim | None, text: str | None
    ) -> tuple[prepared.PreparedDevice, ...]:
        """What the claim has, as the API says, or else as far as its CDI spec tells."""
        if claim is not None and claim.allocation is not None:
            try:
                return planning.allocated_entries(claim.ref, claim, self._node)
            except errors.Rejected as error:
                self._log.warning("claim is allocated elsewhere", reason=str(error))
                return ()
        keys = cdi.device_keys(uid, text) if text else ()
        return tuple(
            prepared.PreparedDevice(
                requests=(),
                pool=self._node.pool,
                device=device,
                cdi_ids=(cdi.device_id(self._node.driver_name, uid, key),),
                share_id=share_id,
                kind=planning.kind(device),
            )
            for key in keys
            for device, share_id in [cdi.parse_device_key(key)]
        )

    def _partitions(
        self, entries: Iterable[prepared.PreparedDevice]
    ) -> tuple[prepared.Partition, ...]:
        """The MIG instances of the devices, as far as their GPUs are there to tell."""
        offers = self._offers()
        found = []
        for entry in entries:
            offer = offers.get(entry.device)
            if entry.kind == "mig" and offer is not None and offer.spot is not None:
                found.append(planning.existing(planning.partition(entry, offer), offer))
            elif entry.kind == "mig":
                self._log.error(
                    "of the partition nothing but its name is known", device=entry.device
                )
        return tuple(found)

    def _sharing(self, uid: str, claim: claims.ResourceClaim | None) -> prepared.Sharing:
        """What was set up so that processes share the devices, as far as the API tells."""
        if claim is None:
            return prepared.Sharing()
        try:
            plan = planning.plan(claim.ref, claim, self._node, self._offers(), self._divisions())
        except errors.DriverError as error:
            self._log.error(
                "of what shares the claim's devices only its CDI spec tells",
                claim_uid=uid,
                reason=str(error),
            )
            return prepared.Sharing()
        return plan.needs.remembered

    def _recalled(
        self, uid: str, entries: Iterable[prepared.PreparedDevice], text: str | None
    ) -> prepared.Sharing:
        """What its CDI spec tells of that: the daemons that its containers use."""
        gpus = {
            name: offer.gpu.uuid for name, offer in self._offers().items() if offer.spot is None
        }
        return sharing.recalled(entries, cdi.edits(uid, text) if text else {}, gpus)

    def _claims_by_uid(self, uids: Collection[str]) -> dict[str, claims.ResourceClaim]:
        try:
            return {claim.ref.uid: claim for claim in self._claim_list(uids)}
        except errors.DriverError as error:
            self._log.warning(
                "claims cannot be listed; rebuilding from CDI specs alone", reason=str(error)
            )
            return {}

    def _uids_of_specs(self) -> set[str]:
        """The claims that have a spec file."""
        names = (path.name for path in self._store.cdi_dir.iterdir())
        uids = (cdi.claim_uid(self._node.driver_name, name) for name in names)
        return {uid for uid in uids if uid}

    def _spec_text(self, uid: str) -> str | None:
        try:
            return files.read(self._spec_path(uid))
        except UnicodeDecodeError:
            # A damaged spec tells nothing, like one that is not there.
            return None

    def _clear_leftovers(self) -> None:
        """Remove what a killed process had begun to write; a live one holds the claim's lock."""
        for path in sorted(self._store.cdi_dir.iterdir()):
            target = files.target_of_leftover(path)
            uid = cdi.claim_uid(self._node.driver_name, target) if target else None
            if uid:
                with self._claim(uid):
                    path.unlink(missing_ok=True)
        for uid, path in self._store.records.leftovers():
            with self._claim(uid):
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _claim(self, uid: str) -> Iterator[None]:
        with self._store.locks.hold([f"claim {uid}"], patience.Patience(LOCK_SECONDS)):
            yield

    def _spec_path(self, uid: str) -> pathlib.Path:
        return self._store.cdi_dir / cdi.file_name(self._node.driver_name, uid)
