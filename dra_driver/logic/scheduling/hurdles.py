"""Why one device does not serve one request, seen on its own: checks with their reasons."""

import dataclasses
import enum
from collections.abc import Iterable, Sequence

from dra_driver.logic.cel import selection
from dra_driver.logic.scheduling import candidacy, capacities, demand
from dra_driver.model import nodes, taints


class Kind(enum.Enum):
    """Where a device falls; the value is how a message says it."""

    CLASS = "not matched by class"
    SELECTOR = "not matched by selector"
    NODE = "not on this node"
    CAPACITY = "too small"
    IN_USE = "in use"
    SHARES = "too full"
    TAINT = "tainted"
    COUNTERS = "no room beside what is in use"
    UNSUPPORTED = "not usable here"
    FREE = "free, which is too few"
    TOGETHER = "usable alone, but not together with the rest of the claim"


BLOCKING_ALL = frozenset({Kind.IN_USE, Kind.TAINT, Kind.COUNTERS, Kind.UNSUPPORTED})
"""Of one such device a request for All gets none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Hurdle:
    """A reason, and what exactly: the class, the expression, the taint."""

    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.kind.value}{' ' if self.detail else ''}{self.detail}"


def unselected(
    want: demand.Want, candidate: candidacy.Candidate, node: nodes.Node
) -> Hurdle | None:
    """Why the request does not mean this device: class, selectors, node.

    Raises:
        demand.Aborted: an expression failed on the device.
    """
    where = f"class {want.spec.device_class}"
    if _first_false(want.class_selectors, want, candidate, where) is not None:
        return Hurdle(Kind.CLASS, f'"{want.spec.device_class}"')
    failed = _first_false(want.selectors, want, candidate, "its selector")
    if failed is not None:
        return Hurdle(Kind.SELECTOR, f'"{selection.shorten(failed.expression)}"')
    return None if candidate.is_on(node) else Hurdle(Kind.NODE)


def share(want: demand.Want, candidate: candidacy.Candidate) -> capacities.Taken | Hurdle:
    """What the request takes of each capacity of a device; empty where it takes the whole device.

    A hurdle where that is more than the device has even if nobody uses it.
    """
    if not candidate.shareable and not want.capacity:
        return _WHOLE
    try:
        taken = capacities.consumption(
            candidate.device, candidate.id.driver, want.capacity, want.behaviour
        )
    except capacities.Misfit as misfit:
        return Hurdle(Kind.CAPACITY, f"({misfit})")
    return taken if candidate.shareable else _WHOLE


def unusable(want: demand.Want, candidate: candidacy.Candidate) -> Hurdle | None:
    """Why a device that is meant cannot be had all the same: a taint, a field unknown here."""
    if candidate.taints and (found := untolerated(want, candidate)):
        return Hurdle(Kind.TAINT, f"{found[0]}")
    if candidate.unsupported:
        fields = ", ".join(candidate.unsupported)
        return Hurdle(Kind.UNSUPPORTED, f"(the embedded scheduler does not know {fields})")
    return None


def untolerated(want: demand.Want, candidate: candidacy.Candidate) -> tuple[taints.Taint, ...]:
    """The taints of a device that keep the request away."""
    return tuple(
        taint
        for taint in candidate.taints
        if taint.blocks and not any(toleration.covers(taint) for toleration in want.tolerations)
    )


def all_hold(selectors: Iterable[selection.Selector], candidate: candidacy.Candidate) -> bool:
    """Whether expressions hold for a device; one that fails on it does not."""
    try:
        return all(one.matches(candidate.device, candidate.id.driver) for one in selectors)
    except selection.EvaluationError:
        return False


def _first_false(
    selectors: Sequence[selection.Selector],
    want: demand.Want,
    candidate: candidacy.Candidate,
    where: str,
) -> selection.Selector | None:
    for selector in selectors:
        try:
            if not selector.matches(candidate.device, candidate.id.driver):
                return selector
        except selection.EvaluationError as error:
            told = f"{want}, {where}, device {candidate.id}: {error}"
            raise demand.Aborted(told, candidate.id.driver) from error
    return None


_WHOLE = capacities.Taken({})
