"""A pod and the cluster as it is -> a node with devices for all its claims, or why not."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from dra_driver.logic.scheduling import (
    allocation,
    demand,
    device_plugins,
    emulation,
    placing,
    pools,
    results,
    unschedulable,
    usage,
)
from dra_driver.model import claims, nodes

Allocations = tuple[claims.Allocation, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """The cluster at one moment; nodes in the order in which they are tried.

    `share_ids` gives the ids of shares, `behaviour` the defects to reproduce.
    """

    inventory: pools.Inventory
    classes: Mapping[str, claims.DeviceClass]
    nodes: tuple[nodes.Node, ...]
    in_use: usage.InUse
    share_ids: results.ShareIds
    behaviour: emulation.Emulation = emulation.FIXED


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Where the pod goes; `allocations` are for its claims that had none, in their order.

    The last is for the claim of its extended resources, if there is to be one: for all of them but
    `served`, which the device plugins of the node give.
    """

    node: str
    allocations: Allocations
    served: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """No node takes the pod. `message` is for its condition.

    `blocking` are claims that tie the pod to devices of another node, though some node has what the
    others ask for: to give one of them back may help.
    """

    message: str
    blocking: frozenset[claims.ClaimUid] = frozenset()


def place(
    pod: placing.Pod,
    of_pod: Sequence[claims.ResourceClaim],
    view: View,
    extended: device_plugins.Demand | None = None,
) -> Placement | Refusal:
    """The first node that fits; with `firstAvailable` requests the one that meets them best.

    `of_pod` are the pod's claims, allocated or not, `extended` what it asks for beside them. As in
    kube-scheduler, an error on any node that is looked at stops the pod, whether another fits or
    not, and so on a node that the devices of the pod's claims cannot be used from.
    """
    pending = [claim for claim in of_pod if claim.allocation is None]
    try:
        plan = demand.plan(pending, view.classes, view.behaviour)
        return _Search(plan, of_pod, view, extended).place(pod)
    except demand.Aborted as error:
        return Refusal(str(error))


class _Search:
    def __init__(
        self,
        plan: demand.Plan,
        of_pod: Sequence[claims.ResourceClaim],
        view: View,
        extended: device_plugins.Demand | None,
    ) -> None:
        self._named, self._of_pod, self._view, self._extended = plan, of_pod, view, extended
        self._served: dict[str, frozenset[str]] = {}
        self._plans: dict[frozenset[str], demand.Plan] = {}
        self._prefers = any(len(choices) > 1 for item in plan for choices in item.requests)
        self._verdicts: dict[str, unschedulable.Verdict] = {}
        self._blocking: set[claims.ClaimUid] = set()
        self._short: list[nodes.Node] = []

    def place(self, pod: placing.Pod) -> Placement | Refusal:
        best: tuple[int, Placement] | None = None
        fitting = 0
        open_nodes = list(self._open(pod))
        for number, node in enumerate(open_nodes, start=1):
            if (outcome := self._fit(node)) is None:
                continue
            fitting += 1
            if best is None or outcome.score > best[0]:
                served = self._served.get(node.name, frozenset())
                best = outcome.score, Placement(node.name, outcome.allocations or (), served)
            if fitting >= _enough(len(self._view.nodes)):
                break
            if fitting == 1 and not self._prefers and not self._may_fail(open_nodes[number:]):
                # Whether others fit as well makes no difference.
                break
        if best is not None:
            return best[1]
        self._verdicts |= {node.name: self._shortfalls(node) for node in self._short}
        return Refusal(unschedulable.message(self._verdicts), frozenset(self._blocking))

    def _open(self, pod: placing.Pod) -> Iterator[nodes.Node]:
        """The nodes that may run the pod."""
        for node in self._view.nodes:
            if (reason := placing.obstacle(pod, node) or self._lack(node)) is None:
                yield node
            else:
                self._verdicts[node.name] = reason

    def _lack(self, node: nodes.Node) -> str | None:
        """What the node's device plugins lack of the pod's extended resources."""
        if self._extended is None:
            return None
        found = self._extended.on(node)
        self._served[node.name] = found.resources
        return ", ".join(map(str, found.lack)) or None

    def _plan(self, node: nodes.Node) -> demand.Plan:
        """What is asked for as claims there; that of the extended resources comes last."""
        if self._extended is None:
            return self._named
        served = self._served[node.name]
        if served not in self._plans:
            own = self._extended.claim(served)
            made = (
                demand.plan([own], self._view.classes, self._view.behaviour)
                if own is not None
                else ()
            )
            self._plans[served] = (*self._named, *made)
        return self._plans[served]

    def _fit(self, node: nodes.Node) -> allocation.Outcome | None:
        outcome = allocation.allocate(
            self._plan(node),
            node=node,
            inventory=self._view.inventory,
            in_use=self._view.in_use,
            share_ids=self._view.share_ids,
            behaviour=self._view.behaviour,
        )
        if outcome.allocations is None:
            self._short.append(node)
            return None
        if tied := [claim for claim in self._of_pod if not is_usable(claim, node)]:
            self._blocking.update(claim.ref.uid for claim in tied)
            self._verdicts[node.name] = "node(s) cannot use the devices that the pod's claims have"
            return None
        return outcome

    def _may_fail(self, others: Sequence[nodes.Node]) -> bool:
        """Whether one of the nodes may have an error that stops the pod."""
        return any(
            allocation.may_fail(self._plan(node), node=node, inventory=self._view.inventory)
            for node in others
        )

    def _shortfalls(self, node: nodes.Node) -> allocation.Shortfalls:
        """Worked out only once no node is left: most pods fit on some node."""
        return allocation.diagnose(
            self._plan(node),
            node=node,
            inventory=self._view.inventory,
            in_use=self._view.in_use,
            behaviour=self._view.behaviour,
        )


def is_usable(claim: claims.ResourceClaim, node: nodes.Node) -> bool:
    """Whether pods on the node can use the devices that the claim has, if any."""
    selector = claim.allocation.node_selector if claim.allocation is not None else None
    return selector is None or nodes.matches(selector, node)


def _enough(count: int) -> int:
    """Nodes that fit, after which kube-scheduler looks at no more of a cluster of `count` nodes.

    Source: Kubernetes 1.36 `pkg/scheduler/schedule_one.go`, numFeasibleNodesToFind.
    """
    percent = max(50 - count // 125, 5)
    return max(count * percent // 100, 100)
