"""One claim: from the kubelet's call to devices that a container can use, and back.

Everything is keyed by the claim's UID. The record of a claim is written before the first effect and
removed after the last one is undone, so that a process that dies in between leaves enough behind.
Order of a prepare: record (started), MIG instances, time slices and MPS daemons, record
(completed), CDI spec; a claim that needs no more than its spec has no first record. Unprepare is
the same backwards.
"""

import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from dra_driver import errors, telemetry
from dra_driver.adapters import locks, records
from dra_driver.apps import (
    inventory,
    partitioning,
    rebuilding,
    releases,
    sharing,
    specs,
    undoing,
)
from dra_driver.logic import cdi, planning
from dra_driver.model import claims, devices, prepared, shares

T = TypeVar("T")

Others = Sequence[prepared.Record]
"""The records of all other claims."""

LOOK_AGAIN = 1.0
"""Seconds between looks at what a call is waiting for, when nothing says that it has changed."""
ANSWER_SECONDS = 3.0
"""How long the API may take to tell of a claim of which nothing on the node does."""


class ClaimSource(Protocol):
    """Where claims come from."""

    def fetch(self, ref: claims.ClaimRef, deadline: float) -> claims.ResourceClaim | None:
        """The claim of that namespace and name, or None where there is none.

        Raises:
            errors.Retryable: the API server did not answer until `deadline` (monotonic seconds).
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

    injector: specs.Injector
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
        self._partitioner = effects.partitioner
        self._sharer = effects.sharer
        self._injector = effects.injector
        self._specs = specs.Specs(store.cdi_dir, node.driver_name)
        self._rebuilder = rebuilding.Rebuilder(
            node,
            store.records,
            self._specs,
            gpus.current,
            boot_id=store.boot_id,
        )
        self._undoer = undoing.Undoer(
            store.records, self._specs, self._rebuilder, effects.partitioner, effects.sharer
        )
        self._stopping = stopping
        self._on_change = on_change
        self._on_prepared = on_prepared
        self._releases = releases.Releases()
        self._log = telemetry.logger("preparer")

    def leaving(self) -> list[str]:
        """The UIDs of claims that are being unprepared, or could not be altogether."""
        return self._undoer.begun

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
            self._patiently(deadline, lambda: self._undo_locked(ref, deadline))
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
        # With the claim's lock held: what is remembered of it does not change any more.
        before = self._rebuilder.recorded(ref.uid, lambda: claim)
        plan = self._plan(ref, claim, before, deadline)
        if not plan.entries:
            return ()
        cards = plan.cards | _cards(before)
        with self._store.locks.hold(cards, seconds=_left(deadline)):
            others, _ = self._undoer.others(ref.uid)
            self._refuse_held(ref, plan, others, deadline)
            self._refuse_contradictions(ref, plan, before, others, deadline)
            if before is not None and not _is_for(before, plan):
                self._log.warning("claim was allocated anew; undoing the earlier prepare")
                self._undoer.undo(ref.uid, before)
                before = None
            self._carry_out(ref, plan, before, others, deadline)
        return plan.entries

    def _plan(
        self,
        ref: claims.ClaimRef,
        claim: claims.ResourceClaim,
        before: prepared.Record | None,
        deadline: float,
    ) -> planning.Plan:
        """The plan; a device that is not known may have appeared since the last look."""
        try:
            return self._planned(ref, claim, before, self._gpus.snapshot)
        except planning.UnknownDevice as error:
            snapshot = self._gpus.look_within(_left(deadline))
            snapshot.refuse_missing(ref, error)
            return self._planned(ref, claim, before, snapshot)

    def _planned(
        self,
        ref: claims.ClaimRef,
        claim: claims.ResourceClaim,
        before: prepared.Record | None,
        snapshot: inventory.Snapshot,
    ) -> planning.Plan:
        # Shares that are prepared stay shares, also when the settings make none any more.
        held = {
            device.device: shares.Shares()
            for device in (before.devices if before else ())
            if device.share_id is not None
        }
        divisions = {**held, **snapshot.divisions}
        return planning.plan(ref, claim, self._node, snapshot.offered, divisions, before)

    def _refuse_held(
        self, ref: claims.ClaimRef, plan: planning.Plan, others: Others, deadline: float
    ) -> None:
        """Refuse a device that another claim has; one that is being given back is waited for."""
        for holding in planning.holdings(plan, ref.uid, others):
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
        self,
        ref: claims.ClaimRef,
        plan: planning.Plan,
        before: prepared.Record | None,
        others: Others,
        deadline: float,
    ) -> None:
        """Refuse shares of which there are too many, and settings that two claims want unlike."""
        if before is not None and planning.has_shares(before, plan.entries):
            return
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

    def _carry_out(
        self,
        ref: claims.ClaimRef,
        plan: planning.Plan,
        before: prepared.Record | None,
        others: Others,
        deadline: float,
    ) -> None:
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
            gpus=plan.gpus,
            minors=plan.minors,
        )
        try:
            if not in_use:
                self._partitioner.disown(before.partitions if before else (), others)
                record = self._make(record, plan)
            elif before and before.sharing != record.sharing:
                self._store.records.write(record)
            # Also for a claim that is prepared already: a daemon may have ended meanwhile.
            shared = self._sharer.set_up(
                record,
                specs.uuids(record, _gpus(plan)),
                others,
                plan.needs.mps,
                _left(deadline),
                in_use=in_use,
            )
            has_changed = self._conclude(record, plan, shared, is_new=before != record)
        except BaseException:
            if not in_use:
                self._undoer.after_failure(ref.uid)
            raise
        self._undoer.settled(ref.uid)
        if has_changed:
            self._on_change()
        self._on_prepared(record)

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
        """Whatever the claim needs, remembered first; with what is known of it afterwards.

        Of a claim that needs no more than its spec nothing has to be taken back that its record,
        which is written before the spec, does not tell of.
        """
        if record.partitions or record.sharing:
            self._store.records.write(record.model_copy(update={"phase": prepared.Phase.STARTED}))
        for entry in plan.entries:
            if entry.kind == "gpu" and not entry.admin_access:
                self._partitioner.make_whole(plan.offers[entry.device])
        made = [
            self._partitioner.make(one, plan.offers[one.device].gpu) for one in record.partitions
        ]
        return record.model_copy(update={"partitions": tuple(made)})

    def _conclude(
        self,
        record: prepared.Record,
        plan: planning.Plan,
        shared: Mapping[str, cdi.Edits],
        *,
        is_new: bool,
    ) -> bool:
        """Remember that all is made, and let the container runtime know; whether that was news.

        The record comes first: of a spec without a record nobody knew what it is for. A record
        without its spec is whole, and says all that is to stand in it: it is written by the next
        prepare, and when the driver starts. What is there already is not written again.
        """
        # Device nodes are looked at before anything is said to be ready.
        text = specs.text(self._node.driver_name, self._injector, record, _gpus(plan), shared)
        if is_new:
            self._store.records.write(record)
        return self._specs.put(record.uid, text) or is_new

    def _undo_locked(self, ref: claims.ClaimRef, deadline: float) -> None:
        # Read with the claim's lock held: what is recorded does not change any more.
        record = self._rebuilder.recorded(ref.uid, lambda: self._found(ref, deadline))
        with self._store.locks.hold(_cards(record), seconds=_left(deadline)):
            self._undoer.undo(ref.uid, record)

    def _found(self, ref: claims.ClaimRef, deadline: float) -> claims.ResourceClaim | None:
        """The claim, if the API tells of it soon: an unprepare does without."""
        try:
            return self._source.fetch(ref, min(deadline, time.monotonic() + ANSWER_SECONDS))
        except errors.DriverError as error:
            self._log.warning("the API does not tell what a claim has", reason=str(error))
            return None


def _cards(record: prepared.Record | None) -> frozenset[str]:
    return planning.cards(record) if record else frozenset()


def _gpus(plan: planning.Plan) -> dict[str, devices.Gpu]:
    return {name: offer.gpu for name, offer in plan.offers.items()}


def _is_for(record: prepared.Record, plan: planning.Plan) -> bool:
    """Whether a claim was prepared for this plan; of a rebuilt one the requests may be missing."""
    if not record.rebuilt:
        return record.devices == plan.entries
    mine = {(one.device, one.share_id) for one in record.devices}
    return mine == {(one.device, one.share_id) for one in plan.entries}


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
