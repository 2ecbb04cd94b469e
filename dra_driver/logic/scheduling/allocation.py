"""Claims of a pod + what a node sees + what is in use -> devices, or why there are none.

Depth-first, the first full solution wins, devices in publishing order: the structured allocator of
Kubernetes 1.36 (`structured/internal/incubating`). A device with a field that is not known here is
refused and named, never handed out.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from dra_driver.logic.scheduling import (
    candidacy,
    capacities,
    constraints,
    demand,
    emulation,
    hurdles,
    pools,
    reservations,
    results,
    shortfalls,
    usage,
)
from dra_driver.model import claims, nodes

MAX_STEPS = 5_000_000
"""Devices looked at in one search. The real scheduler stops after 10 seconds instead, in which it
looks at about as many."""

Shortfalls = tuple[shortfalls.Shortfall, ...]

_BEST_RANK = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Allocations in the order of the claims, or None.

    `score` is how well `firstAvailable` lists were met; higher is better (kubernetes 1.35).
    """

    allocations: tuple[claims.Allocation, ...] | None
    score: int = 0


def allocate(
    plan: demand.Plan,
    *,
    node: nodes.Node,
    inventory: pools.Inventory,
    in_use: usage.InUse,
    share_ids: results.ShareIds,
    behaviour: emulation.Emulation = emulation.FIXED,
    max_steps: int = MAX_STEPS,
) -> Outcome:
    """Devices on `node` for all claims of a plan together; `in_use` is what others have.

    Raises:
        demand.Aborted: an error that stops the pod, whatever other nodes have: an expression that
            fails on a device, All with a pool that cannot be used or a broken constraint, more than
            32 devices for a claim, a search without end.
    """
    search = _Search(plan, node, inventory.seen(node), in_use, behaviour, max_steps)
    search.prepare(inventory)
    if not search.run():
        return Outcome(None)
    chosen = search.chosen
    return Outcome(
        tuple(
            results.allocation(item.claim, of_claim, node, share_ids)
            for item, of_claim in zip(plan, chosen, strict=True)
        ),
        score=sum(
            _BEST_RANK - want.rank
            for of_claim in chosen
            for want in dict.fromkeys(item.want for item in of_claim)
            if "/" in want.name
        ),
    )


def may_fail(plan: demand.Plan, *, node: nodes.Node, inventory: pools.Inventory) -> bool:
    """Whether `allocate` might stop the pod there; if not, it only tells whether the node fits.

    Asked again for the same node and the same kind of claims, the answer costs next to nothing.
    """
    seen = inventory.seen(node)
    for want in (want for item in plan for want in item.wants):
        if want.spec.mode == claims.ALL:
            return True
        meant = seen.answers(want.question)
        position = meant.find(_UNKNOWN)
        while position >= 0:
            try:
                hurdle = hurdles.unselected(want, seen.candidates[position], node)
            except demand.Aborted:
                return True
            meant[position] = _MEANT if hurdle is None else _NOT_MEANT
            position = meant.find(_UNKNOWN, position)
    return False


def diagnose(
    plan: demand.Plan,
    *,
    node: nodes.Node,
    inventory: pools.Inventory,
    in_use: usage.InUse,
    behaviour: emulation.Emulation = emulation.FIXED,
) -> Shortfalls:
    """What was short on a node on which `allocate` found nothing."""
    seen = inventory.pools(node)
    free = reservations.Reservations(seen, in_use, behaviour)
    elsewhere = [pool for pool in inventory.unusable_elsewhere(node) if pool.is_invalid]
    return shortfalls.diagnose(plan, node=node, seen=(*seen, *elsewhere), free=free)


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

_UNKNOWN, _MEANT, _NOT_MEANT = 0, 1, 2
"""Whether a request means a device, as far as selectors and the node go."""

_Fit = capacities.Amounts | None
"""What a request takes of a device that it means; None if it does not mean it."""


class _Search:
    """One depth-first search. The stack is explicit: a pod may ask for hundreds of devices."""

    def __init__(
        self,
        plan: demand.Plan,
        node: nodes.Node,
        seen: pools.Seen,
        in_use: usage.InUse,
        behaviour: emulation.Emulation,
        max_steps: int,
    ) -> None:
        self._plan = plan
        self._node = node
        self._seen = seen
        self._reservations = reservations.Reservations(seen.pools, in_use, behaviour)
        self._constraints = [
            [constraints.of(constraint, behaviour) for constraint in item.claim.constraints]
            for item in plan
        ]
        self._meant = {want: seen.answers(want.question) for item in plan for want in item.wants}
        self._fits: dict[tuple[demand.Want, int], _Fit] = {}
        self._listed: dict[demand.Want, list[int]] = {}
        self.chosen: list[list[results.Chosen]] = [[] for _ in plan]
        self._counted: list[bool] = []
        self._everything: dict[demand.Want, list[int]] = {}
        self._steps = self._max_steps = max_steps
        self._exceeded = False
        leaks = behaviour.reservations_leak and any(c.consumes for c in seen.candidates)
        self._skips = not leaks
        self._behaviour = behaviour

    def prepare(self, inventory: pools.Inventory) -> None:
        """Look up all devices where All asks for them, and check the number of devices."""
        in_order: tuple[pools.Pool, ...] = ()
        for item in self._plan:
            for want in item.wants:
                if want.spec.mode == claims.ALL:
                    in_order = in_order or _with(
                        self._seen.pools, inventory.unusable_elsewhere(self._node)
                    )
                    self._everything[want] = self._all_of(want, in_order)
            least = (min(map(self._count, alternatives)) for alternatives in item.requests)
            _check_size(item, sum(least))

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
            self._exceeded = False
        elif want is None:
            yield from self._alternatives(place, requests[place.request])
        elif place.taken == (count := self._count(want)):
            if count:
                yield _Place(place.claim, place.request + 1)
        elif len(self.chosen[place.claim]) + count - place.taken > demand.MAX_RESULTS:
            self._exceeded = True
        else:
            yield from self._devices(place, want)

    def _alternatives(self, place: _Place, alternatives: Sequence[demand.Want]) -> _Choices:
        """One after the other. Of a claim that would become too large other devices are no help.

        That is what `_exceeded` tells: it ends all choices of devices up to where there is another
        alternative, which may want fewer.
        """
        exceeded = True
        for alternative in alternatives:
            self._exceeded = False
            yield dataclasses.replace(place, want=alternative)
            exceeded = exceeded and self._exceeded
        self._exceeded = exceeded

    def _devices(self, place: _Place, want: demand.Want) -> _Choices:
        everything, meant = self._everything.get(want), self._meant[want]
        # What is not tried leaves no counters behind, as released.
        several = self._skips and (want.spec.count or 0) - place.taken > 1
        looked = place.start
        for index in self._offered(want, place.start):
            if several and _are_too_few(meant, index, want, place):
                return
            self._look(want, index + 1 - looked if everything is None else 1)
            looked = index + 1
            if self._take(place.claim, want, index):
                start = looked if everything is None else place.start + 1
                yield _Place(place.claim, place.request, want, place.taken + 1, start)
                self._put_back(place.claim)
                if self._exceeded:
                    return
        if everything is None:
            self._look(want, len(meant) - looked)

    def _offered(self, want: demand.Want, start: int) -> Iterable[int]:
        """Devices that the request may mean, from `start` on; of All only the next one."""
        if want in self._everything:
            return self._everything[want][start : start + 1]
        meant = self._meant[want]
        if meant.find(_UNKNOWN) >= 0:
            return (index for index in range(start, len(meant)) if meant[index] != _NOT_MEANT)
        if want not in self._listed:
            self._listed[want] = [index for index, answer in enumerate(meant) if answer == _MEANT]
        listed = self._listed[want]
        return itertools.islice(listed, bisect.bisect_left(listed, start), None)

    def _look(self, want: demand.Want, count: int) -> None:
        self._steps -= count
        if self._steps < 0:
            raise demand.Aborted(
                f"{want}: no answer after {self._max_steps} devices on node {self._node.name}: "
                "add a selector that leaves fewer devices, or ask for fewer at once"
            )

    def _take(self, claim: int, want: demand.Want, index: int) -> bool:
        candidate = self._seen.candidates[index]
        if self._reservations.is_in_use(want, candidate) or (
            want.spec.admin_access and not candidate.shareable and self._has(claim, candidate)
        ):
            return False
        fit = self._fit(want, index)
        room_last = self._behaviour.all_forgets_room and want in self._everything
        if fit is None or not (room_last or self._reservations.has_room(want, candidate, fit)):
            return False
        counted = self._reservations.count(want, candidate)
        if counted is None:
            return False
        if hurdles.unusable(want, candidate) or not self._constrain(claim, want, candidate):
            if counted:
                self._reservations.uncount(candidate, refused=True)
            return False
        if room_last and not self._reservations.has_room(want, candidate, fit):
            return False
        self._reservations.take(want, candidate, fit)
        self.chosen[claim].append(results.Chosen(want, candidate, fit))
        self._counted.append(counted)
        return True

    def _constrain(self, claim: int, want: demand.Want, candidate: candidacy.Candidate) -> bool:
        concerned = [item for item in self._constraints[claim] if item.concerns(want.name)]
        for index, constraint in enumerate(concerned):
            if constraint.take(want.name, candidate):
                continue
            for earlier in concerned[:index]:
                earlier.put_back(want.name)
            if want in self._everything:
                raise demand.Aborted(
                    f"{want}: allocation mode All takes device {candidate.id}, "
                    f"which breaks {constraint}: add a selector, or ask for a count"
                )
            return False
        return True

    def _put_back(self, claim: int) -> None:
        chosen = self.chosen[claim].pop()
        for constraint in self._constraints[claim]:
            if constraint.concerns(chosen.want.name):
                constraint.put_back(chosen.want.name)
        self._reservations.put_back(chosen.want, chosen.candidate)
        if self._counted.pop():
            self._reservations.uncount(chosen.candidate, refused=False)

    def _has(self, claim: int, candidate: candidacy.Candidate) -> bool:
        return any(candidate is item.candidate for item in self.chosen[claim])

    def _fit(self, want: demand.Want, index: int) -> _Fit:
        candidate, meant = self._seen.candidates[index], self._meant[want]
        if meant[index] == _UNKNOWN:
            hurdle = hurdles.unselected(want, candidate, self._node)
            meant[index] = _MEANT if hurdle is None else _NOT_MEANT
        if meant[index] == _NOT_MEANT:
            return None
        if (want, index) not in self._fits:
            share = hurdles.share(want, candidate)
            self._fits[want, index] = None if isinstance(share, hurdles.Hurdle) else share
        return self._fits[want, index]

    def _count(self, want: demand.Want) -> int:
        everything = self._everything.get(want)
        return len(everything) if everything is not None else want.spec.count or 0

    def _all_of(self, want: demand.Want, in_order: Sequence[pools.Pool]) -> list[int]:
        """Devices of all pools, one pool after the other; so errors come in their order."""
        found, index, is_known = [], 0, True
        for pool in in_order:
            if pool.defect:
                if pool.is_invalid or self._behaviour.incomplete_is_fatal:
                    raise demand.Aborted(
                        f"{want}: allocation mode All needs every pool that node {self._node.name} "
                        f"sees, but pool {pool} is {pool.defect}: wait until its driver is done"
                    )
                is_known = False
                continue
            for candidate in pool.candidates:
                fit = self._fit(want, index)
                if fit is not None and self._reservations.has_room(want, candidate, fit):
                    found.append(index)
                index += 1
        return found if is_known else []


def _with(seen: Sequence[pools.Pool], unusable: Sequence[pools.Pool]) -> tuple[pools.Pool, ...]:
    """The pools that a node looks at for All: by name, those that devices wait for last."""
    first = itertools.takewhile(lambda pool: not pools.has_binding_conditions(pool), seen)
    early = list(first)
    return (*sorted([*early, *unusable], key=lambda pool: pool.key), *seen[len(early) :])


def _are_too_few(meant: bytearray, start: int, want: demand.Want, place: _Place) -> bool:
    """Whether from `start` on there are fewer devices than a count asks for still.

    Only once all are known: one that is not may be the one whose selector fails with an error.
    """
    left = len(meant) - start - meant.count(_NOT_MEANT, start)
    return left < (want.spec.count or 0) - place.taken and meant.find(_UNKNOWN, start) < 0


def _check_size(item: demand.ClaimPlan, least: int) -> None:
    if least > demand.MAX_RESULTS:
        ref = item.claim.ref
        raise demand.Aborted(
            f"claim {ref.namespace}/{ref.name} asks for {least} devices; "
            f"allowed are {demand.MAX_RESULTS}: split it into several claims"
        )
