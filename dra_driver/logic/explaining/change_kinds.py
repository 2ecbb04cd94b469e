"""The kinds of change that may let claims fit: what leaves most as it is comes first."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dra_driver.logic.cel import selection
from dra_driver.logic.explaining import changes, device_hurdles
from dra_driver.logic.offering import classes as own_classes
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import capacities, constraints, demand, hurdles
from dra_driver.model import claims, health, quantities, sharing, taints

MAX_SETS = 20
"""Sets of parts of a selector that are tried for one request."""


def selectors(setting: changes.Setting) -> Iterator[changes.Change]:
    """Without those parts of a request's selectors that some device does not meet; fewest first."""
    for want in setting.wants:
        sets: dict[tuple[changes.Part, ...], device_hurdles.Fall] = {}
        for fall in setting.falls(want):
            if fall.kind is hurdles.Kind.SELECTOR:
                sets.setdefault(changes.failing(want, fall), fall)
        for failing, fall in sorted(sets.items(), key=lambda e: (len(e[0]), e[0]))[:MAX_SETS]:
            left = _without(want, fall, failing)
            if left is None:
                continue
            parts = " and ".join(f"`{source}`" for _, source in failing)
            values = ", ".join(filter(None, fall.values))
            told = f" ({fall.candidate.id}: {values})" if values else ""
            yield changes.Change(
                f'drop {parts} from request "{want.name}"{told}',
                ("selectors", *_key(want)),
                _edited(want, selectors=left),
                size=len(failing),
                lost=len(failing),
                parts=frozenset(failing),
            )


def holders(setting: changes.Setting) -> Iterator[changes.Change]:
    """Without one of the claims that have devices."""
    for one in setting.holders:
        yield freed([one])


def freed(ended: Sequence[snapshots.Holder]) -> changes.Change:
    """Without some claims that have devices."""
    removed = [one.allocation for one in ended]

    def make(state: changes.State) -> changes.State:
        return changes.State(state.plan, state.in_use.changed(removed=removed))

    told = " and ".join(map(_end, ended))
    names = sorted(f"{one.namespace}/{one.claim}" for one in ended)
    return changes.Change(f"free once {told}", ("holder", *names), make, len(ended), len(ended))


def device_taints(setting: changes.Setting) -> Iterator[changes.Change]:
    """With a toleration of a taint that devices have."""
    for want in setting.wants:
        keys: dict[str, str] = {}
        for fall in setting.falls(want):
            if fall.kind is hurdles.Kind.TAINT:
                lost = f"{fall.candidate.id.driver}/{health.Key.GPU_LOST}"
                keys |= {
                    taint.key: f"{taint}"
                    for taint in fall.candidate.taints
                    if taint.blocks and taint.key != lost  # To put up with that helps nobody.
                }
        for key, shown in sorted(keys.items()):
            with_effect = ", with its effect written out" if taints.NO_EXECUTE in shown else ""
            yield changes.Change(
                f'tolerate the device taint {shown} in request "{want.name}"{with_effect}',
                ("taint", *_key(want), key),
                _tolerating(want, taints.Toleration(key, "Exists")),
            )


_AT_ONCE = 2
"""Changes that are tried together: what lacks more names than that is not helped by any."""


def less_capacity(setting: changes.Setting) -> Iterator[changes.Change]:
    """With as much of a capacity as the device has that has most left; else with none of it."""
    for want in setting.wants:
        most = _most_left(want, setting)
        found = (fall.candidate for fall in setting.falls(want))
        names = capacities.Names(((one.device, one.id.driver) for one in found), want.behaviour)
        if sum(name not in names for name in want.capacity) > _AT_ONCE:
            continue
        for name in sorted({*want.capacity, *most}):
            subject = ("capacity", *_key(want), name)
            wanted, place = want.capacity.get(name), f'capacity {name} in request "{want.name}"'
            if name in most:
                left, whole = most[name]
                without = f"without an amount it asks for {whole}"
                rather = f"rather than {wanted}" if wanted is not None else without
                yield changes.Change(
                    f"ask for at most {left} of {place} ({rather})",
                    subject,
                    _with_capacity(want, name, left),
                )
            if wanted is not None:
                amount = f"less than {wanted}" if name in names else "nothing"
                yield changes.Change(
                    f"ask for {amount} of {place}", subject, _with_capacity(want, name, None)
                )


def claim_constraints(setting: changes.Setting) -> Iterator[changes.Change]:
    """Without a constraint of a claim."""
    for item in setting.plan:
        for index, constraint in enumerate(item.claim.constraints):
            name = constraints.Attribute(constraint)
            yield changes.Change(
                f"drop {name} from claim {item.claim.ref.name}",
                ("constraint", item.claim.ref.uid, f"{index}"),
                _unbound(item.claim.ref.uid, constraint),
            )


def counts(setting: changes.Setting) -> Iterator[changes.Change]:
    """With fewer devices, the most first; in place of All with those that are free."""
    for want in setting.wants:
        if want.spec.mode == claims.ALL and (free := _most_free(want, setting)):
            spec = dataclasses.replace(want.spec, mode=claims.EXACT_COUNT, count=free)
            yield changes.Change(
                f'ask for {free} rather than All in request "{want.name}"',
                ("count", *_key(want)),
                _edited(want, spec=spec),
            )
        wanted = want.spec.count or 1
        for count in range(wanted - 1, 0, -1):
            yield changes.Change(
                f'ask for {count} rather than {want.spec.count} in request "{want.name}"',
                ("count", *_key(want)),
                _edited(want, spec=dataclasses.replace(want.spec, count=count)),
                lost=wanted - count,
            )


def classes(setting: changes.Setting) -> Iterator[changes.Change]:
    """With another class of devices of the same driver; that with the shortest name first.

    What is for virtual machines helps no container, and the other way round.
    """
    by_length = sorted(setting.snapshot.classes.items(), key=lambda e: (len(e[0]), e[0]))
    for want in setting.wants:
        old, drivers = want.device_class.name, _drivers(want, setting)
        is_vfio = _wants_vfio(want, setting)
        for name, device_class in by_length:
            if name == old:
                continue
            try:
                compiled = tuple(map(selection.compile, device_class.selectors))
            except selection.CompileError:
                continue
            seen = (fall.candidate for fall in setting.falls(want))
            if not any(
                one.id.driver in drivers
                and hurdles.all_hold(compiled, one)
                and device_hurdles.is_vfio(one) is is_vfio
                for one in seen
            ):
                continue
            yield changes.Change(
                f'ask for class {name} rather than {old} in request "{want.name}"',
                ("class", *_key(want)),
                _edited(want, device_class=device_class, class_selectors=compiled),
            )


KINDS: tuple[Callable[[changes.Setting], Iterator[changes.Change]], ...] = (
    selectors, holders, device_taints, less_capacity, claim_constraints, counts, classes,
)  # fmt: skip
"""What leaves most as it is comes first."""


def _most_left(
    want: demand.Want, setting: changes.Setting
) -> dict[str, tuple[quantities.Quantity, quantities.Quantity]]:
    """The most that is left of each capacity of which no device has enough, and what is wanted.

    By the name that the request has for it, or else the device; none where nothing is left.
    """
    found: dict[str, tuple[quantities.Quantity, quantities.Quantity]] = {}
    for fall in setting.falls(want):
        if fall.kind not in (hurdles.Kind.SHARES, hurdles.Kind.CAPACITY):
            continue
        device, driver = fall.candidate.device, fall.candidate.id.driver
        used = setting.snapshot.in_use.device(fall.candidate.id).consumed
        for name, left, wanted in capacities.short(
            device, driver, want.capacity, used, want.behaviour
        ):
            if left.exact > 0 and (name not in found or left > found[name][0]):
                found[name] = left, wanted
    return found


def _most_free(want: demand.Want, setting: changes.Setting) -> int:
    """The free devices of the node that has most of them."""
    counted = (
        sum(fall.kind is hurdles.Kind.FREE for fall in spot.falls[want]) for spot in setting.spots
    )
    return max(counted, default=0)


def _wants_vfio(want: demand.Want, setting: changes.Setting) -> bool:
    """Whether the request's class is one for virtual machines; by its name where it has none."""
    seen = (fall.candidate for fall in setting.falls(want))
    found = [one for one in seen if hurdles.all_hold(want.class_selectors, one)]
    if found:
        return all(map(device_hurdles.is_vfio, found))
    by_name = own_classes.types(snapshots.DRIVER).get(want.device_class.name)
    return by_name is sharing.DeviceType.VFIO


def _drivers(want: demand.Want, setting: changes.Setting) -> set[str]:
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


def _end(one: snapshots.Holder) -> str:
    if not one.pods:
        return f"claim {one.namespace}/{one.claim} is deleted (no pod uses it)"
    plural = len(one.pods) > 1
    return f"{one.users} end{'' if plural else 's'} (claim {one.namespace}/{one.claim})"


def _key(want: demand.Want) -> tuple[str, str]:
    return want.claim.ref.uid, want.name


def _edited(want: demand.Want, **fields: object) -> Callable[[changes.State], changes.State]:
    return _changed(want, lambda found: dataclasses.replace(found, **fields))  # type: ignore[arg-type]


def _tolerating(
    want: demand.Want, toleration: taints.Toleration
) -> Callable[[changes.State], changes.State]:
    return _changed(
        want,
        lambda found: dataclasses.replace(found, tolerations=(*found.tolerations, toleration)),
    )


def _with_capacity(
    want: demand.Want, name: str, amount: quantities.Quantity | None
) -> Callable[[changes.State], changes.State]:
    def edit(found: demand.Want) -> demand.Want:
        left = {key: value for key, value in found.capacity.items() if key != name}
        given = {name: amount} if amount is not None else {}
        return dataclasses.replace(found, capacity={**left, **given})

    return _changed(want, edit)


def _changed(
    want: demand.Want, edit: Callable[[demand.Want], demand.Want]
) -> Callable[[changes.State], changes.State]:
    """With a request edited, whatever was edited about it before."""

    def make(state: changes.State) -> changes.State:
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
        return changes.State(plan, state.in_use)

    return make


def _unbound(
    uid: claims.ClaimUid, constraint: claims.Constraint
) -> Callable[[changes.State], changes.State]:
    def make(state: changes.State) -> changes.State:
        plan = tuple(
            dataclasses.replace(item, claim=_without_constraint(item.claim, constraint))
            if item.claim.ref.uid == uid
            else item
            for item in state.plan
        )
        return changes.State(plan, state.in_use)

    return make


def _without_constraint(
    claim: claims.ResourceClaim, constraint: claims.Constraint
) -> claims.ResourceClaim:
    left = tuple(one for one in claim.constraints if one is not constraint)
    return dataclasses.replace(claim, constraints=left)


def _without(
    want: demand.Want, fall: device_hurdles.Fall, failing: Sequence[changes.Part]
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
