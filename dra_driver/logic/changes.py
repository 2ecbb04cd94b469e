"""What could be changed about claims, or about what is in use, so that they may fit."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from dra_driver.logic import (
    capacities,
    constraints,
    demand,
    device_hurdles,
    hindrances,
    hurdles,
    reservations,
    selection,
    snapshots,
    usage,
)
from dra_driver.model import claims, nodes, taints

MAX_SETS = 20
"""Sets of parts of a selector that are tried for one request."""

Part = tuple[int, str]
"""The number of a selector, and the text of one of its parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A node that does not serve the plan as it is: where each device falls, for each want."""

    node: nodes.Node
    falls: Mapping[demand.Want, Sequence[device_hurdles.Fall]]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What is asked for, and what is in use."""

    plan: demand.Plan
    in_use: usage.InUse

    def spot(self, node: nodes.Node, snapshot: snapshots.Snapshot) -> Spot:
        """Where the devices that a node sees fall."""
        seen = snapshot.inventory.seen(node)
        free = reservations.Reservations(seen.pools, self.in_use)
        return Spot(
            node,
            {
                want: device_hurdles.falls(
                    want, seen.candidates, node=node, free=free, holders=snapshot.holders
                )
                for item in self.plan
                for want in item.wants
            },
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change in words, and what it makes of a state.

    Of two changes with the same `subject` the second undoes the first. `size` is of how many parts
    it consists, `lost` how many things that were asked for it gives up, `parts` are those parts of
    a selector that it drops.
    """

    told: str
    subject: tuple[str, ...]
    make: Callable[[State], State]
    size: int = 1
    lost: int = 1
    parts: frozenset[Part] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is to be changed: a plan that does not fit on these nodes."""

    plan: demand.Plan
    spots: Sequence[Spot]
    snapshot: snapshots.Snapshot

    @property
    def wants(self) -> Iterator[demand.Want]:
        """All requests and alternatives."""
        for item in self.plan:
            yield from item.wants

    def falls(self, want: demand.Want) -> Iterator[device_hurdles.Fall]:
        """Where the devices of all nodes fall."""
        for spot in self.spots:
            yield from spot.falls[want]

    @property
    def holders(self) -> tuple[snapshots.Holder, ...]:
        """The claims that have devices which are in the way, by namespace and name."""
        listed = [holder for want in self.wants for f in self.falls(want) for holder in f.holders]
        held = {(one.namespace, one.claim): one for one in listed}
        return tuple(one for _, one in sorted(held.items()))


def selectors(setting: Setting) -> Iterator[Change]:
    """Without those parts of a request's selectors that some device does not meet; fewest first."""
    for want in setting.wants:
        sets: dict[tuple[Part, ...], device_hurdles.Fall] = {}
        for fall in setting.falls(want):
            if fall.kind is hurdles.Kind.SELECTOR:
                sets.setdefault(_failing(want, fall), fall)
        for failing, fall in sorted(sets.items(), key=lambda e: (len(e[0]), e[0]))[:MAX_SETS]:
            left = _without(want, fall, failing)
            if left is None:
                continue
            parts = " and ".join(f"`{source}`" for _, source in failing)
            values = ", ".join(filter(None, fall.values))
            told = f" ({fall.candidate.id}: {values})" if values else ""
            yield Change(
                f'drop {parts} from request "{want.name}"{told}',
                ("selectors", *_key(want)),
                _edited(want, selectors=left),
                size=len(failing),
                lost=len(failing),
                parts=frozenset(failing),
            )


def holders(setting: Setting) -> Iterator[Change]:
    """Without one of the claims that have devices."""
    for one in setting.holders:
        yield freed([one])


def freed(ended: Sequence[snapshots.Holder]) -> Change:
    """Without some claims that have devices."""
    removed = [one.allocation for one in ended]

    def make(state: State) -> State:
        return State(state.plan, state.in_use.changed(removed=removed))

    told = " and ".join(map(_end, ended))
    names = sorted(f"{one.namespace}/{one.claim}" for one in ended)
    return Change(f"free once {told}", ("holder", *names), make, len(ended), len(ended))


def device_taints(setting: Setting) -> Iterator[Change]:
    """With a toleration of a taint that devices have."""
    for want in setting.wants:
        keys: dict[str, str] = {}
        for fall in setting.falls(want):
            if fall.kind is hurdles.Kind.TAINT:
                lost = f"{fall.candidate.id.driver}/{hindrances.GPU_LOST}"
                keys |= {
                    taint.key: f"{taint}"
                    for taint in fall.candidate.taints
                    if taint.blocks and taint.key != lost  # To put up with that helps nobody.
                }
        for key, shown in sorted(keys.items()):
            with_effect = ", with its effect written out" if taints.NO_EXECUTE in shown else ""
            yield Change(
                f'tolerate the device taint {shown} in request "{want.name}"{with_effect}',
                ("taint", *_key(want), key),
                _tolerating(want, taints.Toleration(key, "Exists")),
            )


def less_capacity(setting: Setting) -> Iterator[Change]:
    """With less of a capacity."""
    for want in setting.wants:
        for name in sorted(want.capacity):
            there = any(
                capacities.has(fall.candidate.device, fall.candidate.id.driver, name)
                for fall in setting.falls(want)
            )
            yield Change(
                f"ask for {f'less than {want.capacity[name]}' if there else 'nothing'} of capacity "
                f'{name} in request "{want.name}"',
                ("capacity", *_key(want), name),
                _with_less(want, name),
            )


def claim_constraints(setting: Setting) -> Iterator[Change]:
    """Without a constraint of a claim."""
    for item in setting.plan:
        for index, constraint in enumerate(item.claim.constraints):
            name = constraints.Attribute(constraint)
            yield Change(
                f"drop {name} from claim {item.claim.ref.name}",
                ("constraint", item.claim.ref.uid, f"{index}"),
                _unbound(item.claim.ref.uid, constraint),
            )


def counts(setting: Setting) -> Iterator[Change]:
    """With fewer devices, the most first; in place of All with those that are free."""
    for want in setting.wants:
        if want.spec.mode == claims.ALL and (free := _most_free(want, setting)):
            spec = dataclasses.replace(want.spec, mode=claims.EXACT_COUNT, count=free)
            yield Change(
                f'ask for {free} rather than All in request "{want.name}"',
                ("count", *_key(want)),
                _edited(want, spec=spec),
            )
        wanted = want.spec.count or 1
        for count in range(wanted - 1, 0, -1):
            yield Change(
                f'ask for {count} rather than {want.spec.count} in request "{want.name}"',
                ("count", *_key(want)),
                _edited(want, spec=dataclasses.replace(want.spec, count=count)),
                lost=wanted - count,
            )


def classes(setting: Setting) -> Iterator[Change]:
    """With another class of devices of the same driver; that with the shortest name first."""
    by_length = sorted(setting.snapshot.classes.items(), key=lambda e: (len(e[0]), e[0]))
    for want in setting.wants:
        old, drivers = want.device_class.name, _drivers(want, setting)
        for name, device_class in by_length:
            if name == old:
                continue
            try:
                compiled = tuple(map(selection.compile, device_class.selectors))
            except selection.CompileError:
                continue
            if not _has_devices(compiled, drivers, want, setting):
                continue
            yield Change(
                f'ask for class {name} rather than {old} in request "{want.name}"',
                ("class", *_key(want)),
                _edited(want, device_class=device_class, class_selectors=compiled),
            )


KINDS: tuple[Callable[[Setting], Iterator[Change]], ...] = (
    selectors, holders, device_taints, less_capacity, claim_constraints, counts, classes,
)  # fmt: skip
"""What leaves most as it is comes first."""


def beyond(want: demand.Want, fall: device_hurdles.Fall) -> tuple[object, ...]:
    """What stops a device besides where it falls: hurdles that it has not come to."""
    failing: tuple[object, ...] = fall.failing
    if len(want.selectors) > 1 or fall.kind is hurdles.Kind.CLASS:
        failing = (*failing, *_failing(want, fall))
    return (failing, fall.values, tuple(map(str, fall.candidate.taints)), fall.is_held)


def _most_free(want: demand.Want, setting: Setting) -> int:
    """The free devices of the node that has most of them."""
    counted = (
        sum(fall.kind is hurdles.Kind.FREE for fall in spot.falls[want]) for spot in setting.spots
    )
    return max(counted, default=0)


def _drivers(want: demand.Want, setting: Setting) -> set[str]:
    """The drivers whose devices the request's class does not turn away by the driver's name."""
    return {
        candidate.id.driver
        for candidate in (fall.candidate for fall in setting.falls(want))
        if not any(
            part.outcome is False and {path for path, _ in part.reads} == {"device.driver"}
            for selector in want.class_selectors
            for part in selector.explain(candidate.device, candidate.id.driver)
        )
    }


def _has_devices(
    compiled: Sequence[selection.Selector],
    drivers: Collection[str],
    want: demand.Want,
    setting: Setting,
) -> bool:
    for candidate in (fall.candidate for fall in setting.falls(want)):
        try:
            if candidate.id.driver in drivers and all(
                one.matches(candidate.device, candidate.id.driver) for one in compiled
            ):
                return True
        except selection.EvaluationError:
            continue
    return False


def _end(one: snapshots.Holder) -> str:
    if not one.pods:
        return f"claim {one.namespace}/{one.claim} is deleted (no pod uses it)"
    plural = len(one.pods) > 1
    return f"{one.users} end{'' if plural else 's'} (claim {one.namespace}/{one.claim})"


def _key(want: demand.Want) -> tuple[str, str]:
    return want.claim.ref.uid, want.name


def _edited(want: demand.Want, **fields: object) -> Callable[[State], State]:
    return _changed(want, lambda found: dataclasses.replace(found, **fields))  # type: ignore[arg-type]


def _tolerating(want: demand.Want, toleration: taints.Toleration) -> Callable[[State], State]:
    return _changed(
        want,
        lambda found: dataclasses.replace(found, tolerations=(*found.tolerations, toleration)),
    )


def _with_less(want: demand.Want, name: str) -> Callable[[State], State]:
    def edit(found: demand.Want) -> demand.Want:
        left = {key: amount for key, amount in found.capacity.items() if key != name}
        return dataclasses.replace(found, capacity=left)

    return _changed(want, edit)


def _changed(
    want: demand.Want, edit: Callable[[demand.Want], demand.Want]
) -> Callable[[State], State]:
    """With a request edited, whatever was edited about it before."""

    def make(state: State) -> State:
        plan = tuple(
            dataclasses.replace(
                item,
                requests=tuple(
                    tuple(edit(one) if _key(one) == _key(want) else one for one in alternatives)
                    for alternatives in item.requests
                ),
            )
            for item in state.plan
        )
        return State(plan, state.in_use)

    return make


def _unbound(uid: claims.ClaimUid, constraint: claims.Constraint) -> Callable[[State], State]:
    def make(state: State) -> State:
        plan = tuple(
            dataclasses.replace(item, claim=_without_constraint(item.claim, constraint))
            if item.claim.ref.uid == uid
            else item
            for item in state.plan
        )
        return State(plan, state.in_use)

    return make


def _without_constraint(
    claim: claims.ResourceClaim, constraint: claims.Constraint
) -> claims.ResourceClaim:
    left = tuple(one for one in claim.constraints if one is not constraint)
    return dataclasses.replace(claim, constraints=left)


def _failing(want: demand.Want, fall: device_hurdles.Fall) -> tuple[Part, ...]:
    candidate = fall.candidate
    return tuple(
        (index, part.source)
        for index, selector in enumerate(want.selectors)
        for part in selector.explain(candidate.device, candidate.id.driver)
        if part.outcome is not True
    )


def _without(
    want: demand.Want, fall: device_hurdles.Fall, failing: Sequence[Part]
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
