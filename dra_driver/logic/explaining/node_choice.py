"""Which nodes take a pod with its claims, with which devices, and why the others do not."""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dra_driver.logic.explaining import (
    changes,
    device_hurdles,
    device_plugins,
    hindrances,
    nearest_miss,
    node_reports,
    refused_configs,
    targets,
)
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import (
    allocation,
    demand,
    evicting,
    extended_resources,
    hurdles,
    placing,
    scheduling,
)
from dra_driver.model import claims, nodes, slices, taints


@dataclasses.dataclass(frozen=True, slots=True)
class Pick:
    """A device that a request would get; `before` is why no earlier one in publishing order.

    `preferred` are alternatives of a `firstAvailable` list that come before the one which is met,
    each with where its devices fall.
    """

    claim: str
    request: str
    device: str
    before: tuple[device_hurdles.Group, ...] = ()
    preferred: tuple[tuple[str, tuple[device_hurdles.Group, ...]], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """A node that fits; `score` is how well it meets `firstAvailable` lists.

    `served` are extended resources that a device plugin of the node gives, without a claim.
    """

    node: str
    first: bool
    score: int
    picks: tuple[Pick, ...]
    served: tuple[str, ...] = ()


class Search:
    """The nodes of a snapshot, seen with one plan."""

    def __init__(
        self, target: targets.Target, plan: demand.Plan, snapshot: snapshots.Snapshot
    ) -> None:
        self.plan = plan
        self.snapshot = snapshot
        self._target = target
        serving = {node.name: device_plugins.of(target, node, snapshot) for node in snapshot.nodes}
        self._first: list[tuple[nodes.Node, allocation.Outcome]] = []
        self._served = {name: one.resources for name, one in serving.items()}
        self._obstacles = {
            node.name: obstacle
            for node in snapshot.nodes
            if (obstacle := _obstacle(target, node) or serving[node.name].obstacle) is not None
        }

    @functools.cached_property
    def _tied(self) -> dict[str, str]:
        """Why devices that claims have keep the pod off nodes that would else do.

        What a node is short of is told before that. An error there stops the pod all the same.
        """
        return {
            node.name: tied
            for node in self.snapshot.nodes
            if node.name not in self._obstacles
            and (tied := _tie(self._target, node)) is not None
            and self._allocate(node).allocations is not None
        }

    @property
    def open(self) -> list[nodes.Node]:
        """The nodes that may run the pod."""
        barred = {*self._obstacles, *self._tied}
        return [node for node in self.snapshot.nodes if node.name not in barred]

    def options(self) -> tuple[Option, ...]:
        """The nodes that fit, the first choice first.

        Raises:
            demand.Aborted: an error on any node, as in the scheduler: also on one that devices of
                another claim cannot be used from.
        """
        found = [
            (node, outcome)
            for node in self.open
            if (outcome := self._allocate(node)).allocations is not None
        ]
        found.sort(key=lambda entry: -entry[1].score)
        self._first = found[:1]
        return tuple(
            Option(
                node.name,
                not index,
                outcome.score,
                self._picks(node, outcome, not index),
                tuple(sorted(self._served[node.name])),
            )
            for index, (node, outcome) in enumerate(found)
        )

    def spots(self) -> list[changes.Spot]:
        """Where devices fall on each node that may run the pod, and has none from elsewhere."""
        return [self._spot(node) for node in self.open if not self._served[node.name]]

    def refused(self) -> Iterator[hindrances.Hindrance]:
        """What the driver would refuse on the first choice of `options`."""
        for node, outcome in self._first:
            for item, given in zip(self._plan(node), outcome.allocations or (), strict=True):
                yield from refused_configs.of(item.claim.ref, given, self.snapshot)

    def short_stays(self) -> Iterator[str]:
        """Requests whose tolerations let a pod onto a device, and do not let it stay there."""
        for want in (want for item in self.plan for want in item.wants):
            bodies = want.spec.extra.get("tolerations") or ()
            seen = {
                f"{taint}"
                for node in self.open
                for candidate in (self.snapshot.inventory.seen(node).candidates if bodies else ())
                for taint in candidate.taints
                if taint.effect == taints.NO_EXECUTE
                and any(toleration.covers(taint) for toleration in want.tolerations)
                and evicting.stays_for(bodies, taint) == 0
            }
            for taint in sorted(seen):
                yield (
                    f'request "{want.name}" tolerates the device taint {taint} without '
                    "`effect: NoExecute`: pods start on such a device, and are ended at once"
                )

    def barred(self) -> tuple[node_reports.Report, ...]:
        """The nodes that do not take the pod, by reason."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in sorted({**self._obstacles, **self._tied}.items()):
            by_reason.setdefault(reason, []).append(name)
        for node in self.open:
            if served := self._served[node.name]:
                reason = f"{', '.join(sorted(served))} from its device plugin, and no devices else"
                by_reason.setdefault(reason, []).append(node.name)
        return tuple(
            node_reports.Report(tuple(names), reason) for reason, names in by_reason.items()
        )

    def elsewhere(self) -> tuple[nearest_miss.Miss, ...]:
        """For each reason the first node that has the devices and does not take the pod."""
        found: dict[str, nearest_miss.Miss] = {}
        for node in self.snapshot.nodes:
            reason = self._obstacles.get(node.name) or self._tied.get(node.name)
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

    def _plan(self, node: nodes.Node) -> demand.Plan:
        """What is asked for as a claim there."""
        served, pod = self._served[node.name], self._target.extended
        if not served or pod is None:
            return self.plan
        pending = [item.claim for item in self.plan[:-1]]
        left = extended_resources.claim(pod, self.snapshot.extended, served)
        return demand.plan(
            [*pending, *([claims.parse(left)] if left else [])],
            self.snapshot.classes,
            self.snapshot.behaviour,
        )

    def _allocate(self, node: nodes.Node) -> allocation.Outcome:
        return allocation.allocate(
            self._plan(node),
            node=node,
            inventory=self.snapshot.inventory,
            in_use=self.snapshot.in_use,
            share_ids=str,
            behaviour=self.snapshot.behaviour,
        )

    def _spot(self, node: nodes.Node) -> changes.Spot:
        state = changes.State(self._plan(node), self.snapshot.in_use)
        return state.spot(node, self.snapshot)

    def _picks(
        self, node: nodes.Node, outcome: allocation.Outcome, with_reasons: bool
    ) -> tuple[Pick, ...]:
        falls = self._spot(node).falls if with_reasons else {}
        fallen: dict[tuple[str, str], Sequence[device_hurdles.Fall]] = {
            (want.claim.ref.uid, want.name): found for want, found in falls.items()
        }
        picks: list[Pick] = []
        taken: set[slices.DeviceId] = set()
        for item, given in zip(self._plan(node), outcome.allocations or (), strict=True):
            for result in given.results:
                listed = fallen.get((item.claim.ref.uid, result.request), ())
                before = _before(listed, result.device, taken)
                name = f"{item.claim.ref.namespace}/{item.claim.ref.name}"
                groups = device_hurdles.grouped(before)
                preferred = tuple(_preferred(item, result.request, fallen))
                picks.append(Pick(name, result.request, f"{result.device}", groups, preferred))
                taken.add(result.device)
        return tuple(picks)


def _preferred(
    item: demand.ClaimPlan,
    request: str,
    fallen: Mapping[tuple[str, str], Sequence[device_hurdles.Fall]],
) -> Iterator[tuple[str, tuple[device_hurdles.Group, ...]]]:
    """The alternatives before one of a list, with where their devices fall."""
    for alternatives in item.requests:
        names = [want.name for want in alternatives]
        for name in names[: names.index(request)] if request in names else ():
            if listed := fallen.get((item.claim.ref.uid, name)):
                yield name, device_hurdles.grouped(listed)


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
    return None


def _tie(target: targets.Target, node: nodes.Node) -> str | None:
    for claim in target.claims:
        if not scheduling.is_usable(claim, node):
            return f"node(s) cannot use the devices that claim {claim.ref.name} has"
    return None
