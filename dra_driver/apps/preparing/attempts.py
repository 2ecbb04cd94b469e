"""One attempt at a claim, and its undo: what is done on the node, with the locks held.

An attempt waits for nothing outside of this process; where it would have to, it raises, and what it
has begun stays, remembered in the claim's record, until the next attempt goes on or it is undone.
Order of a prepare: record (started), the effects as listed, record (completed), CDI spec; a
claim that needs no more than its spec has no first record. Unprepare is the same backwards.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records, resets
from dra_driver.adapters.system import locks, patience
from dra_driver.apps.effects import effect, specs, waits, wiring
from dra_driver.apps.node import base
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import rebuilding, undoing
from dra_driver.logic.preparing import contention, metadata, planning
from dra_driver.model import claims, devices, prepared, shares
from dra_driver.model import resets as written

Others = Sequence[prepared.Record]
"""The records of all other claims."""
OnPrepared = Callable[[prepared.Record, claims.ResourceClaim], None]
"""Told of a claim that is ready, and how the API server served it; it must not take long."""


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """Where the state of claims is kept on this node."""

    records: records.Records
    resets: resets.Resets
    cdi_dir: pathlib.Path
    locks: locks.Locks
    boot_id: str
    recall: rebuilding.Recall = lambda _device, _gpu, _nodes: None
    """What must have been remembered of a GPU that a virtual machine has."""


def store(on: base.Base) -> Store:
    """Where the state of claims is kept."""
    recall = rebuilding.recalls(on.hardware.pci.scan, on.books)
    return Store(on.records, on.resets, on.config.cdi_dir, on.locks, on.boot_id, recall)


def node(on: base.Base) -> planning.Node:
    """What claims are prepared for."""
    return planning.Node(on.config.driver_name, pool=on.config.node_name)


class Held(errors.Retryable):
    """Other claims have what is wanted. Whether in earnest, only the API knows.

    The text is the answer if all of them have it in earnest. `holdings` are what they have, each
    with what is to be said if it is about to be given back.
    """

    def __init__(self, refusal: str, holdings: Iterable[tuple[contention.Holding, str]]) -> None:
        super().__init__(refusal)
        self.holdings = tuple(holdings)


class Attempts:
    """Prepares, and undoes; threads may share it, also for one and the same claim."""

    def __init__(
        self,
        node: planning.Node,
        store: Store,
        gpus: inventory.Inventory,
        effects: wiring.Effects,
        *,
        on_change: Callable[[], None],
        on_prepared: OnPrepared,
    ) -> None:
        """`on_change` is told of what may have changed, `on_prepared` of each claim that is ready.

        Both are called with the claim's lock held, and must not take long.
        """
        self._node = node
        self._store = store
        self._gpus = gpus
        self._effects = effects.listed
        self._partitioner = effects.partitioner
        self._injector = effects.injector
        self._specs = specs.Specs(store.cdi_dir, node.driver_name)
        self._rebuilder = rebuilding.Rebuilder(
            node,
            store.records,
            self._specs,
            gpus.current,
            boot_id=store.boot_id,
            recall=store.recall,
        )
        self._undoer = undoing.Undoer(
            store.records,
            self._specs,
            self._rebuilder,
            self._effects,
            gpus,
        )
        self._on_change = on_change
        self._on_prepared = on_prepared
        self._log = telemetry.logger("preparer")

    def leaving(self) -> list[str]:
        """The UIDs of claims that are being unprepared, or could not be altogether."""
        return self._undoer.begun

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
            # With the claim's lock held: what is remembered of it does not change any more.
            before = self._rebuilder.recorded(ref.uid, lambda: claim)
            plan = self._plan(ref, claim, before)
            if not plan.entries:
                return ()
            with self._store.locks.hold(plan.cards | _cards(before), waiting):
                waiting.check()
                record, has_changed = self._attempt(ref, plan, before)
            self._undoer.settled(ref.uid)
            if has_changed:
                self._on_change()
            self._on_prepared(record, claim)
        return metadata.answered(self._node.driver_name, record)

    def undo(
        self,
        ref: claims.ClaimRef,
        waiting: patience.Patience,
        *,
        find: Callable[[], claims.ResourceClaim | None] = lambda: None,
        only: Callable[[prepared.Record | None], bool] = lambda _: True,
    ) -> frozenset[str]:
        """Undo whatever was done for the claim; the names of the cards that it had.

        Nothing is done unless `only` is true of its record, which is None where there is none.
        `find` asks for the claim, where nothing on the node tells what it has.

        Raises:
            waits.Wait: something outside has to end first; what could be undone is.
            errors.Retryable: it did not work.
        """
        with self._claim(ref, waiting, is_urgent=True):
            record = self._rebuilder.recorded(ref.uid, find)
            if not only(record):
                return frozenset()
            cards = _cards(record)
            with self._store.locks.hold(cards, waiting, is_urgent=True):
                self._undoer.undo(ref.uid, record)
        return cards

    def cards(self, ref: claims.ClaimRef, claim: claims.ResourceClaim | None) -> frozenset[str]:
        """The names of the cards that the claim has, or is allocated to."""
        try:
            record = self._store.records.get(ref.uid)
        except errors.Rejected:
            # Whoever undoes it has it rebuilt.
            record = None
        allocated = claim.allocation.results if claim and claim.allocation else ()
        return _cards(record) | {
            devices.card_of(result.device.device)
            for result in allocated
            if result.device.driver == self._node.driver_name
        }

    @contextlib.contextmanager
    def _claim(
        self, ref: claims.ClaimRef, waiting: patience.Patience, *, is_urgent: bool = False
    ) -> Iterator[None]:
        """The claim, for somebody who is still waiting once its lock is held."""
        names = {f"claim {ref.uid}": f"claim {ref}"}
        with self._store.locks.hold(names, waiting, is_urgent=is_urgent):
            waiting.check()
            yield

    def _plan(
        self, ref: claims.ClaimRef, claim: claims.ResourceClaim, before: prepared.Record | None
    ) -> planning.Plan:
        snapshot = self._gpus.snapshot
        # Shares that are prepared stay shares, also when the settings make none any more.
        held = {
            device.device: shares.Shares()
            for device in (before.devices if before else ())
            if device.share_id is not None
        }
        divisions = {**held, **snapshot.divisions}
        return planning.plan(ref, claim, self._node, snapshot.offered, divisions, before)

    def _attempt(
        self, ref: claims.ClaimRef, plan: planning.Plan, before: prepared.Record | None
    ) -> tuple[prepared.Record, bool]:
        """The record of the claim, which is prepared; and whether that is news."""
        self._refuse_resets(ref, plan)
        others, _ = self._undoer.others(ref.uid)
        _refuse_held(ref, plan, others)
        self._refuse_contradictions(ref, plan, before, others)
        if before is not None and not _is_for(before, plan):
            self._log.warning("claim was allocated anew; undoing the earlier prepare")
            self._undoer.undo(ref.uid, before)
            before = None
        return self._carry_out(ref, plan, before, others)

    def _refuse_resets(self, ref: claims.ClaimRef, plan: planning.Plan) -> None:
        """Refuse a GPU that a reset may be at work on, though whoever began it is gone."""
        found = self._store.resets.contents()
        going = {
            gpu
            for one in found.records.values()
            if one.step is written.Step.RESETTING and one.boot_id == self._store.boot_id
            for gpu in one.gpus
        }
        for name, gpu in plan.gpus.items():
            # What cannot be read may be about any of them.
            if found.damaged or gpu in going:
                raise errors.Retryable(
                    f"claim {ref}: a reset of {name} was cut short, and may be at work still; it "
                    "is put in order first"
                )

    def _refuse_contradictions(
        self,
        ref: claims.ClaimRef,
        plan: planning.Plan,
        before: prepared.Record | None,
        others: Others,
    ) -> None:
        """Refuse shares of which there are too many, and settings that two claims want unlike."""
        if before is not None and planning.has_shares(before, plan.entries):
            return
        for found in (
            *contention.over_use(plan, others, self._gpus.snapshot.divisions),
            *contention.interval_conflicts(plan, others),
        ):
            problem = f"claim {ref}: {found.problem}"
            still = "is still prepared, and its pod has not ended on this node yet"
            raise Held(
                f"{problem}. {found.remedy}",
                [(one, f"{problem}. That of {one.holder} {still}") for one in found.holdings],
            )

    def _carry_out(
        self,
        ref: claims.ClaimRef,
        plan: planning.Plan,
        before: prepared.Record | None,
        others: Others,
    ) -> tuple[prepared.Record, bool]:
        in_use = before is not None and self._may_be_in_use(before, plan)
        job = effect.Job(plan, before, others, in_use=in_use)
        record = self._remembered(ref, job)
        try:
            known = self._begin(record, job)
            record, edits = self._make(record, job)
            gpus = self._numbered(plan)
            minors = {card: gpus[name].minor for name, card in plan.numbered.items()}
            record = record.model_copy(update={"minors": minors})
            has_changed = self._conclude(record, gpus, edits, is_new=known != record)
        except waits.Wait:
            raise
        except BaseException:
            if not in_use:
                self._undoer.after_failure(ref.uid)
            raise
        return record, has_changed

    def _may_be_in_use(self, record: prepared.Record, plan: planning.Plan) -> bool:
        """Whether containers may run: whatever fails then must not take their devices away."""
        return record.phase is prepared.Phase.COMPLETED and all(
            one.is_intact(record, plan) for one in self._effects
        )

    def _remembered(self, ref: claims.ClaimRef, job: effect.Job) -> prepared.Record:
        """What is going to be remembered of the claim once all is made."""
        record = prepared.Record(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            phase=prepared.Phase.COMPLETED,
            boot_id=self._store.boot_id,
            devices=job.plan.entries,
            gpus=job.plan.gpus,
            minors=job.plan.minors,
            parts=job.before.parts if job.before else {},
        )
        for one in self._effects:
            record = one.remember(record, job)
        return record

    def _begin(self, record: prepared.Record, job: effect.Job) -> prepared.Record | None:
        """Remember what is going to be made, ahead of it; what is remembered now.

        Of a claim that needs no more than its spec nothing has to be undone that its record,
        which is written before the spec, does not tell of, or that is not found without one.
        """
        before = job.before
        if before is not None and job.in_use:
            if any(one.remember(before, job) != before for one in self._effects):
                self._store.records.write(record)
                return record
            return before
        if before is not None:
            for one in self._effects:
                one.renounce(before, job.others)
        started = record.model_copy(update={"phase": prepared.Phase.STARTED})
        if started != before and any(
            one.written_ahead and one.is_in(record) for one in self._effects
        ):
            self._store.records.write(started)
            return started
        return before

    def _make(
        self, record: prepared.Record, job: effect.Job
    ) -> tuple[prepared.Record, effect.Edits]:
        """The record with what is known of everything once it is made, and the edits for it.

        Also for a claim that is prepared already: what it has may have been lost meanwhile.
        """
        edits = []
        for one in self._effects:
            made = one.make(record, job)
            record = made.record
            edits.append(made.edits)
        return record, effect.merged(edits)

    def _numbered(self, plan: planning.Plan) -> dict[str, devices.Gpu]:
        """The GPUs of the claim's devices, by device name, with the numbers that they have now."""
        return {
            name: self._partitioner.numbered(offer.gpu) if name in plan.numbered else offer.gpu
            for name, offer in plan.offers.items()
        }

    def _conclude(
        self,
        record: prepared.Record,
        gpus: Mapping[str, devices.Gpu],
        edits: effect.Edits,
        *,
        is_new: bool,
    ) -> bool:
        """Remember that all is made, and let the container runtime know; whether that was news.

        The record comes first: of a spec without a record nobody knew what it is for. A record
        without its spec is whole, and says all that is to stand in it: it is written by the next
        prepare, and when the driver starts. What is there already is not written again.
        """
        # Device nodes are looked at before anything is said to be ready.
        text = specs.text(self._node.driver_name, self._injector, record, gpus, edits)
        if is_new:
            self._store.records.write(record)
        return self._specs.put(record.uid, text) or is_new


def _cards(record: prepared.Record | None) -> frozenset[str]:
    return planning.cards(record) if record else frozenset()


def _refuse_held(ref: claims.ClaimRef, plan: planning.Plan, others: Others) -> None:
    """Refuse a device that another claim has; one that is being given back is waited for."""
    for holding in contention.holdings(plan, ref.uid, others):
        device = f"claim {ref}: device {holding.wanted!r}{_other(holding)}"
        delay = (
            f"{device} is still prepared for claim {holding.holder}, whose pod has not ended on "
            "this node yet"
        )
        raise Held(
            f"{device} is prepared for claim {holding.holder}, which is allocated to it too. "
            "Delete the pods of one of the two claims",
            [(holding, delay)],
        )


def _is_for(record: prepared.Record, plan: planning.Plan) -> bool:
    """Whether a claim was prepared for this plan; of a rebuilt one the requests may be missing."""
    if not record.rebuilt:
        return record.devices == plan.entries
    mine = {(one.device, one.share_id) for one in record.devices}
    return mine == {(one.device, one.share_id) for one in plan.entries}


def _other(holding: contention.Holding) -> str:
    """What is in the way, where it is not the device itself."""
    return f" overlaps {holding.device!r}, which" if holding.device != holding.wanted else ""
