"""The smallest changes that would let claims fit now, each tried with the allocator itself."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from dra_driver.logic.explaining import change_kinds, changes
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import allocation, candidacy, constraints, demand, hurdles
from dra_driver.model import claims, slices

MAX_TRIALS = 2000
"""Searches on one node each, for one explanation."""
MAX_STEPS = 20_000
"""Devices looked at in one trial."""
MAX_PAIR_TRIALS = 1000
"""Searches on one node each, with two changes at once."""
MAX_PAIR_SPOTS = 20
"""Nodes on which two changes at once are tried."""
MAX_OF_KIND = 8
"""Changes of one kind that are tried together with others."""
MOST_PAIRS = 5

Spot = changes.Spot


@dataclasses.dataclass(frozen=True, slots=True)
class Miss:
    """A change after which the claims fit, on which node and with which devices.

    `size` is of how many parts the change consists; `together` that of changes which are needed at
    once.
    """

    change: str
    node: str
    devices: tuple[str, ...]
    size: int = 1
    together: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The misses, smallest change first; `complete` is False if the trials ran out."""

    misses: tuple[Miss, ...]
    complete: bool


def find(plan: demand.Plan, spots: Sequence[Spot], snapshot: snapshots.Snapshot) -> Found:
    """What would make the plan fit on one of these nodes."""
    trials = _Trials(changes.Setting(plan, spots, snapshot), MAX_TRIALS)
    found = [miss for kind in _ALONE for miss in kind(trials)]
    unique: dict[str, Miss] = {}
    for miss in found:
        unique.setdefault(miss.change, miss)
    misses = sorted(unique.values(), key=lambda miss: miss.size)
    return Found(tuple(misses), trials.left > 0)


def pairs(plan: demand.Plan, spots: Sequence[Spot], snapshot: snapshots.Snapshot) -> Found:
    """Which two changes would do, where no single one does: those first that keep the most.

    The second is one for devices as they fall after the first. Of pairs that change the same two
    things only the first is told.
    """
    setting = changes.Setting(plan, spots[:MAX_PAIR_SPOTS], snapshot)
    trials = _Trials(setting, MAX_PAIR_TRIALS)
    firsts, complete = _listed(setting)
    listed = [
        (one, other)
        for one in firsts
        for other in _listed(_after(one, setting))[0]
        if one.subject != other.subject
    ]
    found: dict[frozenset[tuple[str, ...]], Miss] = {}
    for one, other in sorted(listed, key=lambda pair: pair[0].lost + pair[1].lost):
        subjects = frozenset({one.subject, other.subject})
        if subjects in found:
            continue
        for miss in trials.tried(f"{one.told}, and {other.told}", one, other):
            found[subjects] = dataclasses.replace(miss, together=2)
        if len(found) == MOST_PAIRS:
            break
    complete = complete and trials.left > 0 and len(spots) <= MAX_PAIR_SPOTS
    return Found(tuple(found.values()), complete or bool(found))


def _listed(setting: changes.Setting) -> tuple[list[changes.Change], bool]:
    """Changes to try together with others, and whether that is all of them."""
    by_kind = [list(kind(setting)) for kind in change_kinds.KINDS]
    complete = all(len(listed) <= MAX_OF_KIND for listed in by_kind)
    return [change for listed in by_kind for change in listed[:MAX_OF_KIND]], complete


def _after(change: changes.Change, setting: changes.Setting) -> changes.Setting:
    snapshot = setting.snapshot
    state = change.make(changes.State(setting.plan, snapshot.in_use))
    spots = [state.spot(spot.node, snapshot) for spot in setting.spots]
    return changes.Setting(state.plan, spots, snapshot)


def groups(plan: demand.Plan, spots: Sequence[Spot]) -> tuple[str, ...]:
    """For each constraint how close it comes: `2 of 4 devices with pcieRoot "x" are free`."""
    found: dict[str, None] = {}
    for item in plan:
        for constraint in item.claim.constraints:
            told = _different if constraint.distinct else _agreeing
            for spot in spots:
                found |= dict.fromkeys(told(item, constraint, spot))
    return tuple(found)


class _Trials:
    def __init__(self, setting: changes.Setting, most: int) -> None:
        self.setting = setting
        self.left = most

    def tried(self, told: str, *made: changes.Change) -> Iterator[Miss]:
        state = changes.State(self.setting.plan, self.setting.snapshot.in_use)
        for change in made:
            state = change.make(state)
        for spot in self.setting.spots:
            self.left -= 1
            if self.left < 0:
                return
            try:
                outcome = allocation.allocate(
                    state.plan,
                    node=spot.node,
                    inventory=self.setting.snapshot.inventory,
                    in_use=state.in_use,
                    share_ids=str,
                    behaviour=self.setting.snapshot.behaviour,
                    max_steps=MAX_STEPS,
                )
            except demand.Aborted:
                continue
            if outcome.allocations is not None:
                devices = [f"{r.device}" for each in outcome.allocations for r in each.results]
                size = sum(change.size for change in made)
                yield Miss(told, spot.node.name, tuple(devices), size)
                return


def _selectors(trials: _Trials) -> Iterator[Miss]:
    """Without the parts of a selector that the closest devices do not meet, and no more."""
    enough: list[changes.Change] = []
    for change in change_kinds.selectors(trials.setting):
        if any(one.subject == change.subject and one.parts <= change.parts for one in enough):
            continue
        for miss in trials.tried(change.told, change):
            enough.append(change)
            yield miss


def _holders(trials: _Trials) -> Iterator[Miss]:
    """Without one of the claims that have devices; else without as few as a greedy choice finds."""
    single = [
        miss
        for change in change_kinds.holders(trials.setting)
        for miss in trials.tried(change.told, change)
    ]
    yield from single
    if single:
        return
    needed = list(trials.setting.holders)
    if not _enough(trials, needed):
        return
    for one in list(needed):
        fewer = [other for other in needed if other is not one]
        if _enough(trials, fewer):
            needed = fewer
    yield from _enough(trials, needed)


def _enough(trials: _Trials, ended: Sequence[snapshots.Holder]) -> list[Miss]:
    change = change_kinds.freed(ended)
    return list(trials.tried(change.told, change))


def _first(
    kind: Callable[[changes.Setting], Iterator[changes.Change]],
) -> Callable[[_Trials], Iterator[Miss]]:
    """Of changes of one subject the first that is enough."""

    def tried(trials: _Trials) -> Iterator[Miss]:
        done: set[tuple[str, ...]] = set()
        for change in kind(trials.setting):
            if change.subject in done:
                continue
            for miss in trials.tried(change.told, change):
                done.add(change.subject)
                yield miss

    return tried


def _classes(trials: _Trials) -> Iterator[Miss]:
    """With another class; of several that give the same devices the first."""
    given: set[tuple[object, ...]] = set()
    for change in change_kinds.classes(trials.setting):
        for miss in trials.tried(change.told, change):
            if (change.subject, miss.devices) not in given:
                given.add((change.subject, miss.devices))
                yield miss


def _each(
    kind: Callable[[changes.Setting], Iterator[changes.Change]],
) -> Callable[[_Trials], Iterator[Miss]]:
    def tried(trials: _Trials) -> Iterator[Miss]:
        for change in kind(trials.setting):
            yield from trials.tried(change.told, change)

    return tried


_ALONE: tuple[Callable[[_Trials], Iterator[Miss]], ...] = (
    _selectors,
    _holders,
    _each(change_kinds.device_taints),
    _first(change_kinds.less_capacity),
    _each(change_kinds.claim_constraints),
    _first(change_kinds.counts),
    _classes,
)
"""How each of `change_kinds.KINDS` is tried and told where one change is enough."""

_Value = tuple[type, slices.Scalar]
"""With its type: 1 and true are different values. Of a list each value counts."""
_Devices = dict[_Value, set[str]]


def _agreeing(item: demand.ClaimPlan, constraint: claims.Constraint, spot: Spot) -> Iterator[str]:
    total, free = _by_value(item, constraint, spot)
    if not total:
        return
    best = max(total, key=lambda value: (len(free[value]), len(total[value]), _shown(value)))
    name = constraint.attribute.rpartition("/")[2]
    yield (
        f"node {spot.node.name}: {len(free[best])} of {len(total[best])} devices with {name} "
        f'"{_shown(best)}" are free; the claim needs {_wanted(item, constraint)} with one {name}'
    )


def _different(item: demand.ClaimPlan, constraint: claims.Constraint, spot: Spot) -> Iterator[str]:
    total, free = _by_value(item, constraint, spot)
    if not total:
        return
    name = constraint.attribute.rpartition("/")[2]
    yield (
        f"node {spot.node.name}: free devices have {len(free)} different values of {name}, "
        f"{len(total)} with those in use; the claim needs {_wanted(item, constraint)}"
    )


def _by_value(
    item: demand.ClaimPlan, constraint: claims.Constraint, spot: Spot
) -> tuple[_Devices, _Devices]:
    """The devices with each value of the attribute: all that are meant, and those of them free."""
    total: _Devices = collections.defaultdict(set)
    free: _Devices = collections.defaultdict(set)
    for want in _concerned(item, constraint):
        for fall in spot.falls[want]:
            if fall.kind not in _MEANT:
                continue
            for value in _values(want, fall.candidate, constraint.attribute):
                total[value].add(f"{fall.candidate.id}")
                if fall.kind is hurdles.Kind.FREE:
                    free[value].add(f"{fall.candidate.id}")
    return total, free


def _values(want: demand.Want, candidate: candidacy.Candidate, attribute: str) -> Iterable[_Value]:
    """None of a device that the search never asked, and that has no answer."""
    try:
        return constraints.values(want, candidate, attribute) or ()
    except demand.Aborted:
        return ()


def _concerned(item: demand.ClaimPlan, constraint: claims.Constraint) -> list[demand.Want]:
    bounds = constraints.Attribute(constraint)
    return [want for want in item.wants if bounds.concerns(want.name)]


def _wanted(item: demand.ClaimPlan, constraint: claims.Constraint) -> int:
    """The devices that have to agree, or differ, at least."""
    concerned = _concerned(item, constraint)
    return sum(
        min(want.spec.count or 1 for want in choices)
        for choices in item.requests
        if any(want in concerned for want in choices)
    )


def _shown(typed: _Value) -> str:
    _, value = typed
    return value.text if isinstance(value, slices.Version) else f"{value}"


_MEANT = frozenset({
    hurdles.Kind.FREE, hurdles.Kind.IN_USE, hurdles.Kind.COUNTERS, hurdles.Kind.SHARES,
    hurdles.Kind.TAINT,
})  # fmt: skip
