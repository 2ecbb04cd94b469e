"""The smallest changes that would let claims fit now, each tried with the allocator itself."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_driver.logic import (
    allocation,
    constraints,
    demand,
    device_hurdles,
    hurdles,
    selection,
    snapshots,
    usage,
)
from dra_driver.model import claims, nodes, taints

MAX_TRIALS = 2000
"""Searches on one node each, for one explanation."""
MAX_STEPS = 20_000
"""Devices looked at in one trial."""
MAX_SETS = 20
"""Sets of parts of a selector that are tried for one request."""

Edits = Mapping[demand.Want, demand.Want]


@dataclasses.dataclass(frozen=True, slots=True)
class Miss:
    """A change after which the claims fit, on which node and with which devices.

    `size` is of how many parts the change consists.
    """

    change: str
    node: str
    devices: tuple[str, ...]
    size: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A node that does not serve the plan as it is: where each device falls, for each want."""

    node: nodes.Node
    falls: Mapping[demand.Want, Sequence[device_hurdles.Fall]]


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The misses, smallest change first; `complete` is False if the trials ran out."""

    misses: tuple[Miss, ...]
    complete: bool


def find(plan: demand.Plan, spots: Sequence[Spot], snapshot: snapshots.Snapshot) -> Found:
    """What would make the plan fit on one of these nodes."""
    trials = _Trials(plan, spots, snapshot)
    found = [miss for kind in _KINDS for miss in kind(trials)]
    unique: dict[str, Miss] = {}
    for miss in found:
        unique.setdefault(miss.change, miss)
    misses = sorted(unique.values(), key=lambda miss: miss.size)
    return Found(tuple(misses), trials.left > 0)


def groups(plan: demand.Plan, spots: Sequence[Spot]) -> tuple[str, ...]:
    """For each matchAttribute how close it comes: `2 of 4 devices with pcieRoot "x" are free`."""
    found: dict[str, None] = {}
    for item in plan:
        for constraint in item.claim.constraints:
            if not constraint.distinct:
                for spot in spots:
                    found |= dict.fromkeys(_best_group(item, constraint, spot))
    return tuple(found)


class _Trials:
    def __init__(
        self, plan: demand.Plan, spots: Sequence[Spot], snapshot: snapshots.Snapshot
    ) -> None:
        self.plan = plan
        self.spots = spots
        self.snapshot = snapshot
        self.left = MAX_TRIALS

    @property
    def wants(self) -> Iterator[demand.Want]:
        for item in self.plan:
            yield from item.wants

    def falls(self, want: demand.Want) -> Iterator[device_hurdles.Fall]:
        for spot in self.spots:
            yield from spot.falls[want]

    def edited(self, change: str, edits: Edits) -> Iterator[Miss]:
        plan = tuple(
            dataclasses.replace(
                item,
                requests=tuple(
                    tuple(edits.get(want, want) for want in alternatives)
                    for alternatives in item.requests
                ),
            )
            for item in self.plan
        )
        yield from self.tried(change, plan, self.snapshot.in_use)

    def tried(self, change: str, plan: demand.Plan, in_use: usage.InUse) -> Iterator[Miss]:
        for spot in self.spots:
            self.left -= 1
            if self.left < 0:
                return
            try:
                outcome = allocation.allocate(
                    plan,
                    node=spot.node,
                    inventory=self.snapshot.inventory,
                    in_use=in_use,
                    share_ids=str,
                    max_steps=MAX_STEPS,
                )
            except demand.Aborted:
                continue
            if outcome.allocations is not None:
                devices = [f"{r.device}" for each in outcome.allocations for r in each.results]
                yield Miss(change, spot.node.name, tuple(devices))
                return


def _selectors(trials: _Trials) -> Iterator[Miss]:
    """Without those parts of a request's selectors that the closest devices do not meet."""
    for want in trials.wants:
        sets: dict[tuple[tuple[int, str], ...], device_hurdles.Fall] = {}
        for fall in trials.falls(want):
            if fall.kind is hurdles.Kind.SELECTOR:
                sets.setdefault(_failing(want, fall), fall)
        enough: list[set[tuple[int, str]]] = []
        for failing, fall in sorted(sets.items(), key=lambda e: (len(e[0]), e[0]))[:MAX_SETS]:
            if any(smaller <= set(failing) for smaller in enough):
                continue
            selectors = _without(want, fall, failing)
            if selectors is not None:
                parts = " and ".join(f"`{source}`" for _, source in failing)
                values = ", ".join(filter(None, fall.values))
                told = f" ({fall.candidate.id}: {values})" if values else ""
                edit = dataclasses.replace(want, selectors=selectors)
                change = f'drop {parts} from request "{want.name}"{told}'
                for miss in trials.edited(change, {want: edit}):
                    enough.append(set(failing))
                    yield dataclasses.replace(miss, size=len(failing))


def _failing(want: demand.Want, fall: device_hurdles.Fall) -> tuple[tuple[int, str], ...]:
    candidate = fall.candidate
    return tuple(
        (index, part.source)
        for index, selector in enumerate(want.selectors)
        for part in selector.explain(candidate.device, candidate.id.driver)
        if part.outcome is not True
    )


def _without(
    want: demand.Want, fall: device_hurdles.Fall, failing: Sequence[tuple[int, str]]
) -> tuple[selection.Selector, ...] | None:
    device, driver = fall.candidate.device, fall.candidate.id.driver
    left = []
    for index, selector in enumerate(want.selectors):
        sources = [part.source for part in selector.explain(device, driver)]
        kept = [f"({source})" for source in sources if (index, source) not in failing]
        if len(kept) == len(sources):
            left.append(selector)
        elif kept:
            try:
                left.append(selection.compile(" && ".join(kept)))
            except selection.CompileError:
                # A part of `cel.bind` cannot stand without its variable.
                return None
    return tuple(left)


def _holders(trials: _Trials) -> Iterator[Miss]:
    """Without one of the claims that have devices; else without as few as a greedy choice finds."""
    listed = [holder for want in trials.wants for f in trials.falls(want) for holder in f.holders]
    held = {(one.namespace, one.claim): one for one in listed}
    single = [
        miss for _, one in sorted(held.items()) for miss in trials.tried(*_freed(trials, [one]))
    ]
    yield from single
    if single:
        return
    needed = [one for _, one in sorted(held.items())]
    if not list(trials.tried(*_freed(trials, needed))):
        return
    for one in list(needed):
        fewer = [other for other in needed if other is not one]
        if list(trials.tried(*_freed(trials, fewer))):
            needed = fewer
    for miss in trials.tried(*_freed(trials, needed)):
        yield dataclasses.replace(miss, size=len(needed))


def _freed(
    trials: _Trials, ended: Sequence[snapshots.Holder]
) -> tuple[str, demand.Plan, usage.InUse]:
    told = " and ".join(
        f"pod{'s' if len(one.pods) > 1 else ''} {', '.join(one.pods)} "
        f"end{'' if len(one.pods) > 1 else 's'} (claim {one.namespace}/{one.claim})"
        if one.pods
        else f"claim {one.namespace}/{one.claim} is deleted (no pod uses it)"
        for one in ended
    )
    in_use = trials.snapshot.in_use.changed(removed=[one.allocation for one in ended])
    return f"free once {told}", trials.plan, in_use


def _taints(trials: _Trials) -> Iterator[Miss]:
    for want in trials.wants:
        keys: dict[str, str] = {}
        for fall in trials.falls(want):
            if fall.kind is hurdles.Kind.TAINT:
                keys |= {taint.key: f"{taint}" for taint in fall.candidate.taints if taint.blocks}
        for key, shown in sorted(keys.items()):
            toleration = taints.Toleration(key, "Exists")
            edit = dataclasses.replace(want, tolerations=(*want.tolerations, toleration))
            yield from trials.edited(
                f'tolerate the device taint {shown} in request "{want.name}"', {want: edit}
            )


def _constraints(trials: _Trials) -> Iterator[Miss]:
    for number, item in enumerate(trials.plan):
        for index, constraint in enumerate(item.claim.constraints):
            left = (*item.claim.constraints[:index], *item.claim.constraints[index + 1 :])
            claim = dataclasses.replace(item.claim, constraints=left)
            plan = list(trials.plan)
            plan[number] = dataclasses.replace(item, claim=claim)
            change = f"drop {constraints.Attribute(constraint)} from claim {claim.ref.name}"
            yield from trials.tried(change, tuple(plan), trials.snapshot.in_use)


def _counts(trials: _Trials) -> Iterator[Miss]:
    for want in trials.wants:
        for count in range((want.spec.count or 1) - 1, 0, -1):
            edit = dataclasses.replace(want, spec=dataclasses.replace(want.spec, count=count))
            change = f'ask for {count} rather than {want.spec.count} in request "{want.name}"'
            if found := list(trials.edited(change, {want: edit})):
                yield from found
                break


def _capacities(trials: _Trials) -> Iterator[Miss]:
    for want in trials.wants:
        for name in sorted(want.capacity):
            left = {key: amount for key, amount in want.capacity.items() if key != name}
            change = (
                f"ask for less than {want.capacity[name]} of capacity {name} in request "
                f'"{want.name}"'
            )
            yield from trials.edited(change, {want: dataclasses.replace(want, capacity=left)})


def _classes(trials: _Trials) -> Iterator[Miss]:
    """With another class; of several that give the same devices the one with the shortest name."""
    for want in trials.wants:
        given: set[tuple[str, ...]] = set()
        by_length = sorted(trials.snapshot.classes.items(), key=lambda e: (len(e[0]), e[0]))
        for name, device_class in by_length:
            if name == want.device_class.name:
                continue
            try:
                selectors = tuple(map(selection.compile, device_class.selectors))
            except selection.CompileError:
                continue
            edit = dataclasses.replace(want, device_class=device_class, class_selectors=selectors)
            old = want.device_class.name
            change = f'ask for class {name} rather than {old} in request "{want.name}"'
            for miss in trials.edited(change, {want: edit}):
                if miss.devices not in given:
                    given.add(miss.devices)
                    yield miss


_KINDS: tuple[Callable[[_Trials], Iterator[Miss]], ...] = (
    _selectors, _holders, _taints, _capacities, _constraints, _counts, _classes,
)  # fmt: skip


def _best_group(item: demand.ClaimPlan, constraint: claims.Constraint, spot: Spot) -> Iterator[str]:
    concerned = [
        want for want in item.wants if constraints.Attribute(constraint).concerns(want.name)
    ]
    total: dict[object, set[str]] = collections.defaultdict(set)
    free: dict[object, set[str]] = collections.defaultdict(set)
    for want in concerned:
        for fall in spot.falls[want]:
            device, driver = fall.candidate.device, fall.candidate.id.driver
            value = constraints.lookup(device, driver, constraint.attribute)
            if value is None or fall.kind not in _MEANT:
                continue
            total[value].add(f"{fall.candidate.id}")
            if fall.kind is hurdles.Kind.FREE:
                free[value].add(f"{fall.candidate.id}")
    if not total:
        return
    best = max(total, key=lambda value: (len(free[value]), len(total[value]), str(value)))
    wanted = sum(min(want.spec.count or 1 for want in choices) for choices in item.requests
                 if any(want in concerned for want in choices))  # fmt: skip
    name = constraint.attribute.rpartition("/")[2]
    yield (
        f"node {spot.node.name}: {len(free[best])} of {len(total[best])} devices with {name} "
        f'"{best}" are free; the claim needs {wanted} with one {name}'
    )


_MEANT = frozenset({
    hurdles.Kind.FREE, hurdles.Kind.IN_USE, hurdles.Kind.COUNTERS, hurdles.Kind.SHARES,
    hurdles.Kind.TAINT,
})  # fmt: skip
