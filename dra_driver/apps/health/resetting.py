"""A reset of GPUs, from its beginning to its end, with their locks held.

Order: record (begun) → persistence mode off → NVML is closed, by who listens to events too → nobody
has the GPUs open, no claim has them → the try is counted → record (resetting) → nvidia-smi → record
(restoring) → NVML is open again → modes are put back → the GPUs are looked at → no record. Whatever
fails, what is ours is put back; a process that dies leaves the record, and the next one does that.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import ledgers, records, resets
from dra_driver.adapters.nvml import nvidia_smi, nvml, nvml_errors, nvml_mig, nvml_reset
from dra_driver.adapters.system import file_holders, locks, patience, processes
from dra_driver.apps.effects import partitioning
from dra_driver.apps.health import card_health
from dra_driver.logic.health import meaning, recovery
from dra_driver.logic.offering import abilities
from dra_driver.logic.preparing import planning
from dra_driver.model import devices, health, prepared
from dra_driver.model import resets as written

LOCK_SECONDS = 1.0
"""How long a claim on one of the GPUs may be busy; it is tried again soon."""
CLOSE_SECONDS = 10.0
"""How long calls of NVML that are at work may take until nobody of this process has it open."""


class Refused(errors.Retryable):
    """Nothing was reset: somebody is in the way; the text says who."""


class Failed(errors.Retryable):
    """It was tried, and the GPUs are not well after it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """What a GPU is asked and reset with.

    `nodes` are the device nodes of a GPU, by its UUID and minor number.
    """

    nvml: nvml.Nvml
    smi: nvidia_smi.NvidiaSmi
    partitioner: partitioning.Partitioner
    facts: card_health.FactsSource
    nodes: Callable[[str, int], Sequence[pathlib.Path]]
    proc_root: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered on this node: resets that were begun, claims, and what is ours."""

    resets: resets.Resets
    records: records.Records
    books: ledgers.Ledgers
    locks: locks.Locks
    boot_id: str


class Resetter:
    """Resets GPUs that it was decided to reset, for one caller at a time."""

    def __init__(
        self,
        tools: Tools,
        kept: Kept,
        known: card_health.CardHealth,
        *,
        is_alone: Callable[[], bool],
    ) -> None:
        """`is_alone` tells that no other instance of the driver is alive on the node."""
        self._tools = tools
        self._kept = kept
        self._health = known
        self._is_alone = is_alone
        self._mig = nvml_mig.MigNvml(tools.nvml)
        self._modes = nvml_reset.ResetNvml(tools.nvml)
        self._describe = processes.Processes(tools.proc_root).describe
        self._log = telemetry.logger("resetter")

    def reset(self, gpus: Sequence[devices.Gpu]) -> bool:
        """Reset the GPUs at once, unless none of them wants it any more: False then.

        They answer, and want no reset, when this returns.

        Raises:
            Refused: nothing was reset.
            Failed: it did not work, or did not help.
            errors.DriverError: nothing was reset, as something does not answer.
        """
        names = {name for gpu in gpus for name in gpu.locks}
        with self._kept.locks.hold(names, patience.Patience(LOCK_SECONDS)):
            self._check([(gpu.name, gpu.uuid) for gpu in gpus])
            if not self._is_wanted([gpu.uuid for gpu in gpus]):
                return False
            # Without the program nothing is begun, and no try is counted.
            self._tools.smi.traces(gpus[0].uuid)
            record = self._begun(gpus)
            self._kept.resets.write(record)
            try:
                record = self._carried_out(record)
            except BaseException:
                self._conclude_told(record)
                raise
            try:
                self._conclude(record)
            except errors.DriverError as error:
                raise Failed(f"after the reset: {error}") from error
            self._verify(record)
        self._log.warning("GPU was reset", gpus=list(record.gpus))
        return True

    def finish(self) -> Mapping[str, str]:
        """Put in order what resets have left that were cut short; why that is not possible, by GPU.

        Nothing is reset.
        """
        contents = self._kept.resets.contents()
        left: dict[str, str] = {}
        for key, reason in contents.damaged.items():
            try:
                self._set_aside(key, reason)
            except errors.DriverError as error:
                left[key] = _NOT_IN_ORDER.format(error=error)
        for key, record in contents.records.items():
            try:
                self._finish(key, record)
            except errors.DriverError as error:
                left |= dict.fromkeys(record.gpus, _NOT_IN_ORDER.format(error=error))
        return left

    def _set_aside(self, key: str, reason: str) -> None:
        self._refuse_resets([key])
        self._log.error(
            "what a GPU was before a reset is not known; see its persistence mode",
            gpu=key,
            reason=reason,
            set_aside=str(self._kept.resets.keep_aside(key)),
        )
        self._kept.resets.remove(key)

    def _conclude_told(self, record: written.Record) -> None:
        """As `_conclude`, of a reset whose own error is the one that counts.

        While nvidia-smi is at work still, as it could not be ended, the card is not touched: that
        could hang with the locks held. The record stays, and `finish` goes on with it.
        """
        try:
            begun = self._kept.resets.get(record.key)
            if begun is not None and begun.step is written.Step.RESETTING:
                self._refuse_resets(begun.gpus)
            self._conclude(record)
        except errors.DriverError as error:
            self._log.error(
                "a GPU is not as it was before", gpus=list(record.gpus), reason=str(error)
            )

    def _finish(self, key: str, found: written.Record) -> None:
        names = {name for card in found.cards for name in card.locks}
        with self._kept.locks.hold(names, patience.Patience(LOCK_SECONDS)):
            # Another instance may have been at it, and is done.
            record = self._kept.resets.get(key)
            if record is None:
                return
            if record.boot_id != self._kept.boot_id:
                self._kept.resets.remove(key)
                return
            if record.step is written.Step.RESETTING:
                self._refuse_resets(record.gpus)
                # Claims may have the cards from here on, whatever keeps modes from being put back.
                record = record.at(written.Step.ENDED)
                self._kept.resets.write(record)
            self._conclude(record)
            self._log.warning(
                "a reset was cut short; put in order", gpus=list(record.gpus), step=record.step
            )
            # Whether it was done is known from this step on; a card tells more by the next look.
            if record.step is written.Step.RESTORING:
                with contextlib.suppress(Failed):
                    self._verify(record)

    def _check(self, cards: Iterable[tuple[str, str]]) -> None:
        """Refuse GPUs, by name and UUID, that somebody has. With the locks held nobody gets one."""
        if not self._is_alone():
            raise Refused("another instance of the driver is alive on the node")
        contents = self._kept.records.contents()
        if contents.damaged:
            raise Refused(f"what claims {', '.join(contents.damaged)} have is not known for now")
        having = [one.ref.short for one in _having(contents.records.values(), cards)]
        if having:
            raise Refused(f"claims have devices of it: {', '.join(sorted(having))}")

    def _is_wanted(self, gpus: Sequence[devices.GpuUuid]) -> bool:
        """Whether one of them wants it now; what was seen is from before an earlier reset, maybe.

        Of one that does not tell what was seen counts.
        """
        found = self._tools.facts.facts(gpus)
        return any(
            gpu not in found or meaning.of_facts(gpu, found[gpu], _POLICY).is_recovered is not True
            for gpu in gpus
        )

    def _begun(self, gpus: Iterable[devices.Gpu]) -> written.Record:
        """What is to be remembered of the GPUs; those that somebody uses are refused."""
        cards = []
        with self._mig.kept_open():
            for gpu in gpus:
                mode = self._mode(gpu)
                users = self._mig.users(gpu.uuid)
                if users:
                    named = ", ".join(str(self._describe(one.pid)) for one in users)
                    raise Refused(f"{gpu.name} is used by {named}: end it, or delete its pod")
                cards.append(
                    written.Card(
                        gpu=gpu.uuid,
                        name=gpu.name,
                        minor=gpu.minor,
                        locks=tuple(sorted(gpu.locks)),
                        persistence=self._persistence(gpu),
                        mig=mode,
                    )
                )
        ordered = tuple(sorted(cards, key=lambda card: card.gpu))
        return written.Record(boot_id=self._kept.boot_id, step=written.Step.BEGUN, cards=ordered)

    def _mode(self, gpu: devices.Gpu) -> bool | None:
        """The MIG mode after the reset; None: it has none. Instances of others are in the way.

        A GPU that needs a reset may answer nothing: what was seen last counts then.
        """
        if not abilities.cut(gpu):
            return None
        pending, instances = gpu.mig_pending, gpu.instances
        try:
            state = self._mig.state(gpu.uuid)
            pending, instances = state.pending, state.instances
        except errors.Rejected as error:
            self._log.info("MIG state is as it was seen last", gpu=gpu.uuid, reason=str(error))
        ledger = self._kept.books.get(gpu.uuid)
        foreign = recovery.foreign(instances, ledger.spots)
        if foreign:
            raise Refused(
                f"GPU instances of {gpu.name} that this driver did not make would be destroyed: "
                f"{', '.join(foreign)}. Destroy them (nvidia-smi mig -dci, -dgi), or reset it by "
                "hand"
            )
        # One that is ours is not put back: it goes with the last claim, and there is none.
        return bool(pending) and not ledger.mode_switched

    def _persistence(self, gpu: devices.Gpu) -> bool | None:
        """As it is, or was seen last."""
        try:
            return self._modes.persistence(gpu.uuid)
        except errors.Rejected:
            return gpu.persistence_mode

    def _carried_out(self, record: written.Record) -> written.Record:
        """The record after the reset itself."""
        for card in record.cards:
            if card.persistence:
                try:
                    self._modes.set_persistence(card.gpu, on=False)
                except errors.Rejected as error:
                    # nvidia-smi tells whether that is in the way.
                    self._log.info("persistence mode stays on", gpu=card.gpu, reason=str(error))
        with self._tools.nvml.closed(CLOSE_SECONDS):
            self._refuse_holders(record)
            self._check([(card.name, card.gpu) for card in record.cards])
            for gpu in record.gpus:
                self._health.book.note_reset(gpu)
            record = record.at(written.Step.RESETTING)
            self._kept.resets.write(record)
            try:
                self._tools.smi.reset(record.gpus)
            except nvml_errors.InUse as error:
                self._take_back(record)
                raise Refused(f"{error}. {_FIND_THEM}") from error
            except errors.DriverError as error:
                raise Failed(str(error)) from error
            record = record.at(written.Step.RESTORING)
            self._kept.resets.write(record)
        return record

    def _take_back(self, record: written.Record) -> None:
        """Nothing was done, so it was no try; where the disk refuses it counts as one."""
        with contextlib.suppress(errors.DriverError):
            for gpu in record.gpus:
                self._health.book.take_back_reset(gpu)

    def _refuse_holders(self, record: written.Record) -> None:
        nodes = [node for card in record.cards for node in self._tools.nodes(card.gpu, card.minor)]
        pids = file_holders.pids(self._tools.proc_root, nodes)
        if pids:
            named = ", ".join(str(self._describe(pid)) for pid in pids)
            raise Refused(f"the GPU is held open by {named}: end it, or delete its pod")

    def _refuse_resets(self, gpus: Iterable[str]) -> None:
        """A reset that was begun may go on without the process that began it."""
        known = processes.Processes(self._tools.proc_root)
        pids = [pid for gpu in gpus for pid in known.running(*self._tools.smi.traces(gpu))]
        if pids:
            raise Refused(f"it is still at work: {self._describe(pids[0])}")

    def _conclude(self, record: written.Record) -> None:
        """Put modes back, and forget the reset; what cannot be put back is tried again later."""
        known = self._kept.records.contents().records.values()
        for card in record.cards:
            with self._mig.kept_open():
                if card.persistence:
                    self._modes.set_persistence(card.gpu, on=True)
                # With claims on it the GPU is as these need it.
                if card.mig is not None and not _having(known, [(card.name, card.gpu)]):
                    self._restore_mig(card.gpu, on=card.mig)
        self._kept.resets.remove(record.key)

    def _restore_mig(self, gpu: str, *, on: bool) -> None:
        state = self._mig.state(gpu)
        ledger = self._kept.books.get(gpu)
        there = {one.spot for one in state.instances}
        for spot in ledger.spots - there:
            ledger = ledger.without(spot)
        if ledger.mode_switched and not state.enabled:
            ledger = ledger.switched(on=False)
        self._kept.books.put(ledger)
        # One that is half way was not reset, and stays so.
        if state.enabled == state.pending != on and not ledger.mode_switched:
            try:
                self._mig.set_mode(gpu, on)
            except errors.Rejected as error:
                self._log.warning("MIG mode is not what it was", gpu=gpu, reason=str(error))
        self._tools.partitioner.settle_mode(gpu)

    def _verify(self, record: written.Record) -> None:
        """Have it known that the GPUs are well again.

        Raises:
            Failed: one of them is not.
        """
        gpus = [devices.GpuUuid(gpu) for gpu in record.gpus]
        try:
            found = self._tools.facts.facts(gpus)
        except errors.Retryable as error:
            raise Failed(f"after the reset the driver does not answer: {error}") from error
        for gpu in gpus:
            facts = found.get(gpu, health.Facts(is_lost=True))
            if facts.is_lost:
                raise Failed(f"{gpu} is lost after the reset: reboot the node")
            if meaning.of_facts(gpu, facts, _POLICY).is_recovered is False:
                raise Failed(f"{gpu} was reset, and its driver wants more than that still")
        for gpu in gpus:
            self._health.was_reset(gpu)


_POLICY = meaning.Policy()
"""What taints follow is not asked here."""
_NOT_IN_ORDER = "what an earlier reset left is not in order yet: {error}"
_FIND_THEM = "fuser -v /dev/nvidia* on the node tells who has it open"


def has(record: prepared.Record, name: str, gpu: str) -> bool:
    """Whether a claim has devices of the GPU, by what the record tells: its name or its UUID."""
    return name in planning.cards(record) or gpu in record.cards.values()


def _having(
    known: Iterable[prepared.Record], cards: Iterable[tuple[str, str]]
) -> list[prepared.Record]:
    """The claims that have devices of one of these GPUs, by name and UUID."""
    listed = list(cards)
    return [one for one in known if any(has(one, *card) for card in listed)]
