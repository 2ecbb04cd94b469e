"""Why claims have, would get, or cannot get devices: the allocator's rules, told in full.

Read-only, and as the structured allocator of Kubernetes 1.36 decides; of the nodes that fit, the
real scheduler takes one by scores that are not worked out here.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dra_driver.logic import (
    allocation,
    binding,
    demand,
    device_hurdles,
    empty_classes,
    granted,
    hurdles,
    misnamed,
    nearest_miss,
    placing,
    reservations,
    selection,
    snapshots,
    targets,
    unknown_memory,
)
from dra_driver.model import claims, nodes, slices

ALLOCATED, FITS, DOES_NOT_FIT = "allocated", "fits", "does not fit"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Where the devices that a node sees fall for a request; `wanted` is None for All."""

    claim: str
    request: str
    wanted: int | None
    seen: int
    groups: tuple[device_hurdles.Group, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Nodes on which the same holds. `obstacle` is why they do not take the pod at all."""

    nodes: tuple[str, ...]
    obstacle: str = ""
    requests: tuple[Request, ...] = ()
    defects: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Pick:
    """A device that a request would get; `before` is why no earlier one in publishing order."""

    claim: str
    request: str
    device: str
    before: tuple[device_hurdles.Group, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """A node that fits; `score` is how well it meets `firstAvailable` lists."""

    node: str
    first: bool
    score: int
    picks: tuple[Pick, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """An error that stops the pod on every node; of an expression, with its place and remedies.

    `guarded` asks for an attribute before it reads it, `elsewhere` are paths where devices have
    one of that name.
    """

    message: str
    expression: str = ""
    line: int | None = None
    column: int | None = None
    guarded: str = ""
    elsewhere: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """The answer for one target; what does not concern its verdict is empty.

    `reasons` hold on every node.
    """

    target: str
    verdict: str
    reasons: tuple[str, ...] = ()
    allocated: tuple[granted.Granted, ...] = ()
    options: tuple[Option, ...] = ()
    reports: tuple[Report, ...] = ()
    nearest: tuple[nearest_miss.Miss, ...] = ()
    groups: tuple[str, ...] = ()
    problem: Problem | None = None
    notes: tuple[str, ...] = ()


def explain(target: targets.Target, snapshot: snapshots.Snapshot) -> Explanation:
    """What becomes of a pod's claims, or of one claim."""
    has = tuple(
        each
        for claim, body in zip(target.claims, target.bodies, strict=True)
        if claim.allocation is not None
        for each in granted.of(body, snapshot)
    )
    pending = [claim for claim in target.claims if claim.allocation is None]
    notes = (*snapshot.notes, *target.notes, *_unready(target))
    about = Explanation(target.title, ALLOCATED, allocated=has, notes=notes)
    if not pending and (target.pod is None or target.node):
        return about
    if target.blocked:
        problem = Problem("; ".join(target.blocked))
        return dataclasses.replace(about, verdict=DOES_NOT_FIT, problem=problem)
    try:
        plan = demand.plan(pending, snapshot.classes)
        return _decided(about, _Search(target, plan, snapshot), done=not pending)
    except demand.Aborted as error:
        return dataclasses.replace(about, verdict=DOES_NOT_FIT, problem=_problem(error, snapshot))


def _unready(target: targets.Target) -> Iterator[str]:
    """Devices that are allocated and not ready for the pod."""
    for claim, body in zip(target.claims, target.bodies, strict=True):
        name = f"claim {claim.ref.namespace}/{claim.ref.name}"
        for text in binding.pending(body):
            yield f"{name} waits for {text}"
        for text in binding.failed(body):
            yield f"{name} will not become ready: {text} is true"


def _decided(about: Explanation, search: "_Search", *, done: bool) -> Explanation:
    options = search.options()
    if options:
        verdict = ALLOCATED if done else FITS
        return dataclasses.replace(about, verdict=verdict, options=() if done else options)
    spots = search.spots()
    reports = (*search.barred(), *_reports(spots, search))
    found = nearest_miss.find(search.plan, _unlike(spots), search.snapshot)
    notes = about.notes
    if not found.complete:
        notes = (*notes, "not every change was tried: the cluster is large")
    return dataclasses.replace(
        about,
        verdict=DOES_NOT_FIT,
        reasons=(
            *empty_classes.told(search.plan, search.snapshot),
            *unknown_memory.told(search.plan, search.snapshot),
        ),
        reports=reports,
        nearest=(*found.misses, *search.elsewhere()),
        groups=nearest_miss.groups(search.plan, _unlike(spots)),
        notes=notes,
    )


class _Search:
    """The nodes of a snapshot, seen with one plan."""

    def __init__(
        self, target: targets.Target, plan: demand.Plan, snapshot: snapshots.Snapshot
    ) -> None:
        self.plan = plan
        self.snapshot = snapshot
        self._obstacles = {
            node.name: obstacle
            for node in snapshot.nodes
            if (obstacle := _obstacle(target, node)) is not None
        }

    @property
    def open(self) -> list[nodes.Node]:
        """The nodes that may run the pod."""
        return [node for node in self.snapshot.nodes if node.name not in self._obstacles]

    def options(self) -> tuple[Option, ...]:
        """The nodes that fit, the first choice first."""
        found = [(node, out) for node in self.open if (out := self._allocate(node)).allocations]
        if not self.plan:
            found = [(node, allocation.Outcome(())) for node in self.open]
        found.sort(key=lambda entry: -entry[1].score)
        return tuple(
            Option(node.name, not index, outcome.score, self._picks(node, outcome, not index))
            for index, (node, outcome) in enumerate(found)
        )

    def spots(self) -> list[nearest_miss.Spot]:
        """Where devices fall on each node that may run the pod."""
        return [nearest_miss.Spot(node, self._falls(node)) for node in self.open]

    def barred(self) -> tuple[Report, ...]:
        """The nodes that do not take the pod, by reason."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in sorted(self._obstacles.items()):
            by_reason.setdefault(reason, []).append(name)
        return tuple(Report(tuple(names), reason) for reason, names in by_reason.items())

    def elsewhere(self) -> tuple[nearest_miss.Miss, ...]:
        """For each reason the first node that has the devices and does not take the pod."""
        found: dict[str, nearest_miss.Miss] = {}
        for node in self.snapshot.nodes:
            reason = self._obstacles.get(node.name)
            if reason is None or reason in found:
                continue
            outcome = self._allocate(node)
            if outcome.allocations:
                devices = tuple(f"{r.device}" for item in outcome.allocations for r in item.results)
                change = f"node {node.name} has the devices, but does not take the pod: {reason}"
                found[reason] = nearest_miss.Miss(change, node.name, devices)
        return tuple(found.values())

    def defects(self, node: nodes.Node) -> tuple[str, ...]:
        """Pools that the node sees and cannot use."""
        seen = self.snapshot.inventory.pools(node)
        return tuple(f"pool {pool} is {pool.defect}" for pool in seen if pool.defect)

    def _allocate(self, node: nodes.Node) -> allocation.Outcome:
        return allocation.allocate(
            self.plan,
            node=node,
            inventory=self.snapshot.inventory,
            in_use=self.snapshot.in_use,
            share_ids=str,
        )

    def _falls(self, node: nodes.Node) -> Mapping[demand.Want, Sequence[device_hurdles.Fall]]:
        seen = self.snapshot.inventory.seen(node)
        free = reservations.Reservations(seen.pools, self.snapshot.in_use)
        return {
            want: device_hurdles.falls(
                want, seen.candidates, node=node, free=free, holders=self.snapshot.holders
            )
            for item in self.plan
            for want in item.wants
        }

    def _picks(
        self, node: nodes.Node, outcome: allocation.Outcome, with_reasons: bool
    ) -> tuple[Pick, ...]:
        falls = self._falls(node) if with_reasons else {}
        picks: list[Pick] = []
        taken: set[slices.DeviceId] = set()
        for item, given in zip(self.plan, outcome.allocations or (), strict=True):
            wants = {want.name: want for want in item.wants}
            for result in given.results:
                before = _before(falls.get(wants[result.request], ()), result.device, taken)
                name = f"{item.claim.ref.namespace}/{item.claim.ref.name}"
                groups = device_hurdles.grouped(before)
                picks.append(Pick(name, result.request, f"{result.device}", groups))
                taken.add(result.device)
        return tuple(picks)


def _before(
    fallen: Iterable[device_hurdles.Fall],
    device: slices.DeviceId,
    taken: Collection[slices.DeviceId],
) -> list[device_hurdles.Fall]:
    """The devices before one in publishing order; those that the target has `taken` are not told.

    One that is free all the same was passed over for the sake of the whole.
    """
    found: list[device_hurdles.Fall] = []
    for fall in fallen:
        if fall.candidate.id == device:
            break
        if fall.kind is hurdles.Kind.FREE and fall.candidate.id not in taken:
            found.append(dataclasses.replace(fall, kind=hurdles.Kind.TOGETHER))
        elif fall.kind is not hurdles.Kind.FREE:
            found.append(fall)
    return found


def _obstacle(target: targets.Target, node: nodes.Node) -> str | None:
    if target.pod is not None and (reason := placing.obstacle(target.pod, node)) is not None:
        return reason
    for claim in target.claims:
        selector = claim.allocation.node_selector if claim.allocation is not None else None
        if selector is not None and not nodes.matches(selector, node):
            return f"node(s) cannot use the devices that claim {claim.ref.name} has"
    return None


def _reports(spots: Sequence[nearest_miss.Spot], search: _Search) -> list[Report]:
    """One for all nodes that are alike, with the devices and holders of all of them."""
    alike: dict[object, list[nearest_miss.Spot]] = {}
    for spot in spots:
        alike.setdefault((_signature(spot), search.defects(spot.node)), []).append(spot)
    return [
        Report(
            nodes=tuple(spot.node.name for spot in members),
            requests=tuple(
                _request(item.claim, want, members) for item in search.plan for want in item.wants
            ),
            defects=search.defects(members[0].node),
        )
        for members in alike.values()
    ]


def _request(
    claim: claims.ResourceClaim, want: demand.Want, alike: Sequence[nearest_miss.Spot]
) -> Request:
    fallen = [fall for spot in alike for fall in spot.falls[want]]
    return Request(
        claim=f"{claim.ref.namespace}/{claim.ref.name}",
        request=want.name,
        wanted=want.spec.count,
        seen=len(fallen),
        groups=device_hurdles.grouped(fallen),
    )


def _unlike(spots: Sequence[nearest_miss.Spot]) -> list[nearest_miss.Spot]:
    """One of each kind of node: what holds for it holds for those that are alike."""
    return list({_signature(spot): spot for spot in reversed(spots)}.values())[::-1]


def _signature(spot: nearest_miss.Spot) -> object:
    """Equal for nodes on which as many devices fall at the same hurdles with the same values."""
    return tuple(
        (want.name, group.count, group.hurdle, group.reason, group.values)
        for want, fallen in spot.falls.items()
        for group in device_hurdles.grouped(fallen)
    )


def _problem(error: demand.Aborted, snapshot: snapshots.Snapshot) -> Problem:
    cause = error.__cause__
    if not isinstance(cause, selection.SelectorError):
        return Problem(str(error))
    guarded = cause.guarded if isinstance(cause, selection.EvaluationError) else None
    everything = (c for node in snapshot.nodes for c in snapshot.inventory.seen(node).candidates)
    elsewhere = misnamed.elsewhere(cause.problem, everything)
    return Problem(str(error), cause.expression, cause.line, cause.column, guarded or "", elsewhere)
