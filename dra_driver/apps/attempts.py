"""One attempt at a claim, and its undo: what is done on the node, with the locks held.

An attempt waits for nothing outside of this process; where it would have to, it raises, and what it
has begun stays, remembered in the claim's record, until the next attempt goes on or it is undone.
Order of a prepare: record (started), MIG instances, time slices and MPS daemons, CDI spec, record
(completed). Unprepare is the same backwards.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters import files, locks, patience, records
from dra_driver.apps import inventory, partitioning, sharing, waits
from dra_driver.logic import cdi, planning
from dra_driver.model import claims, devices, prepared, shares

MOST_UNPREPARES = 64
"""Calls that may be before an unprepare at a lock: more than prepares let be there."""


class Injector(Protocol):
    """Knows what a container needs to use GPUs."""

    def injection(self, grants: Mapping[str, devices.Grant]) -> cdi.Injection:
        """The edits for GPUs and instances by device name.

        Raises:
            errors.Rejected: something that they need is not as it must be.
            errors.Retryable: something that they need is missing on the node.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """Where the state of claims is kept on this node."""

    records: records.Records
    cdi_dir: pathlib.Path
    locks: locks.Locks
    boot_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class Effects:
    """What is done on the node for a claim."""

    injector: Injector
    partitioner: partitioning.Partitioner
    sharer: sharing.Sharer


class Held(errors.Retryable):
    """Other claims have what is wanted. Whether in earnest, only the API knows.

    The text is the answer if all of them have it in earnest. `holdings` are what they have, each
    with what is to be said if it is about to be given back.
    """

    def __init__(self, refusal: str, holdings: Iterable[tuple[planning.Holding, str]]) -> None:
        super().__init__(refusal)
        self.holdings = tuple(holdings)


class Attempts:
    """Prepares, and undoes; threads may share it, also for one and the same claim."""

    def __init__(
        self,
        node: planning.Node,
        store: Store,
        gpus: inventory.Inventory,
        effects: Effects,
        *,
        on_change: Callable[[], None],
        on_prepared: Callable[[prepared.Record], None],
    ) -> None:
        """`on_change` is told of what may have changed, `on_prepared` of each claim that is ready.

        Both are called with the claim's lock held, and must not take long.
        """
        self._node = node
        self._store = store
        self._gpus = gpus
        self._injector = effects.injector
        self._partitioner = effects.partitioner
        self._sharer = effects.sharer
        self._on_change = on_change
        self._on_prepared = on_prepared
        self._log = telemetry.logger("preparer")

    def prepare(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, waiting: patience.Patience
    ) -> tuple[prepared.PreparedDevice, ...]:
        """The claim's devices, ready for use.

        Raises:
            errors.Rejected: it cannot work.
            waits.Wait: something outside has to happen first; what was begun stays.
            planning.UnknownDevice: a device of the claim was not seen.
            Held: other claims have what it wants.
            errors.Retryable: it does not work now; what was begun is undone.
        """
        with self._claim(ref, waiting):
            plan = self._plan(ref, claim)
            if not plan.entries:
                return ()
            cards = plan.cards | self._recorded_cards(ref.uid)
            with self._store.locks.hold(cards, waiting):
                waiting.check()
                self._refuse_held(ref, plan)
                self._refuse_contradictions(ref, plan)
                self._drop_other(ref, plan)
                record = self._carry_out(ref, plan)
            self._on_change()
            self._on_prepared(record)
        return plan.entries

    def undo(
        self,
        ref: claims.ClaimRef,
        waiting: patience.Patience,
        only: Callable[[prepared.Record | None], bool] = lambda _: True,
    ) -> frozenset[str]:
        """Undo whatever was done for the claim; the names of the cards that it had.

        Nothing is done unless `only` is true of its record, which is None where there is none, or
        none that can be read.

        Raises:
            waits.Wait: something outside has to end first; what could be undone is.
            errors.Retryable: it did not work.
        """
        with self._claim(ref, waiting, most=MOST_UNPREPARES):
            # Read with the claim's lock held: what is recorded does not change any more.
            record = self._recorded(ref.uid)
            if not only(record):
                return frozenset()
            cards = planning.cards(record) if record else frozenset()
            with self._store.locks.hold(cards, waiting, most=MOST_UNPREPARES):
                self._undo(ref.uid)
        return cards

    def cards(self, ref: claims.ClaimRef, claim: claims.ResourceClaim | None) -> frozenset[str]:
        """The names of the cards that the claim has, or is allocated to."""
        allocated = claim.allocation.results if claim and claim.allocation else ()
        return self._recorded_cards(ref.uid) | {
            devices.card_of(result.device.device)
            for result in allocated
            if result.device.driver == self._node.driver_name
        }

    @contextlib.contextmanager
    def _claim(
        self, ref: claims.ClaimRef, waiting: patience.Patience, most: int = locks.MOST_WAITERS
    ) -> Iterator[None]:
        """The claim, for somebody who is still waiting once its lock is held."""
        with self._store.locks.hold({f"claim {ref.uid}": f"claim {ref}"}, waiting, most=most):
            waiting.check()
            yield

    def _plan(self, ref: claims.ClaimRef, claim: claims.ResourceClaim) -> planning.Plan:
        snapshot = self._gpus.snapshot
        record = self._recorded(ref.uid)
        # Shares that are prepared stay shares, also when the settings make none any more.
        held = {
            device.device: shares.Shares()
            for device in (record.devices if record else ())
            if device.share_id is not None
        }
        divisions = {**held, **snapshot.divisions}
        return planning.plan(ref, claim, self._node, snapshot.offered, divisions, record)

    def _refuse_held(self, ref: claims.ClaimRef, plan: planning.Plan) -> None:
        """Refuse a device that another claim has; one that is being given back is waited for."""
        known = self._store.records.contents().records.values()
        for holding in planning.holdings(plan, ref.uid, known):
            device = f"claim {ref}: device {holding.wanted!r}{_other(holding)}"
            delay = (
                f"{device} is still prepared for claim {holding.holder}, whose pod has not ended "
                "on this node yet"
            )
            raise Held(
                f"{device} is prepared for claim {holding.holder}, which is allocated to it too. "
                "Delete the pods of one of the two claims",
                [(holding, delay)],
            )

    def _refuse_contradictions(self, ref: claims.ClaimRef, plan: planning.Plan) -> None:
        """Refuse shares of which there are too many, and settings that two claims want unlike."""
        record = self._recorded(ref.uid)
        if record is not None and planning.has_shares(record, plan.entries):
            return
        others = self._others(ref.uid)
        for found in (
            *planning.over_use(plan, others, self._gpus.snapshot.divisions),
            *planning.interval_conflicts(plan, others),
        ):
            problem = f"claim {ref}: {found.problem}"
            still = "is still prepared, and its pod has not ended on this node yet"
            raise Held(
                f"{problem}. {found.remedy}",
                [(one, f"{problem}. That of {one.holder} {still}") for one in found.holdings],
            )

    def _drop_other(self, ref: claims.ClaimRef, plan: planning.Plan) -> None:
        """Undo what was prepared for an earlier allocation of the same claim."""
        try:
            record = self._store.records.get(ref.uid)
        except errors.Rejected as error:
            aside = self._store.records.set_aside(ref.uid)
            self._log.error("record damaged; set aside", reason=str(error), file=str(aside))
            return
        if record is not None and record.devices != plan.entries and not record.rebuilt:
            self._log.warning("claim was allocated anew; undoing the earlier prepare")
            self._undo(ref.uid)

    def _carry_out(self, ref: claims.ClaimRef, plan: planning.Plan) -> prepared.Record:
        before = self._store.records.get(ref.uid)
        in_use = before is not None and self._may_be_in_use(before, plan)
        record = prepared.Record(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            phase=prepared.Phase.COMPLETED,
            boot_id=self._store.boot_id,
            devices=plan.entries,
            partitions=before.partitions if before and in_use else plan.partitions,
            sharing=_sharing(before, plan) if before and in_use else plan.needs.remembered,
        )
        try:
            if not in_use:
                self._partitioner.disown(before.partitions if before else (), self._others(ref.uid))
                record = self._make(record, plan, before)
            elif before and before.sharing != record.sharing:
                self._store.records.write(record)
            # Also for a claim that is prepared already: a daemon may have ended meanwhile, and
            # after a reboot the directory of specs is empty.
            shared = self._sharer.set_up(
                record, _uuids(record, plan), self._others(ref.uid), plan.needs.mps
            )
            self._write_spec(record, plan, shared)
            if before != record:
                self._store.records.write(record)
        except waits.Wait:
            raise
        except BaseException:
            if not in_use:
                self._undo_after_failure(ref.uid)
            raise
        return record

    def _may_be_in_use(self, record: prepared.Record, plan: planning.Plan) -> bool:
        """Whether containers may run: whatever fails then must not take their devices away.

        A record that was rebuilt while a GPU was not there lacks the partitions of that.
        """
        known = {one.device for one in record.partitions}
        return (
            record.phase is prepared.Phase.COMPLETED
            and known == {one.device for one in plan.partitions}
            and self._partitioner.is_intact(record.partitions)
        )

    def _make(
        self, record: prepared.Record, plan: planning.Plan, before: prepared.Record | None
    ) -> prepared.Record:
        """Whatever the claim needs, remembered first; with what is known of it afterwards."""
        started = record.model_copy(update={"phase": prepared.Phase.STARTED})
        if started != before:
            self._store.records.write(started)
        for entry in plan.entries:
            if entry.kind == "gpu" and not entry.admin_access:
                self._partitioner.make_whole(plan.offers[entry.device])
        made = [
            self._partitioner.make(one, plan.offers[one.device].gpu) for one in record.partitions
        ]
        return record.model_copy(update={"partitions": tuple(made)})

    def _write_spec(
        self, record: prepared.Record, plan: planning.Plan, shared: Mapping[str, cdi.Edits]
    ) -> None:
        partitions = {one.device: one for one in record.partitions}
        grants = {
            name: self._partitioner.grant(offer, partitions.get(name))
            for name, offer in plan.offers.items()
        }
        keys = {cdi.device_key(entry.device, entry.share_id): entry for entry in plan.entries}
        injection = self._injector.injection(grants)
        injection = cdi.Injection(
            injection.common,
            {
                key: injection.devices[entry.device].and_also(shared.get(key, cdi.Edits()))
                for key, entry in keys.items()
            },
        )
        files.write(
            self._spec_path(record.uid),
            cdi.spec(self._node.driver_name, record.uid, injection),
            mode=0o644,
            durable=False,
        )

    def _undo(self, uid: str) -> None:
        files.remove(self._spec_path(uid))
        record = self._recorded(uid)
        if record is not None:
            self._refuse_unknown_sharers(record)
            others = self._others(uid)
            self._sharer.take_down(record, others)
            for partition in reversed(record.partitions):
                self._partitioner.unmake(partition, others)
        self._store.records.remove(uid)

    def _refuse_unknown_sharers(self, record: prepared.Record) -> None:
        """Take nothing down that a claim may share whose record cannot be read."""
        damaged = self._store.records.contents().damaged.keys() - {record.uid}
        if damaged and any(device.share_id for device in record.devices):
            raise errors.Retryable(
                f"the records of claims {', '.join(sorted(damaged))} are damaged, so it is not "
                "known what they share with this one. Restart the driver: it rebuilds them"
            )

    def _others(self, uid: str) -> list[prepared.Record]:
        """The records of all other claims."""
        known = self._store.records.contents().records
        return [record for other, record in known.items() if other != uid]

    def _undo_after_failure(self, uid: str) -> None:
        """Undo; where that fails too, the record stays, and the next call undoes."""
        try:
            self._undo(uid)
        except waits.Wait:
            # What ends is not waited for here: the next attempt does, or who gives up.
            return
        except errors.DriverError as error:
            self._log.error("not all could be undone; the next call tries it", reason=str(error))

    def _recorded(self, uid: str) -> prepared.Record | None:
        try:
            return self._store.records.get(uid)
        except errors.Rejected:
            # What cannot be read is told of, and set aside, by the next prepare or start.
            return None

    def _recorded_cards(self, uid: str) -> frozenset[str]:
        record = self._recorded(uid)
        return planning.cards(record) if record else frozenset()

    def _spec_path(self, uid: str) -> pathlib.Path:
        return self._store.cdi_dir / cdi.file_name(self._node.driver_name, uid)


def _uuids(record: prepared.Record, plan: planning.Plan) -> dict[str, str]:
    """What CUDA calls the devices, by name."""
    instances = {one.device: one.uuid for one in record.partitions}
    return {name: instances.get(name) or offer.gpu.uuid for name, offer in plan.offers.items()}


def _sharing(before: prepared.Record, plan: planning.Plan) -> prepared.Sharing:
    """What a claim in use has; a record that was rebuilt does not say all, but its daemons run."""
    if not before.rebuilt:
        return before.sharing
    mps = {(use.domain, use.keys): use for use in before.sharing.mps + plan.needs.remembered.mps}
    return plan.needs.remembered.model_copy(update={"mps": tuple(mps.values())})


def _other(holding: planning.Holding) -> str:
    """What is in the way, where it is not the device itself."""
    return f" overlaps {holding.device!r}, which" if holding.device != holding.wanted else ""
