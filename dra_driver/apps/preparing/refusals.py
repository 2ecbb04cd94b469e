"""Tells in the status of a claim that it has, or is to have, another card than its device is now.

The pod's event has it from the answer to the kubelet; whoever looks at the claim finds it there.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from dra_driver import errors
from dra_driver.adapters.disk import records
from dra_driver.apps.effects import effect
from dra_driver.apps.preparing import turns
from dra_driver.logic.offering import naming
from dra_driver.logic.preparing import device_status, reports
from dra_driver.model import claims, prepared

Report = Callable[[claims.ClaimRef, Sequence[device_status.DeviceReport]], None]


class Preparer(Protocol):
    """What prepares and unprepares claims; `preparing.Preparer` is one."""

    def prepare(
        self, ref: claims.ClaimRef, turn: turns.Turn
    ) -> tuple[prepared.PreparedDevice, ...]:
        """The claim's devices, ready for use.

        Raises:
            errors.DriverError: they are not.
        """

    def unprepare(self, ref: claims.ClaimRef, turn: turns.Turn) -> None:
        """Undo whatever was done for the claim; unknown is fine.

        Raises:
            errors.DriverError: it did not work.
        """


class Told:
    """A preparer whose refusals of wrong cards are reported."""

    def __init__(
        self,
        preparer: Preparer,
        known: records.Records,
        effects: Sequence[effect.Effect],
        report: Report,
    ) -> None:
        self._preparer = preparer
        self._known = known
        self._effects = effects
        self._report = report

    def prepare(
        self, ref: claims.ClaimRef, turn: turns.Turn
    ) -> tuple[prepared.PreparedDevice, ...]:
        """See `Preparer`."""
        try:
            return self._preparer.prepare(ref, turn)
        except naming.WrongCard as error:
            record = self._record(ref)
            told = effect.told(self._effects, record) if record else {}
            self._report(ref, reports.of_refusal(error, record, told=told))
            raise

    def unprepare(self, ref: claims.ClaimRef, turn: turns.Turn) -> None:
        """See `Preparer`."""
        self._preparer.unprepare(ref, turn)

    def _record(self, ref: claims.ClaimRef) -> prepared.Record | None:
        try:
            return self._known.get(ref.uid)
        except errors.Rejected:
            # What cannot be read tells of no other device.
            return None
