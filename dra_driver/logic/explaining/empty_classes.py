"""Requests that can get a device nowhere, since their class has none in the whole cluster."""

import collections
from collections.abc import Collection, Iterable, Iterator

from dra_driver.logic.offering import classes
from dra_driver.logic.passthrough import hurdles
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import candidacy, demand
from dra_driver.logic.scheduling import hurdles as selecting
from dra_driver.model import sharing

_DRIVER = snapshots.DRIVER


def told(plan: demand.Plan, snapshot: snapshots.Snapshot) -> Iterator[str]:
    """A sentence for each such request, if any devices are published at all."""
    seen = {
        candidate.id: candidate
        for node in snapshot.nodes
        for candidate in snapshot.inventory.seen(node).candidates
    }
    if not seen:
        return
    for item in plan:
        for want in item.wants:
            if not any(
                selecting.all_hold(want.class_selectors, candidate) for candidate in seen.values()
            ):
                yield f'request "{want.name}": {_reason(want.device_class.name, seen.values())}'


def _reason(name: str, seen: Collection[candidacy.Candidate]) -> str:
    if classes.types(_DRIVER).get(name) is sharing.DeviceType.VFIO:
        told = "; ".join(_lacking(seen))
        why = f"It is on, and GPUs cannot be handed over: {told}" if told else _SWITCH_ON
        return (
            f"no node offers devices of class {name}, which are for virtual machines. {why}. In a "
            f"container ask for class {_DRIVER}"
        )
    return f"no node sees a device of class {name}"


_SWITCH_ON = (
    "Switch them on (`--vfio on`, `vfio` in `gpus`, `settings.vfio` of the chart) where nodes have "
    "an IOMMU that is on; where they are, the log of the driver on the node says what it lacks"
)
_MOST = 5
"""Nodes that are named; of a cluster's hundreds most lack the same."""


def _lacking(seen: Iterable[candidacy.Candidate]) -> Iterator[str]:
    """What keeps GPUs from virtual machines, as their slices tell it: by reason, with the nodes."""
    found: dict[str, dict[str, None]] = collections.defaultdict(dict)
    for candidate in seen:
        word = candidate.device.attributes.get("vfioHurdle")
        if candidate.id.driver == _DRIVER and isinstance(word, str):
            found[word][candidate.id.pool] = None
    for word, pools in sorted(found.items()):
        names = sorted(pools)
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        text = hurdles.TEXTS[hurdles.Word(word)] if word in set(hurdles.Word) else word
        yield f"{text} ({', '.join(names[:_MOST])}{more})"
