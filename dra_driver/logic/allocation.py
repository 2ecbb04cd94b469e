"""Claims of a pod + what a node sees + what is in use -> devices, or why there are none.

Depth-first, the first full solution wins, devices in publishing order: the structured allocator of
Kubernetes 1.36 (`structured/internal/incubating`), without shares of a device (consumable capacity)
and binding conditions. A device that carries such fields is refused and named, never handed out.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from dra_driver.logic import constraints, demand, hurdles, pools, results, shortfalls
from dra_driver.model import claims, nodes, slices

MAX_STEPS = 500_000
"""Devices looked at in one search. The real scheduler stops after 10 seconds instead."""

Shortfalls = tuple[shortfalls.Shortfall, ...]

_BEST_RANK = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Allocations in the order of the claims, or None and what was short.

    `score` is how well `firstAvailable` lists were met; higher is better (kubernetes 1.35).
    """

    allocations: tuple[claims.Allocation, ...] | None
    shortfalls: Shortfalls = ()
    score: int = 0


def allocate(
    plan: demand.Plan,
    *,
    node: nodes.Node,
    inventory: pools.Inventory,
    in_use: pools.InUse,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """Devices on `node` for all claims of a plan together.

    `in_use` are the devices of allocated claims, admin access excepted.

    Raises:
        demand.Aborted: an error that stops the pod on every node: an expression that fails on a
            device, All with an incomplete pool or a broken constraint, more than 32 devices for a
            claim, a search without end.
    """
    seen = inventory.pools(node)
    search = _Search(plan, node, seen, in_use, max_steps)
    if not search.run():
        return Outcome(None, shortfalls.diagnose(plan, node=node, seen=seen, in_use=in_use))
    chosen = search.chosen
    return Outcome(
        tuple(
            results.allocation(item.claim, of_claim, node)
            for item, of_claim in zip(plan, chosen, strict=True)
        ),
        score=sum(
            _BEST_RANK - want.rank
            for of_claim in chosen
            for want in dict.fromkeys(want for want, _ in of_claim)
            if "/" in want.name
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """How far the search is. `want` is None as long as no alternative was picked."""

    claim: int = 0
    request: int = 0
    want: demand.Want | None = None
    taken: int = 0
    start: int = 0


_Choices = Iterator[_Place | None]
"""The places that a choice leads to; each is undone when the next is asked for. None: all done."""


class _Search:
    """One depth-first search. The stack is explicit: a pod may ask for hundreds of devices."""

    def __init__(
        self,
        plan: demand.Plan,
        node: nodes.Node,
        seen: Sequence[pools.Pool],
        in_use: pools.InUse,
        max_steps: int,
    ) -> None:
        self._plan = plan
        self._node = node
        self._pools = seen
        self._candidates = [c for pool in seen if not pool.defect for c in pool.candidates]
        self._in_use = in_use
        self._counters = constraints.Counters(seen, in_use)
        self._constraints = [
            [constraints.Attribute(constraint) for constraint in item.claim.constraints]
            for item in plan
        ]
        self._fixed: dict[tuple[demand.Want, slices.DeviceId], hurdles.Hurdle | None] = {}
        self._taken: set[slices.DeviceId] = set()
        self.chosen: list[list[results.Chosen]] = [[] for _ in plan]
        self._steps = self._max_steps = max_steps
        self._everything = {
            want: self._all_of(want)
            for item in plan
            for want in item.wants
            if want.spec.mode == claims.ALL
        }
        for item in plan:
            self._check_size(item)

    def run(self) -> bool:
        """Search; the solution, if there is one, is in `chosen`."""
        stack = [self._choices(_Place())]
        while stack:
            try:
                place = next(stack[-1])
            except StopIteration:
                stack.pop()
                continue
            if place is None:
                return True
            stack.append(self._choices(place))
        return False

    def _choices(self, place: _Place) -> _Choices:
        if place.claim == len(self._plan):
            yield None
            return
        requests, want = self._plan[place.claim].requests, place.want
        if place.request == len(requests):
            yield _Place(place.claim + 1)
        elif want is None:
            for alternative in requests[place.request]:
                yield dataclasses.replace(place, want=alternative)
        elif self._count(want) == 0:
            return
        elif place.taken == self._count(want):
            yield _Place(place.claim, place.request + 1)
        elif len(self.chosen[place.claim]) + self._count(want) - place.taken <= demand.MAX_RESULTS:
            yield from self._devices(place, want)

    def _devices(self, place: _Place, want: demand.Want) -> _Choices:
        everything = self._everything.get(want)
        offered = self._candidates if everything is None else everything[: place.start + 1]
        for index in range(place.start, len(offered)):
            if self._take(place.claim, want, offered[index]):
                yield dataclasses.replace(place, taken=place.taken + 1, start=index + 1)
                self._put_back(place.claim)

    def _take(self, claim: int, want: demand.Want, candidate: pools.Candidate) -> bool:
        self._steps -= 1
        if self._steps < 0:
            raise demand.Aborted(
                f"{want}: no answer after {self._max_steps} devices on node {self._node.name}: "
                "add a selector that leaves fewer devices, or ask for fewer at once"
            )
        if want.spec.admin_access:
            if any(candidate is other for _, other in self.chosen[claim]):
                return False
        elif candidate.id in self._in_use or candidate.id in self._taken:
            return False
        if self._fixed_hurdle(want, candidate) is not None:
            return False
        if not want.spec.admin_access:
            if not self._counters.take(candidate):
                return False
            self._taken.add(candidate.id)
        self.chosen[claim].append((want, candidate))
        if self._constrain(claim, want, candidate):
            return True
        self._release(claim)
        return False

    def _constrain(self, claim: int, want: demand.Want, candidate: pools.Candidate) -> bool:
        concerned = [item for item in self._constraints[claim] if item.concerns(want.name)]
        for index, constraint in enumerate(concerned):
            if constraint.take(candidate):
                continue
            for earlier in concerned[:index]:
                earlier.put_back()
            if want in self._everything:
                raise demand.Aborted(
                    f"{want}: allocation mode All takes device {candidate.id}, "
                    f"which breaks {constraint}: add a selector, or ask for a count"
                )
            return False
        return True

    def _put_back(self, claim: int) -> None:
        want, _ = self.chosen[claim][-1]
        for constraint in self._constraints[claim]:
            if constraint.concerns(want.name):
                constraint.put_back()
        self._release(claim)

    def _release(self, claim: int) -> None:
        want, candidate = self.chosen[claim].pop()
        if not want.spec.admin_access:
            self._taken.discard(candidate.id)
            self._counters.put_back(candidate)

    def _fixed_hurdle(self, want: demand.Want, candidate: pools.Candidate) -> hurdles.Hurdle | None:
        key = (want, candidate.id)
        if key not in self._fixed:
            self._fixed[key] = hurdles.unselected(want, candidate, self._node) or hurdles.unusable(
                want, candidate
            )
        return self._fixed[key]

    def _count(self, want: demand.Want) -> int:
        everything = self._everything.get(want)
        return len(everything) if everything is not None else want.spec.count or 0

    def _all_of(self, want: demand.Want) -> list[pools.Candidate]:
        for pool in self._pools:
            if pool.defect:
                raise demand.Aborted(
                    f"{want}: allocation mode All needs every pool that node {self._node.name} "
                    f"sees, but pool {pool} is {pool.defect}: wait until its driver is done"
                )
        return [
            candidate
            for candidate in self._candidates
            if hurdles.unselected(want, candidate, self._node) is None
        ]

    def _check_size(self, item: demand.ClaimPlan) -> None:
        least = sum(min(map(self._count, alternatives)) for alternatives in item.requests)
        if least > demand.MAX_RESULTS:
            ref = item.claim.ref
            raise demand.Aborted(
                f"claim {ref.namespace}/{ref.name} asks for {least} devices; "
                f"allowed are {demand.MAX_RESULTS}: split it into several claims"
            )
