"""The search for devices: depth first, the first full solution wins, devices in publishing order.

It follows the structured allocator of Kubernetes 1.36 (`structured/internal/incubating`) step by
step where released defects are to be met; else it leaves out what cannot lead to a solution.
"""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

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
    usage,
)
from dra_driver.model import claims, nodes

_SHORT = 500
"""Steps of a search that is over before it pays to prepare anything."""
MAX_STEPS = 10_000_000
"""Devices looked at in one search. The real scheduler stops after 10 seconds instead, in which it
looks at about as many."""


class _Place(NamedTuple):
    """How far the search is. `want` is None as long as no alternative was picked."""

    claim: int = 0
    request: int = 0
    want: demand.Want | None = None
    taken: int = 0
    start: int = 0


_Choices = Iterator[_Place | None]
"""The places that a choice leads to; each is undone when the next is asked for. None: all done."""

_EXHAUSTED = _Place(-1)
"""No further place."""

UNKNOWN, MEANT, NOT_MEANT = 0, 1, 2
"""Whether a request means a device, as far as selectors and the node go."""

_Fit = capacities.Taken | None
"""What a request takes of a device that it means; None if it does not mean it."""


class Search:
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
            place = next(stack[-1], _EXHAUSTED)
            if place is None:
                return True
            if place is _EXHAUSTED:
                stack.pop()
            else:
                stack.append(self._choices(place))
        return False

    def _choices(self, place: _Place) -> _Choices:
        claim, request, want, taken, start = place
        if claim == len(self._plan):
            yield None
            return
        requests = self._plan[claim].requests
        if want is not None and taken and taken == self._count(want):
            request, want, taken, start = request + 1, None, 0, 0
        if request == len(requests):
            yield _Place(claim + 1)
            self._exceeded = False
            return
        if want is None:
            want, *others = requests[request]
            if others:
                yield from self._alternatives(claim, request, requests[request])
                return
        yield from self._devices(claim, request, want, taken, start)

    def _alternatives(
        self, claim: int, request: int, alternatives: Sequence[demand.Want]
    ) -> _Choices:
        """One after the other. Of a claim that would become too large other devices are no help.

        That is what `_exceeded` tells: it ends all choices of devices up to where there is another
        alternative, which may want fewer.
        """
        exceeded = True
        for alternative in alternatives:
            self._exceeded = False
            yield _Place(claim, request, alternative)
            exceeded = exceeded and self._exceeded
        self._exceeded = exceeded

    def _devices(
        self, claim: int, request: int, want: demand.Want, taken: int, start: int
    ) -> _Choices:
        count, everything, meant = self._count(want), self._everything.get(want), self._meant[want]
        if count and len(self.chosen[claim]) + count - taken > demand.MAX_RESULTS:
            self._exceeded = True
            return
        # What is not tried leaves no counters behind, as released.
        several = self._skips and count - taken > 1 and everything is None
        looked = start
        for index in self._offered(want, start):
            if several and _are_too_few(meant, index, count - taken):
                return
            self._look(want, index + 1 - looked if everything is None else 1)
            looked = index + 1
            if self._take(claim, want, index):
                following = looked if everything is None else start + 1
                yield _Place(claim, request, want, taken + 1, following)
                self._put_back(claim)
                if self._exceeded:
                    return
        if everything is None:
            self._look(want, len(meant) - looked)

    def _offered(self, want: demand.Want, start: int) -> Iterable[int]:
        """Devices that the request may get, from `start` on; of All only the next one."""
        if want in self._everything:
            return self._everything[want][start : start + 1]
        meant = self._meant[want]
        if meant.find(UNKNOWN) >= 0:
            return (index for index in range(start, len(meant)) if meant[index] != NOT_MEANT)
        if want not in self._listed:
            if self._max_steps - self._steps < _SHORT:
                return (index for index in range(start, len(meant)) if meant[index] == MEANT)
            self._listed[want] = [
                index
                for index, answer in enumerate(meant)
                if answer == MEANT
                and self._fit(want, index) is not None
                and not self._reservations.is_held(want, self._seen.candidates[index])
            ]
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
            if constraint.take(want, candidate):
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
        if meant[index] == UNKNOWN:
            hurdle = hurdles.unselected(want, candidate, self._node)
            meant[index] = MEANT if hurdle is None else NOT_MEANT
        if meant[index] == NOT_MEANT:
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


def _are_too_few(meant: bytearray, start: int, needed: int) -> bool:
    """Whether from `start` on there are fewer devices than are needed.

    Only once all are known: one that is not may be the one whose selector fails with an error.
    """
    left = len(meant) - start - meant.count(NOT_MEANT, start)
    return left < needed and meant.find(UNKNOWN, start) < 0


def _check_size(item: demand.ClaimPlan, least: int) -> None:
    if least > demand.MAX_RESULTS:
        ref = item.claim.ref
        raise demand.Aborted(
            f"claim {ref.namespace}/{ref.name} asks for {least} devices; "
            f"allowed are {demand.MAX_RESULTS}: split it into several claims"
        )
