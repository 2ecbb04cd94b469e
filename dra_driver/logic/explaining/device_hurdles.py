"""Where each device that a node sees falls for a request, grouped, with the values that decide."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from dra_driver.logic.cel import selection
from dra_driver.logic.explaining import comparisons
from dra_driver.logic.health import prospects
from dra_driver.logic.picturing import fitting, snapshots
from dra_driver.logic.scheduling import candidacy, demand, hurdles, reservations, shortfalls
from dra_driver.model import nodes, sharing

_HELD = frozenset(shortfalls.KINDS.values())
_COUNTERS = hurdles.Kind.COUNTERS


@dataclasses.dataclass(frozen=True, slots=True)
class Fall:
    """Where one device falls, seen alone; with `Kind.FREE` nowhere.

    `failing` are the parts of the selector that do not hold, `values` says for each of them what
    it met; of a taint, since when it is there and what can be done. `is_held` tells of any device
    whether claims have something of it, `holders` only where they are what it falls at.
    """

    candidate: candidacy.Candidate
    kind: hurdles.Kind
    detail: str = ""
    failing: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    holders: tuple[snapshots.Holder, ...] = ()
    is_held: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Devices that fall at the same hurdle. `values` has each combination of values once."""

    count: int
    hurdle: str
    reason: str
    values: tuple[str, ...]
    devices: tuple[str, ...]
    holders: tuple[str, ...]


def falls(
    want: demand.Want,
    candidates: Iterable[candidacy.Candidate],
    *,
    node: nodes.Node,
    free: reservations.Reservations,
    holders: snapshots.Holders,
) -> tuple[Fall, ...]:
    """Where each device falls, in publishing order; `free` has nothing taken on top."""
    listed = tuple(candidates)
    found = []
    for candidate in listed:
        fall = _fall(want, candidate, node, free)
        if candidate.id in holders:
            fall = dataclasses.replace(fall, is_held=True)
        if fall.kind in _HELD:
            rivals = _rivals(candidate, listed, holders) if fall.kind is _COUNTERS else (candidate,)
            having = dict.fromkeys(one for rival in rivals for one in holders.get(rival.id, ()))
            values = fall.values or _other_kind(candidate, rivals)
            fall = dataclasses.replace(fall, holders=tuple(having), values=values)
        found.append(fall)
    return tuple(found)


def grouped(fallen: Sequence[Fall]) -> tuple[Group, ...]:
    """Equal falls together, in the order in which hurdles are checked."""
    order = list(hurdles.Kind)
    groups: dict[tuple[hurdles.Kind, str], list[Fall]] = collections.defaultdict(list)
    for fall in fallen:
        groups[fall.kind, " && ".join(fall.failing) or fall.detail].append(fall)
    return tuple(
        Group(
            count=len(members),
            hurdle=_WORDS.get(kind, kind.value),
            reason=reason,
            values=_values(members),
            devices=tuple(f"{item.candidate.id}" for item in members),
            holders=tuple(dict.fromkeys(f"{one}" for item in members for one in item.holders)),
        )
        for (kind, reason), members in sorted(
            groups.items(), key=lambda entry: (order.index(entry[0][0]), entry[0][1])
        )
    )


_WORDS = {hurdles.Kind.FREE: "free"}


def _fall(
    want: demand.Want,
    candidate: candidacy.Candidate,
    node: nodes.Node,
    free: reservations.Reservations,
) -> Fall:
    for selectors, kind in (
        (want.class_selectors, hurdles.Kind.CLASS),
        (want.selectors, hurdles.Kind.SELECTOR),
    ):
        for selector in selectors:
            if not hurdles.all_hold([selector], candidate):
                return _unselected(selector, candidate, kind)
    if not candidate.is_on(node):
        return Fall(candidate, hurdles.Kind.NODE)
    hurdle = shortfalls.of_selected(want, candidate, free)
    if hurdle is None:
        return Fall(candidate, hurdles.Kind.FREE)
    if hurdle.kind is hurdles.Kind.TAINT:
        return Fall(candidate, hurdle.kind, hurdle.detail, values=(_prospect(want, candidate),))
    return Fall(candidate, hurdle.kind, hurdle.detail.removeprefix("(").removesuffix(")"))


def _prospect(want: demand.Want, candidate: candidacy.Candidate) -> str:
    """Since when the taint is there that keeps the request away, and what can be done."""
    first, *others = hurdles.untolerated(want, candidate)
    told = f"tolerate it, or {prospects.awaited(first, candidate.id.driver)}"
    also = [f"also tainted {', '.join(map(str, others))}"] if others else []
    return "; ".join(filter(None, (prospects.since(first).lstrip(), told, *also)))


def _unselected(
    selector: selection.Selector, candidate: candidacy.Candidate, kind: hurdles.Kind
) -> Fall:
    parts = selector.explain(candidate.device, candidate.id.driver)
    # An error beside a false part does not count: `&&` takes the false one.
    failing = [part for part in parts if part.outcome is False]
    failing = failing or [part for part in parts if part.outcome is not True]
    sources = tuple(
        part.source if part.outcome is False else f"{part.source}: {part.outcome}"
        for part in failing
    )
    values = dict.fromkeys(comparisons.told(part.source, part.reads) for part in failing)
    return Fall(candidate, kind, "", sources or (selector.expression,), tuple(values))


def _rivals(
    candidate: candidacy.Candidate,
    listed: Sequence[candidacy.Candidate],
    holders: snapshots.Holders,
) -> Sequence[candidacy.Candidate]:
    """What is in use and takes from the same counters."""
    return [
        other
        for other in listed
        if other.id in holders
        and other.pool == candidate.pool
        and other.consumes.keys() & candidate.consumes.keys()
    ]


def _other_kind(
    candidate: candidacy.Candidate, rivals: Sequence[candidacy.Candidate]
) -> tuple[str, ...]:
    """What of the same card is in use by a virtual machine while this is not for one, or so."""
    names = [one.id.device for one in rivals if is_vfio(one) is not is_vfio(candidate)]
    if not names:
        return ()
    draws = "draw" if len(names) > 1 else "draws"
    return (f"{', '.join(names)} {draws} on the same counters",)


def is_vfio(candidate: candidacy.Candidate) -> bool:
    """Whether it is for virtual machines, and of no use in a container."""
    return fitting.attribute(candidate, "type") == sharing.DeviceType.VFIO.value


def _values(members: Sequence[Fall]) -> tuple[str, ...]:
    counted = collections.Counter(
        ", ".join(text for text in item.values if text) for item in members
    )
    return tuple(
        f"{text} ({count}x)" if count > 1 else text for text, count in counted.items() if text
    )
