"""Devices as the allocator looks at them: parsed once, whatever number of claims looks."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from dra_driver.model import nodes, quantities, slices, taints

Counters = Mapping[tuple[str, str], quantities.Amount]
"""(counter set, counter) to an amount."""

_HANDLED = frozenset({
    "taints", "consumesCounters", "nodeName", "nodeSelector", "allNodes",
    "allowMultipleAllocations", "bindsToNode", "bindingConditions", "bindingFailureConditions",
})  # fmt: skip

_GROUPS = "compatibilityGroups"
"""Which devices may draw on a counter set together (alpha in Kubernetes 1.37)."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device in a pool, with what the allocator needs of it parsed. Its identity is its key."""

    id: slices.DeviceId
    pool: tuple[str, str]
    """Driver and pool name."""
    device: slices.Device
    node_name: str | None
    node_selector: Mapping[str, Any] | None
    all_nodes: bool
    taints: tuple[taints.Taint, ...]
    consumes: Counters
    shareable: bool
    """Whether claims get shares of it, and not the whole of it."""
    unsupported: tuple[str, ...]
    """Fields that say how the device may be used and that the allocator does not know."""

    def is_on(self, node: nodes.Node) -> bool:
        """Whether pods on the node can use the device."""
        if self.node_name is not None:
            return self.node_name == node.name
        return self.all_nodes or (
            self.node_selector is not None and nodes.matches(self.node_selector, node)
        )


def of_slice(item: slices.ResourceSlice) -> tuple[Candidate, ...]:
    """The devices of a slice, in publishing order."""
    pool = (item.driver, item.pool)
    return tuple(_candidate(item, device, pool) for device in item.devices)


def amounts(counters: Mapping[str, Any] | None) -> Mapping[str, quantities.Amount]:
    """Counters by name, as `sharedCounters` and `consumesCounters` have them."""
    return {
        name: quantities.parse(str(body["value"])).exact for name, body in (counters or {}).items()
    }


def _candidate(
    item: slices.ResourceSlice, device: slices.Device, pool: tuple[str, str]
) -> Candidate:
    placement = device.extra if item.extra.get("perDeviceNodeSelection") else item.extra
    return Candidate(
        id=slices.DeviceId(item.driver, item.pool, device.name),
        pool=pool,
        device=device,
        node_name=placement.get("nodeName") if placement is device.extra else item.node_name,
        node_selector=placement.get("nodeSelector"),
        all_nodes=bool(placement.get("allNodes")),
        taints=tuple(taints.parse_taint(taint) for taint in device.extra.get("taints") or ()),
        consumes=_shared(
            tuple(
                ((entry["counterSet"], counter), amount)
                for entry in device.extra.get("consumesCounters") or ()
                for counter, amount in amounts(entry.get("counters")).items()
            )
        ),
        shareable=bool(device.extra.get("allowMultipleAllocations")),
        unsupported=_unsupported(device),
    )


def _unsupported(device: slices.Device) -> tuple[str, ...]:
    names = {key for key, value in device.extra.items() if value and key not in _HANDLED}
    if any(entry.get(_GROUPS) for entry in device.extra.get("consumesCounters") or ()):
        names.add(_GROUPS)
    return tuple(sorted(names))


@functools.lru_cache(maxsize=4096)
def _shared(consumed: tuple[tuple[tuple[str, str], quantities.Amount], ...]) -> Counters:
    """One mapping for all devices that consume the same: nodes of a cluster look alike."""
    return dict(consumed)
