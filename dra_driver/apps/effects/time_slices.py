"""The effect of time slices: how long processes have a whole GPU before the next one has it.

See `effect.Effect`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from dra_driver.apps.effects import card_settings, effect
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import planning
from dra_driver.model import devices, prepared


class TimeSlices:
    """Time slices of claims."""

    parts: Mapping[str, Collection[int]] = MappingProxyType({})
    written_ahead = True

    def __init__(self, cards: card_settings.CardSettings) -> None:
        self._cards = cards

    def remember(self, record: prepared.Record, job: effect.Job) -> prepared.Record:
        """See `effect.Effect`."""
        known = job.before if job.before and job.in_use and not job.before.rebuilt else None
        source = known.sharing if known else job.plan.needs.remembered
        return _with(record, source.time_slices)

    def is_in(self, record: prepared.Record) -> bool:
        """See `effect.Effect`."""
        return bool(record.sharing.time_slices)

    def is_intact(self, _record: prepared.Record, _plan: planning.Plan) -> bool:
        """See `effect.Effect`. One that is lost is set again."""
        return True

    def renounce(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`."""

    def make(self, record: prepared.Record, _job: effect.Job) -> effect.Made:
        """See `effect.Effect`."""
        for one in record.sharing.time_slices:
            self._cards.set_time_slice(one)
        return effect.Made(record)

    def edits(self, _record: prepared.Record, _gpus: Mapping[str, devices.Gpu]) -> effect.Edits:
        """See `effect.Effect`. Containers notice nothing of it."""
        return {}

    def undo(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`."""
        for gpu in sorted({one.gpu for one in record.sharing.time_slices}):
            self._cards.settle(gpu, others)

    def settle(self, gpu: str, records: effect.Others | None) -> None:
        """See `effect.Effect`."""
        if records is not None:
            self._cards.settle(gpu, records)

    def leftovers(
        self, _cards: Sequence[catalog.Card], _records: Callable[[], effect.Others]
    ) -> Sequence[effect.Leftover]:
        """See `effect.Effect`. A time slice is a setting, which `settle` puts back."""
        return ()

    def tells(self, _record: prepared.Record) -> effect.Told:
        """See `effect.Effect`. Nothing that its config does not."""
        return {}

    def troubles(self, _record: prepared.Record, *, anew: bool) -> effect.Troubles:  # noqa: ARG002
        """See `effect.Effect`. One that is lost is set again, by `card_upkeep`."""
        return {}

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """See `effect.Effect`."""
        slices = record.sharing.time_slices
        return _with(record, tuple(one for one in slices if one.device not in shared))


def _with(record: prepared.Record, slices: tuple[prepared.TimeSlice, ...]) -> prepared.Record:
    kept = record.sharing.model_copy(update={"time_slices": slices})
    return record.model_copy(update={"sharing": kept})
