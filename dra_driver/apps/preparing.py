"""One claim: from the kubelet's call to devices that a container can use, and back.

Everything is keyed by the claim's UID. The record of a claim is written before the first effect and
removed after the last one is undone, so that a process that dies in between leaves enough behind.
Order of a prepare: record (started), MIG instances, time slices and MPS daemons, CDI spec, record
(completed). Unprepare is the same backwards.
"""

import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from dra_driver import errors, telemetry
from dra_driver.adapters import files, locks, records
from dra_driver.apps import inventory, partitioning, releases, sharing
from dra_driver.logic import cdi, planning
from dra_driver.model import claims, devices, prepared, shares

T = TypeVar("T")

LOOK_AGAIN = 1.0
"""Seconds between looks at what a call is waiting for, when nothing says that it has changed."""


class ClaimSource(Protocol):
    """Where claims come from."""

    def fetch(self, ref: claims.ClaimRef, deadline: float) -> claims.ResourceClaim | None:
        """The claim of that namespace and name, or None where there is none.

        Raises:
            errors.Retryable: the API server did not answer until `deadline` (monotonic seconds).
        """


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


class Preparer:
    """Prepares and unprepares claims; threads may share it, also for one and the same claim."""

    def __init__(
        self,
        node: planning.Node,
        store: Store,
        source: ClaimSource,
        gpus: inventory.Inventory,
        effects: Effects,
        *,
        stopping: threading.Event,
        on_change: Callable[[], None],
        on_prepared: Callable[[prepared.Record], None] = lambda _: None,
    ) -> None:
        """Once `stopping` is set, calls wait for nothing any more.

        `on_prepared` is told of each claim that is ready; it must not take long.
        """
        self._node = node
        self._store = store
        self._source = source
        self._gpus = gpus
        self._injector = effects.injector
        self._partitioner = effects.partitioner
        self._sharer = effects.sharer
        self._stopping = stopping
        self._on_change = on_change
        self._on_prepared = on_prepared
        self._releases = releases.Releases()
        self._log = telemetry.logger("preparer")

    def prepare(self, ref: claims.ClaimRef, seconds: float) -> tuple[prepared.PreparedDevice, ...]:
        """The claim's devices, ready for use. The same again gives the same answer.

        Raises:
            errors.Rejected: it cannot work.
            errors.Retryable: it did not work within `seconds`.
        """
        planning.check_uid(ref.uid)
        deadline = time.monotonic() + seconds
        with self._store.locks.hold([f"claim {ref.uid}"], seconds=_left(deadline)):
            claim = self._source.fetch(ref, deadline)
            if claim is None:
                raise errors.Rejected(
                    f"claim {ref} does not exist any more: was it deleted while its pod started?"
                )
            return self._patiently(deadline, lambda: self._attempt(ref, claim, deadline))

    def unprepare(
        self, ref: claims.ClaimRef, seconds: float, only_if: Callable[[], bool] = lambda: True
    ) -> None:
        """Undo whatever was done for the claim; unknown is fine. The API is not asked.

        Nothing is done unless `only_if()` is true with the claim's lock held.

        Raises:
            errors.Retryable: it did not work within `seconds`.
        """
        planning.check_uid(ref.uid)
        deadline = time.monotonic() + seconds
        with self._store.locks.hold([f"claim {ref.uid}"], seconds=_left(deadline)):
            if not only_if():
                return
            self._patiently(deadline, lambda: self._undo_locked(ref.uid, deadline))
        self._releases.tell()
        self._on_change()

    def _patiently(self, deadline: float, attempt: Callable[[], T]) -> T:
        """What `attempt` gives; what may work in a moment is tried again while there is time."""
        while True:
            # What is given back during the attempt may be what it lacks.
            seen = self._releases.count
            try:
                return attempt()
            except errors.Retryable as error:
                if time.monotonic() + LOOK_AGAIN > deadline or self._stopping.is_set():
                    raise
                self._log.info("waiting", reason=str(error))
            self._releases.wait(seen, LOOK_AGAIN)

    def _attempt(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, deadline: float
    ) -> tuple[prepared.PreparedDevice, ...]:
        plan = self._plan(ref, claim, deadline)
        if not plan.entries:
            return ()
        cards = plan.cards | self._recorded_cards(ref.uid)
        with self._store.locks.hold(cards, seconds=_left(deadline)):
            self._refuse_held(ref, plan, deadline)
            self._refuse_contradictions(ref, plan, deadline)
            self._drop_other(ref, plan)
            return self._carry_out(ref, plan, deadline)

    def _plan(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, deadline: float
    ) -> planning.Plan:
        """The plan; a device that is not known may have appeared since the last look."""
        try:
            return self._planned(ref, claim, self._gpus.snapshot)
        except planning.UnknownDevice as error:
            snapshot = self._gpus.look_within(_left(deadline))
            if (reason := snapshot.why_missing(error.device)) is not None:
                raise errors.Retryable(f"claim {ref}: {reason}") from error
            return self._planned(ref, claim, snapshot)

    def _planned(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, snapshot: inventory.Snapshot
    ) -> planning.Plan:
        record = self._recorded(ref.uid)
        # Shares that are prepared stay shares, also when the settings make none any more.
        held = {
            device.device: shares.Shares()
            for device in (record.devices if record else ())
            if device.share_id is not None
        }
        divisions = {**held, **snapshot.divisions}
        return planning.plan(ref, claim, self._node, snapshot.offered, divisions, record)

    def _refuse_held(self, ref: claims.ClaimRef, plan: planning.Plan, deadline: float) -> None:
        """Refuse a device that another claim has; one that is being given back is waited for."""
        known = self._store.records.contents().records.values()
        for holding in planning.holdings(plan, ref.uid, known):
            claim = self._source.fetch(holding.holder, deadline)
            if planning.is_held_in_earnest(holding, claim, self._node):
                raise errors.Rejected(
                    f"claim {ref}: device {holding.wanted!r}{_other(holding)} is prepared for "
                    f"claim {holding.holder}, which is allocated to it too. Delete the pods of one "
                    "of the two claims"
                )
            raise errors.Retryable(
                f"claim {ref}: device {holding.wanted!r}{_other(holding)} is still prepared for "
                f"claim {holding.holder}, whose pod has not ended on this node yet"
            )

    def _refuse_contradictions(
        self, ref: claims.ClaimRef, plan: planning.Plan, deadline: float
    ) -> None:
        """Refuse shares of which there are too many, and settings that two claims want unlike."""
        record = self._recorded(ref.uid)
        if record is not None and planning.has_shares(record, plan.entries):
            return
        others = self._others(ref.uid)
        for found in (
            *planning.over_use(plan, others, self._gpus.snapshot.divisions),
            *planning.interval_conflicts(plan, others),
        ):
            for holding in found.holdings:
                claim = self._source.fetch(holding.holder, deadline)
                if not planning.is_held_in_earnest(holding, claim, self._node):
                    raise errors.Retryable(
                        f"claim {ref}: {found.problem}. That of {holding.holder} is still "
                        "prepared, and its pod has not ended on this node yet"
                    )
            raise errors.Rejected(f"claim {ref}: {found.problem}. {found.remedy}")

    def _drop_other(self, ref: claims.ClaimRef, plan: planning.Plan) -> None:
        """Undo what was prepared for an earlier allocation of the same claim."""
        try:
            record = self._store.records.get(ref.uid)
        except errors.Rejected as error:
            aside = self._store.records.keep_aside(ref.uid)
            self._store.records.remove(ref.uid)
            self._log.error("record damaged; set aside", reason=str(error), file=str(aside))
            return
        if record is not None and record.devices != plan.entries and not record.rebuilt:
            self._log.warning("claim was allocated anew; undoing the earlier prepare")
            self._undo(ref.uid)

    def _carry_out(
        self, ref: claims.ClaimRef, plan: planning.Plan, deadline: float
    ) -> tuple[prepared.PreparedDevice, ...]:
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
                record = self._make(record, plan)
            elif before and before.sharing != record.sharing:
                self._store.records.write(record)
            # Also for a claim that is prepared already: a daemon may have ended meanwhile, and
            # after a reboot the directory of specs is empty.
            shared = self._sharer.set_up(
                record,
                _uuids(record, plan),
                self._others(ref.uid),
                plan.needs.mps,
                _left(deadline),
            )
            self._write_spec(record, plan, shared)
            if before != record:
                self._store.records.write(record)
        except BaseException:
            if not in_use:
                self._undo_after_failure(ref.uid)
            raise
        self._on_change()
        self._on_prepared(record)
        return plan.entries

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

    def _make(self, record: prepared.Record, plan: planning.Plan) -> prepared.Record:
        """Whatever the claim needs, remembered first; with what is known of it afterwards."""
        self._store.records.write(record.model_copy(update={"phase": prepared.Phase.STARTED}))
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
            name: devices.Grant(offer.gpu, partitions[name].instance, partitions[name].profile)
            if name in partitions
            else devices.Grant(offer.gpu)
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

    def _undo_locked(self, uid: str, deadline: float) -> None:
        # Read with the claim's lock held: what is recorded does not change any more.
        with self._store.locks.hold(self._recorded_cards(uid), seconds=_left(deadline)):
            self._undo(uid)

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


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)
