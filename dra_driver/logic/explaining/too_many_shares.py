"""Requests for more devices than there are, of devices that could serve as many shares."""

from collections.abc import Iterator

from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import demand, hurdles
from dra_driver.model import nodes


def told(plan: demand.Plan, snapshot: snapshots.Snapshot) -> Iterator[str]:
    """A sentence for each request that wants several shares and sees too few devices anywhere.

    One request gets one share of a device: Kubernetes tries combinations of different devices.
    """
    for item in plan:
        for want in item.wants:
            count = want.spec.count or 1
            if count == 1:
                continue
            meant = [_shareable(want, node, snapshot) for node in snapshot.nodes]
            if 0 < max(meant, default=0) < count:
                yield (
                    f'request "{want.name}" asks for {count} devices, and gets one share of a '
                    f"device at most: for {count} shares write {count} requests, of one each"
                )


def _shareable(want: demand.Want, node: nodes.Node, snapshot: snapshots.Snapshot) -> int:
    """How many devices of a node the request means, if all of them are shared; else 0."""
    found = [
        candidate
        for candidate in snapshot.inventory.seen(node).candidates
        if candidate.is_on(node)
        and hurdles.all_hold((*want.class_selectors, *want.selectors), candidate)
    ]
    return len(found) if all(candidate.shareable for candidate in found) else 0
