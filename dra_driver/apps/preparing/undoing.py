"""How what was done for a claim is taken back.

It works on a full disk, without the API and beside damaged records: files are removed, and none is
written. Order: CDI spec, the effects backwards, record.
"""

from collections.abc import Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.apps.effects import effect, specs
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import rebuilding
from dra_driver.model import prepared


class Undoer:
    """Takes back. Whoever calls holds the locks of the claim and of its GPUs."""

    def __init__(
        self,
        known: records.Records,
        written: specs.Specs,
        rebuilder: rebuilding.Rebuilder,
        effects: Sequence[effect.Effect],
        gpus: inventory.Inventory,
    ) -> None:
        self._gpus = gpus
        self._known = known
        self._specs = written
        self._rebuilder = rebuilder
        self._effects = effects
        self._begun: dict[str, None] = {}
        self._log = telemetry.logger("undoer")

    @property
    def begun(self) -> list[str]:
        """The claims that are being taken back, or could not be altogether."""
        return list(self._begun)

    def undo(self, uid: str, record: prepared.Record | None) -> None:
        """Take back what the record says, however far that got; None is a claim nobody knows.

        Raises:
            errors.DriverError: not all could be; the record stays, and it is to be tried again.
        """
        self._refuse_unknown(record)
        self._begun[uid] = None
        self._specs.remove(uid)
        if record is not None:
            others, is_all = self.others(uid)
            mine = record if is_all else self._without_shares(record)
            for one in reversed(self._effects):
                one.undo(mine, others)
        else:
            self._undo_unrecorded(uid)
        self._known.remove(uid)
        self.settled(uid)

    def _undo_unrecorded(self, uid: str) -> None:
        """Take back what needs no record before it is made."""
        unknown = prepared.Record(
            uid=uid, namespace="", name="", phase=prepared.Phase.STARTED, boot_id="", devices=()
        )
        for one in reversed(self._effects):
            if not one.written_ahead:
                one.undo(unknown, ())

    def settled(self, uid: str) -> None:
        """Nothing of the claim is left half undone: it is prepared again, or gone."""
        self._begun.pop(uid, None)

    def after_failure(self, uid: str) -> None:
        """Take back; where that fails too, the record stays, and the next call does it."""
        try:
            self.undo(uid, self._known.get(uid))
        except errors.DriverError as error:
            self._log.error("not all could be undone; the next call tries it", reason=str(error))

    def others(self, uid: str) -> tuple[list[prepared.Record], bool]:
        """The records of all other claims, and whether those are all that there are.

        For one that is damaged stands what can be known of its claim without it.
        """
        contents = self._known.contents()
        # GPUs are locked, so NVML is not waited for.
        seen = self._gpus.snapshot
        damaged = [each for each in contents.damaged if each != uid]
        guessed = [self._rebuilder.guess(each, seen=seen) for each in damaged]
        found = [record for each, record in contents.records.items() if each != uid]
        return found + [one for one in guessed if one is not None], None not in guessed

    def _refuse_unknown(self, record: prepared.Record | None) -> None:
        """Undo nothing below what cannot be undone: the order of a newer driver is not known."""
        unknown = effect.unknown(self._effects, record) if record is not None else []
        if record is not None and unknown:
            raise errors.Retryable(
                f"claim {record.ref}: its record has parts that this version of the driver does "
                f"not know: {', '.join(unknown)}. Nothing is undone. Install the version that "
                "wrote them, or a later one, until the claim is unprepared"
            )

    def _without_shares(self, record: prepared.Record) -> prepared.Record:
        """What nobody else can have a part of; the rest is looked after once that is known."""
        shares = {one.device for one in record.devices if one.share_id is not None}
        if shares:
            self._log.warning(
                "what other claims may share stays until their damaged records are rebuilt",
                devices=sorted(shares),
            )
        for one in self._effects:
            record = one.without(record, shares)
        return record
