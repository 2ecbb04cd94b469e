"""Why a node cannot serve claims: which request is short, and where each device falls.

Worked out after a search has failed, for each device on its own. That tells almost always what is
wrong; what only shows in combination (constraints, requests that compete) is told as such.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from dra_driver.logic.scheduling import candidacy, demand, hurdles, pools, reservations
from dra_driver.model import claims, nodes


@dataclasses.dataclass(frozen=True, slots=True)
class Shortfall:
    """A request that got too few devices: how many were seen, and where they fell.

    `wanted` is None for allocation mode All. `fallen` has the hurdles in the order of the checks.
    """

    claim: claims.ClaimRef
    request: str
    wanted: int | None
    seen: int
    fallen: tuple[tuple[hurdles.Hurdle, int], ...]
    defects: tuple[str, ...] = ()
    """Pools that the node sees and cannot use, with the reason."""


def diagnose(
    plan: demand.Plan,
    *,
    node: nodes.Node,
    seen: Sequence[pools.Pool],
    free: reservations.Reservations,
) -> tuple[Shortfall, ...]:
    """The requests that are short by themselves; if none is, all of them.

    `free` is what is in use, with nothing taken on top.
    """
    offered = [c for pool in seen if not pool.defect for c in pool.candidates]
    defects = tuple(f"pool {pool} is {pool.defect}" for pool in seen if pool.defect)
    found = []
    for item in plan:
        for alternatives in item.requests:
            short = [
                _shortfall(want, [_hurdle(want, c, node, free) for c in offered])
                for want in alternatives
            ]
            found.append([dataclasses.replace(entry, defects=defects) for entry in short])
    alone = [short for short in found if all(map(_is_short, short))]
    return tuple(entry for short in alone or found for entry in short)


def describe(fallen: Iterable[tuple[hurdles.Hurdle, int]]) -> str:
    """`6 not matched by class "x", 2 in use`."""
    return ", ".join(f"{count} {hurdle}" for hurdle, count in fallen)


def _hurdle(
    want: demand.Want,
    candidate: candidacy.Candidate,
    node: nodes.Node,
    free: reservations.Reservations,
) -> hurdles.Hurdle:
    try:
        fixed = hurdles.unselected(want, candidate, node)
    except demand.Aborted:
        # The search skips devices in use before it evaluates; only such a one can get here.
        return hurdles.Hurdle(hurdles.Kind.IN_USE)
    return fixed or of_selected(want, candidate, free) or _TOGETHER


def of_selected(
    want: demand.Want, candidate: candidacy.Candidate, free: reservations.Reservations
) -> hurdles.Hurdle | None:
    """Where a device falls that the selectors and the node let through; None: nowhere, alone."""
    taken = hurdles.share(want, candidate)
    if isinstance(taken, hurdles.Hurdle):
        return taken
    refusal = free.refusal(want, candidate, taken)
    blocked = hurdles.unusable(want, candidate)
    if blocked is not None and (refusal is None or refusal[0] is reservations.Refusal.COUNTERS):
        return blocked
    if refusal is None:
        return None
    kind, detail = refusal
    return hurdles.Hurdle(KINDS[kind], f"({detail})" if detail else "")


def _shortfall(want: demand.Want, fallen: Sequence[hurdles.Hurdle]) -> Shortfall:
    if _is_too_few(want.spec.count, fallen):
        fallen = [_FREE if hurdle == _TOGETHER else hurdle for hurdle in fallen]
    order = list(hurdles.Kind)
    counted = sorted(
        collections.Counter(fallen).items(),
        key=lambda entry: (order.index(entry[0].kind), entry[0].detail),
    )
    return Shortfall(
        claim=want.claim.ref,
        request=want.name,
        wanted=want.spec.count,
        seen=len(fallen),
        fallen=tuple(counted),
    )


def _is_too_few(wanted: int | None, fallen: Sequence[hurdles.Hurdle]) -> bool:
    if wanted is not None:
        return fallen.count(_TOGETHER) < wanted
    return any(hurdle.kind in hurdles.BLOCKING_ALL for hurdle in fallen)


def _is_short(entry: Shortfall) -> bool:
    return all(hurdle != _TOGETHER for hurdle, _ in entry.fallen)


_FREE = hurdles.Hurdle(hurdles.Kind.FREE)
_TOGETHER = hurdles.Hurdle(hurdles.Kind.TOGETHER)
KINDS = {
    reservations.Refusal.IN_USE: hurdles.Kind.IN_USE,
    reservations.Refusal.CAPACITY: hurdles.Kind.SHARES,
    reservations.Refusal.COUNTERS: hurdles.Kind.COUNTERS,
}
