"""A pod and the cluster as it is -> a node with devices for all its claims, or why not."""

import dataclasses
from collections.abc import Mapping, Sequence

from dra_driver.logic.scheduling import (
    allocation,
    demand,
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
    """Where the pod goes; `allocations` are for its claims that had none, in their order."""

    node: str
    allocations: Allocations


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """No node takes the pod. `message` is for its condition."""

    message: str
    blocking: frozenset[claims.ClaimUid] = frozenset()
    """Claims that tie the pod to devices of a node that does not take it."""


def place(
    pod: placing.Pod, of_pod: Sequence[claims.ResourceClaim], view: View
) -> Placement | Refusal:
    """The first node that fits; with `firstAvailable` requests the one that meets them best.

    `of_pod` are the pod's claims, allocated or not.
    """
    pending = [claim for claim in of_pod if claim.allocation is None]
    try:
        return _search(pod, of_pod, demand.plan(pending, view.classes), view)
    except demand.Aborted as error:
        return Refusal(str(error))


def _search(
    pod: placing.Pod, of_pod: Sequence[claims.ResourceClaim], plan: demand.Plan, view: View
) -> Placement | Refusal:
    has_preferences = any(len(choices) > 1 for item in plan for choices in item.requests)
    verdicts: dict[str, unschedulable.Verdict] = {}
    blocking: set[claims.ClaimUid] = set()
    short: list[nodes.Node] = []
    best: tuple[int, Placement] | None = None
    for node in view.nodes:
        if (reason := placing.obstacle(pod, node)) is not None:
            verdicts[node.name] = reason
            continue
        if tied := [claim for claim in of_pod if not _is_usable(claim, node)]:
            blocking.update(claim.ref.uid for claim in tied)
            verdicts[node.name] = "node(s) cannot use the devices that the pod's claims have"
            continue
        outcome = allocation.allocate(
            plan,
            node=node,
            inventory=view.inventory,
            in_use=view.in_use,
            share_ids=view.share_ids,
            behaviour=view.behaviour,
        )
        if outcome.allocations is None:
            short.append(node)
            continue
        if best is None or outcome.score > best[0]:
            best = outcome.score, Placement(node.name, outcome.allocations)
        if not has_preferences:
            break
    if best is not None:
        return best[1]
    verdicts |= {node.name: _shortfalls(plan, node, view) for node in short}
    return Refusal(unschedulable.message(verdicts), frozenset(blocking))


def _shortfalls(plan: demand.Plan, node: nodes.Node, view: View) -> allocation.Shortfalls:
    """Worked out only once no node is left: most pods fit on some node."""
    return allocation.diagnose(
        plan,
        node=node,
        inventory=view.inventory,
        in_use=view.in_use,
        behaviour=view.behaviour,
    )


def _is_usable(claim: claims.ResourceClaim, node: nodes.Node) -> bool:
    selector = claim.allocation.node_selector if claim.allocation is not None else None
    return selector is None or nodes.matches(selector, node)
