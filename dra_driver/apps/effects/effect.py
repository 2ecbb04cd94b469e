"""The shape of whatever is done to devices for a claim: remembered, made, looked after, undone.

Effects are in one list (`wiring.Effects.listed`): they are made in its order and undone backwards.
Whoever calls holds the locks of the claim and of its GPUs.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import cdi, device_status, planning, reports
from dra_driver.model import devices, prepared

Others = Sequence[prepared.Record]
"""The records of all other claims."""
Edits = Mapping[str, cdi.Edits]
"""What containers get of an effect, by device key (`cdi.device_key`)."""
Told = reports.Told
"""What a claim's status tells of its devices, by device key."""
Troubles = reports.Troubles


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A claim that is being prepared: what it is to have, and what others have.

    `before` is what was remembered of it. `in_use`: containers of it may run with what it has,
    which stays whatever happens.
    """

    plan: planning.Plan
    before: prepared.Record | None
    others: Others
    in_use: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """The record with what is known of it once it is made, and what containers get of it."""

    record: prepared.Record
    edits: Edits = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Leftover:
    """Something that was made for a claim, of which no record tells any more.

    `kind` and `name` are what people know it by. `gpus` are those that it is on, by UUID; none
    where that is not known. `uses` are the UUIDs of devices that no process may be on when it goes.
    `device` is the name of the device that it is, if a claim that has no record may have that: only
    a list of all claims tells then.

    `remove` does away with it, and raises waits.Wait or errors.DriverError as `Effect.undo`; `keep`
    is done instead where a claim has the device.
    """

    kind: str
    name: str
    gpus: tuple[str, ...]
    remove: Callable[[], None]
    uses: tuple[str, ...] = ()
    device: str | None = None
    keep: Callable[[], None] = lambda: None

    @property
    def key(self) -> tuple[str, str]:
        """What it is the same by at another look, whatever is known of it then."""
        return self.kind, self.name


class Effect(Protocol):
    """Something that is done to devices. All of it may be done twice, and after being cut short."""

    @property
    def parts(self) -> Mapping[str, Collection[int]]:
        """The parts of a record (`prepared.Record.parts`) that are its own, with the versions that
        it reads. None for what has fields in the record.
        """

    @property
    def written_ahead(self) -> bool:
        """Whether a record has to tell of it before it is made, as nothing else would.

        What is not is found without a record by `leftovers`, and `undo` needs no more of a record
        than the UID of the claim.
        """

    def remember(self, record: prepared.Record, job: Job) -> prepared.Record:
        """The record with what is going to be made; nothing is made yet."""

    def is_in(self, record: prepared.Record) -> bool:
        """Whether the record tells of something of this kind, which has to be undone."""

    def is_intact(self, record: prepared.Record, plan: planning.Plan) -> bool:
        """Whether all that the record tells of is there still, for this plan."""

    def renounce(self, record: prepared.Record, others: Others) -> None:
        """Let go of what is not there any more, before it is made anew."""

    def make(self, record: prepared.Record, job: Job) -> Made:
        """Make what the record tells of, as far as it is not there.

        Raises:
            waits.Wait: something outside has to happen first; what was begun stays.
            errors.DriverError: it cannot be made.
        """

    def edits(self, record: prepared.Record, gpus: Mapping[str, devices.Gpu]) -> Edits:
        """What containers get of it, of a claim that is prepared; nothing is done.

        `gpus` are those of the claim's devices, by device name.
        """

    def undo(self, record: prepared.Record, others: Others) -> None:
        """Undo what the record tells of, however far it got, where no other record needs it.

        Raises:
            waits.Wait: something outside has to end first.
            errors.DriverError: it cannot be undone now.
        """

    def settle(self, gpu: str, records: Others | None) -> None:
        """Put a GPU (by UUID) back to what it was, where none of the records needs it otherwise.

        None: what claims need is not known; only what no claim can need is put back then.

        Raises:
            errors.DriverError: it cannot be put back now.
        """

    def leftovers(
        self, cards: Sequence[catalog.Card], records: Callable[[], Others]
    ) -> Sequence[Leftover]:
        """What it made, or is to take over, on these cards of which no record tells.

        `records` are read after what is there: a record is written before anything is made, and
        removed after it is undone.
        """

    def tells(self, record: prepared.Record) -> Told:
        """What the status of a claim that is prepared says of it."""

    def troubles(self, record: prepared.Record, *, anew: bool) -> Troubles:
        """What is wrong with what a claim that is prepared has of it.

        As it was seen last; `anew`: as it is now, which counts as seen from then on.
        """

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """The record without what is made for these devices, of which others may have a part."""


def leftovers(
    effects: Sequence[Effect], cards: Sequence[catalog.Card], records: Callable[[], Others]
) -> list[Leftover]:
    """What any of the effects left over."""
    return [left for one in effects for left in one.leftovers(cards, records)]


def unknown(effects: Sequence[Effect], record: prepared.Record) -> list[str]:
    """The parts of a record that none of the effects reads: those of a newer driver."""
    known = {
        (name, version)
        for one in effects
        for name, versions in one.parts.items()
        for version in versions
    }
    return sorted(
        f"{name!r} (version {part.version})"
        for name, part in record.parts.items()
        if (name, part.version) not in known
    )


def edits(
    effects: Sequence[Effect], record: prepared.Record, gpus: Mapping[str, devices.Gpu]
) -> Edits:
    """What containers of a claim that is prepared get of all effects."""
    return merged(one.edits(record, gpus) for one in effects)


def told(effects: Sequence[Effect], record: prepared.Record) -> Told:
    """What the status of a claim that is prepared says of all effects."""
    found: dict[str, dict[str, device_status.Value | None]] = {}
    for one in effects:
        for key, facts in one.tells(record).items():
            found.setdefault(key, {}).update(facts)
    return found


def troubles(effects: Sequence[Effect], record: prepared.Record, *, anew: bool) -> Troubles:
    """What is wrong with what a claim that is prepared has; of a device what came first."""
    found: dict[str, reports.Trouble] = {}
    for one in effects:
        found = {**one.troubles(record, anew=anew), **found}
    return found


def merged(several: Iterable[Edits]) -> Edits:
    """The edits of several effects, by device key."""
    found: dict[str, cdi.Edits] = {}
    for one in several:
        for key, more in one.items():
            found[key] = found.get(key, cdi.Edits()).and_also(more)
    return found
