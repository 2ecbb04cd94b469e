"""Claims of a pod + what a node sees + what is in use -> devices, or why there are none.

Depth-first, the first full solution wins, devices in publishing order: the structured allocator of
Kubernetes 1.36 (`structured/internal/incubating`). A device with a field that is not known here is
refused and named, never handed out.
"""

import dataclasses

from dra_driver.logic.scheduling import (
    demand,
    emulation,
    hurdles,
    pools,
    reservations,
    results,
    search,
    shortfalls,
    usage,
)
from dra_driver.model import claims, nodes

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
    max_steps: int = search.MAX_STEPS,
) -> Outcome:
    """Devices on `node` for all claims of a plan together; `in_use` is what others have.

    Raises:
        demand.Aborted: an error that stops the pod, whatever other nodes have: an expression that
            fails on a device, All with a pool that cannot be used or a broken constraint, more than
            32 devices for a claim, a search without end.
    """
    looking = search.Search(plan, node, inventory.seen(node), in_use, behaviour, max_steps)
    looking.prepare(inventory)
    if not looking.run():
        return Outcome(None)
    chosen = looking.chosen
    return Outcome(
        tuple(
            results.allocation(item.claim, of_claim, node, share_ids, behaviour)
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
        if want.spec.mode == claims.ALL or want.derived:
            return True
        meant = seen.answers(want.question)
        position = meant.find(search.UNKNOWN)
        while position >= 0:
            try:
                hurdle = hurdles.unselected(want, seen.candidates[position], node)
            except demand.Aborted:
                return True
            meant[position] = search.MEANT if hurdle is None else search.NOT_MEANT
            position = meant.find(search.UNKNOWN, position)
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
