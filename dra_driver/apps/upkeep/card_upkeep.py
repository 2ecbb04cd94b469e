"""Sees to it that GPUs stay set as prepared claims need them.

The kernel's driver forgets a compute mode with the last client of a GPU where persistence mode is
off, and everything when its module is loaded anew; and anybody may set a GPU otherwise.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.adapters.nvml import nvml_compute
from dra_driver.adapters.system import locks, patience
from dra_driver.apps.effects import card_settings
from dra_driver.logic.preparing import planning
from dra_driver.model import devices, prepared

LOCK_SECONDS = 1.0
"""How long a claim on the same GPU may be busy; the next look comes soon."""

_AS_NEEDED = (None, nvml_compute.ComputeMode.EXCLUSIVE_PROCESS)
"""Compute modes that raise no doubt; None is not known."""

Cards = Callable[[], Collection[devices.Gpu]]


class CardUpkeep:
    """Looks at what claims need, again and again; whoever calls decides when.

    The compute modes are those of the last look at the GPUs, which costs nothing. What looks wrong
    there is looked at once more with the GPU's lock held, before anything is done: a claim may have
    been prepared since. Each GPU of a claim is looked at like that once in any case, and again when
    it comes back: after a start of the driver, and after its kernel module was loaded anew.
    """

    def __init__(
        self,
        cards: Cards,
        known: records.Records,
        held: locks.Locks,
        settings: card_settings.CardSettings,
    ) -> None:
        """`cards` are the GPUs that answer, as they were seen last."""
        self._cards = cards
        self._known = known
        self._locks = held
        self._settings = settings
        self._log = telemetry.logger("card-upkeep")
        self._guard = threading.Lock()
        self._looked_at: set[tuple[str, str]] = set()
        """Claims, by UID, with the GPUs that were looked at for them."""
        self._problems: dict[str, str] = {}

    def look(self) -> Mapping[str, str]:
        """Set again what is lost; what could not be, by the domain of the MPS daemon it is for."""
        with self._guard:
            there = {str(gpu.uuid): gpu for gpu in self._cards()}
            known = self._prepared()
            needed = {(record.uid, gpu) for record in known for gpu in _gpus(record)}
            self._looked_at &= {(uid, gpu) for uid, gpu in needed if gpu in there}
            uuids = {gpu for _, gpu in needed}
            self._problems = {gpu: why for gpu, why in self._problems.items() if gpu in uuids}
            for record in known:
                doubtful = {gpu for gpu in _gpus(record) if self._is_doubtful(record, gpu, there)}
                if doubtful:
                    self._look_at(record, doubtful)
            return {
                use.domain: self._problems[gpu]
                for record in known
                for use in _exclusive(record)
                for gpu in use.gpus
                if gpu in self._problems
            }

    def _prepared(self) -> list[prepared.Record]:
        return [
            record
            for record in self._known.contents().records.values()
            if record.phase is prepared.Phase.COMPLETED and record.sharing
        ]

    def _is_doubtful(
        self, record: prepared.Record, gpu: str, there: Mapping[str, devices.Gpu]
    ) -> bool:
        if gpu not in there:
            return False
        if (record.uid, gpu) not in self._looked_at:
            return True
        is_exclusive = any(gpu in use.gpus for use in _exclusive(record))
        return is_exclusive and there[gpu].compute_mode not in _AS_NEEDED

    def _look_at(self, record: prepared.Record, doubtful: Collection[str]) -> None:
        hold = self._locks.hold(planning.cards(record), patience.Patience(LOCK_SECONDS))
        with contextlib.suppress(errors.Retryable), hold:
            # Read with the locks held: one that is being unprepared has no record any more.
            if self._known.contents().records.get(record.uid) == record:
                for gpu in sorted(doubtful):
                    self._keep(record, gpu)

    def _keep(self, record: prepared.Record, gpu: str) -> None:
        try:
            for one in record.sharing.time_slices:
                if one.gpu == gpu:
                    self._settings.keep_time_slice(one)
            if any(gpu in use.gpus for use in _exclusive(record)):
                self._settings.keep_exclusive(gpu)
        except errors.DriverError as error:
            self._looked_at.discard((record.uid, gpu))
            if self._problems.get(gpu) != str(error):
                self._log.error("GPU is not set as a claim needs it", reason=str(error))
            self._problems[gpu] = str(error)
        else:
            self._looked_at.add((record.uid, gpu))
            self._problems.pop(gpu, None)


def _exclusive(record: prepared.Record) -> list[prepared.MpsUse]:
    return [use for use in record.sharing.mps if use.exclusive]


def _gpus(record: prepared.Record) -> set[str]:
    """The GPUs that are set for the claim."""
    sliced = {one.gpu for one in record.sharing.time_slices}
    return sliced | {gpu for use in _exclusive(record) for gpu in use.gpus}
