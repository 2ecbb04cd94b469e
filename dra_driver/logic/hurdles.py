"""Why one device does not serve one request, seen on its own: checks with their reasons."""

import dataclasses
import enum
from collections.abc import Sequence

from dra_driver.logic import demand, pools, selection
from dra_driver.model import nodes, quantities


class Kind(enum.Enum):
    """Where a device falls; the value is how a message says it."""

    CLASS = "not matched by class"
    SELECTOR = "not matched by selector"
    NODE = "not on this node"
    CAPACITY = "too small"
    IN_USE = "in use"
    TAINT = "tainted"
    COUNTERS = "no room beside what is in use"
    UNSUPPORTED = "not usable here"
    FREE = "free, which is too few"
    TOGETHER = "usable alone, but not together with the rest of the claim"


@dataclasses.dataclass(frozen=True, slots=True)
class Hurdle:
    """A reason, and what exactly: the class, the expression, the taint."""

    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.kind.value}{' ' if self.detail else ''}{self.detail}"


def unselected(want: demand.Want, candidate: pools.Candidate, node: nodes.Node) -> Hurdle | None:
    """Why the request does not mean this device: class, selectors, node, size.

    Raises:
        demand.Aborted: an expression failed on the device.
    """
    where = f"class {want.spec.device_class}"
    if _first_false(want.class_selectors, want, candidate, where) is not None:
        return Hurdle(Kind.CLASS, f'"{want.spec.device_class}"')
    failed = _first_false(want.selectors, want, candidate, "its selector")
    if failed is not None:
        return Hurdle(Kind.SELECTOR, f'"{selection.shorten(failed.expression)}"')
    if not candidate.is_on(node):
        return Hurdle(Kind.NODE)
    return _too_small(want, candidate)


def unusable(want: demand.Want, candidate: pools.Candidate) -> Hurdle | None:
    """Why a device that is meant cannot be had all the same: a taint, a field unknown here."""
    for taint in candidate.taints:
        if taint.blocks and not any(toleration.covers(taint) for toleration in want.tolerations):
            return Hurdle(Kind.TAINT, f"{taint}")
    if candidate.unsupported:
        fields = ", ".join(candidate.unsupported)
        return Hurdle(Kind.UNSUPPORTED, f"(the embedded scheduler does not know {fields})")
    return None


def _first_false(
    selectors: Sequence[selection.Selector],
    want: demand.Want,
    candidate: pools.Candidate,
    where: str,
) -> selection.Selector | None:
    for selector in selectors:
        try:
            if not selector.matches(candidate.device, candidate.id.driver):
                return selector
        except selection.EvaluationError as error:
            raise demand.Aborted(f"{want}, {where}, device {candidate.id}: {error}") from error
    return None


def _too_small(want: demand.Want, candidate: pools.Candidate) -> Hurdle | None:
    for name, wanted in want.capacity.items():
        offered = _capacity(candidate, name)
        if offered is None:
            return Hurdle(Kind.CAPACITY, f"(no capacity {name})")
        if wanted > offered:
            return Hurdle(Kind.CAPACITY, f"({name} {offered} < {wanted})")
    return None


def _capacity(candidate: pools.Candidate, name: str) -> quantities.Quantity | None:
    domain, _, bare = name.rpartition("/")
    offered = candidate.device.capacity
    if name in offered or domain not in {"", candidate.id.driver}:
        return offered.get(name)
    return offered.get(bare if domain else f"{candidate.id.driver}/{name}")
