"""Tells in the status of a claim what comes of a call besides devices that are ready.

That it has, or is to have, another card than its device is now: the pod's event has it from the
answer to the kubelet, and whoever looks at the claim finds it there. And that it has nothing any
more, once it is unprepared.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from dra_driver import errors
from dra_driver.adapters.disk import records
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
    """A preparer of which refusals of wrong cards, and what is given back, are reported."""

    def __init__(
        self,
        preparer: Preparer,
        known: records.Records,
        tells: Callable[[prepared.Record], reports.Told],
        report: Report,
    ) -> None:
        """`tells` says what there is to tell of the devices of a claim that is prepared."""
        self._preparer = preparer
        self._known = known
        self._tells = tells
        self._report = report

    def prepare(
        self, ref: claims.ClaimRef, turn: turns.Turn
    ) -> tuple[prepared.PreparedDevice, ...]:
        """See `Preparer`."""
        try:
            return self._preparer.prepare(ref, turn)
        except naming.WrongCard as error:
            record = self._record(ref)
            told = self._tells(record) if record else {}
            self._report(ref, reports.of_refusal(error, record, told=told))
            raise

    def unprepare(self, ref: claims.ClaimRef, turn: turns.Turn) -> None:
        """See `Preparer`."""
        self._preparer.unprepare(ref, turn)
        self._report(ref, ())

    def _record(self, ref: claims.ClaimRef) -> prepared.Record | None:
        try:
            return self._known.get(ref.uid)
        except errors.Rejected:
            # What cannot be read tells of no other device.
            return None
