"""Requests that can get a device nowhere, since their class has none in the whole cluster."""

from collections.abc import Iterator

from dra_driver.logic.offering import classes
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import demand, hurdles
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
                hurdles.all_hold(want.class_selectors, candidate) for candidate in seen.values()
            ):
                yield f'request "{want.name}": {_reason(want.device_class.name)}'


def _reason(name: str) -> str:
    if classes.types(_DRIVER).get(name) is sharing.DeviceType.VFIO:
        return (
            f"no node offers devices of class {name}, which are for virtual machines. Switch them "
            "on (`--vfio on`, `vfio` in `gpus`, `settings.vfio` of the chart) where nodes have an "
            "IOMMU that is on; where they are, the log of the driver on the node says what it "
            f"lacks. In a container ask for class {_DRIVER}"
        )
    return f"no node sees a device of class {name}"
