"""Which devices a node can use: ResourceSlices gathered into pools, in publishing order.

Source: Kubernetes 1.36 `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/
incubating/pools_incubating.go`. Counters are kept apart by driver and pool name; 1.36.2 mixes
drivers that have pools of one name (kubernetes/kubernetes#140434).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction
from typing import Any

from dra_driver.model import claims, nodes, quantities, slices, taints

Counters = Mapping[tuple[str, str], Fraction]
"""(counter set, counter) to an amount."""

PoolKey = tuple[str, str]
"""(driver, pool name)."""

InUse = AbstractSet[slices.DeviceId]
"""Devices that allocated claims hold."""

_HANDLED = {"taints", "consumesCounters", "nodeName", "nodeSelector", "allNodes"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device in a pool, with what the allocator needs of it parsed."""

    id: slices.DeviceId
    device: slices.Device
    node_name: str | None
    node_selector: Mapping[str, Any] | None
    all_nodes: bool
    taints: tuple[taints.Taint, ...]
    consumes: Counters
    unsupported: tuple[str, ...]
    """Fields that say how the device may be used and that the allocator does not know."""

    def is_on(self, node: nodes.Node) -> bool:
        """Whether pods on the node can use the device."""
        if self.node_name is not None:
            return self.node_name == node.name
        return self.all_nodes or (
            self.node_selector is not None and nodes.matches(self.node_selector, node)
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool as one node sees it. Devices of an incomplete or invalid pool cannot be used."""

    driver: str
    name: str
    generation: int
    candidates: tuple[Candidate, ...] = ()
    counters: Counters = dataclasses.field(default_factory=dict)
    consumers: tuple[Candidate, ...] = ()
    """All devices of the pool that consume counters, those of other nodes included."""
    defect: str = ""
    """Why the pool cannot be used: incomplete, or what makes it invalid."""

    def __str__(self) -> str:
        """As in messages: driver/pool."""
        return f"{self.driver}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Slice:
    body: slices.ResourceSlice
    candidates: tuple[Candidate, ...]
    counters: tuple[tuple[str, Mapping[str, Fraction]], ...]

    def is_relevant(self, node: nodes.Node) -> bool:
        if self.body.node_name not in {None, node.name} and not self.counters:
            return False
        if self.body.extra.get("perDeviceNodeSelection"):
            return bool(self.counters) or any(c.is_on(node) for c in self.candidates)
        selector = self.body.extra.get("nodeSelector")
        return bool(
            self.counters
            or self.body.node_name == node.name
            or self.body.extra.get("allNodes")
            or (selector is not None and nodes.matches(selector, node))
        )


class Inventory:
    """All ResourceSlices, prepared. Immutable to its users: a change makes a new one that shares.

    What a node can use is worked out when first asked for, and kept.
    """

    def __init__(self, prepared: Mapping[str, _Slice]) -> None:
        """Use `of` or `update`."""
        self._slices = prepared
        self._pools: dict[PoolKey, list[_Slice]] = {}
        self._local: dict[str, set[PoolKey]] = {}
        self._shared: set[PoolKey] = set()
        for _, item in sorted(prepared.items()):
            key = (item.body.driver, item.body.pool)
            self._pools.setdefault(key, []).append(item)
            if item.body.node_name is None or item.counters:
                self._shared.add(key)
            else:
                self._local.setdefault(item.body.node_name, set()).add(key)
        self._gathered: dict[str, tuple[nodes.Node, tuple[Pool, ...]]] = {}

    @classmethod
    def of(cls, published: Iterable[slices.ResourceSlice]) -> "Inventory":
        """The inventory of these slices; names are unique."""
        return cls({item.name: _prepare(item) for item in published})

    def update(self, changes: Mapping[str, slices.ResourceSlice | None]) -> "Inventory":
        """The inventory after slices were added, changed or, with None, removed, by name."""
        prepared = {key: value for key, value in self._slices.items() if key not in changes}
        prepared |= {name: _prepare(item) for name, item in changes.items() if item is not None}
        return Inventory(prepared)

    def pools(self, node: nodes.Node) -> tuple[Pool, ...]:
        """The pools that the node sees, in the order in which the allocator goes through them."""
        known = self._gathered.get(node.name)
        if known is None or known[0] != node:
            keys = sorted(self._local.get(node.name, set()) | self._shared)
            seen = [pool for key in keys if (pool := _gather(self._pools[key], node)) is not None]
            seen.sort(key=_has_binding_conditions)
            known = (node, tuple(seen))
            self._gathered[node.name] = known
        return known[1]


def _has_binding_conditions(pool: Pool) -> bool:
    return any("bindingConditions" in candidate.device.extra for candidate in pool.candidates)


def _gather(everything: list[_Slice], node: nodes.Node) -> Pool | None:
    relevant = [item for item in everything if item.is_relevant(node)]
    if not relevant:
        return None
    first = relevant[0].body
    generation = max(item.body.generation for item in relevant)
    kept = [item for item in relevant if item.body.generation == generation]
    current = [item for item in everything if item.body.generation == generation]
    count = kept[0].body.slice_count
    if len(kept) != count:
        if any(item.body.generation > generation for item in everything):
            return None
        if len(current) != count:
            defect = f"incomplete: {len(current)} of {count} slices"
            return Pool(first.driver, first.pool, generation, defect=defect)
    candidates = tuple(candidate for item in kept for candidate in item.candidates)
    declared = [entry for item in current for entry in item.counters]
    consumers = tuple(c for item in current for c in item.candidates if c.consumes)
    counters = {(name, key): value for name, values in declared for key, value in values.items()}
    defect = _defect(candidates, [name for name, _ in declared], counters, consumers)
    return Pool(first.driver, first.pool, generation, candidates, counters, consumers, defect)


def _defect(
    candidates: tuple[Candidate, ...],
    sets: list[str],
    counters: Counters,
    consumers: tuple[Candidate, ...],
) -> str:
    if twice := _first_repeated(candidate.id.device for candidate in candidates):
        return f"invalid: device {twice!r} is listed twice"
    if twice := _first_repeated(sets):
        return f"invalid: counter set {twice!r} is defined twice"
    for consumer in consumers:
        for name, counter in consumer.consumes:
            if (name, counter) not in counters:
                return (
                    f"invalid: device {consumer.id.device!r} uses unknown counter {name}/{counter}"
                )
    return ""


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _prepare(item: slices.ResourceSlice) -> _Slice:
    return _Slice(
        item,
        tuple(_candidate(item, device) for device in item.devices),
        tuple(
            (entry["name"], _amounts(entry.get("counters")))
            for entry in item.extra.get("sharedCounters") or ()
        ),
    )


def _candidate(item: slices.ResourceSlice, device: slices.Device) -> Candidate:
    placement = device.extra if item.extra.get("perDeviceNodeSelection") else item.extra
    return Candidate(
        id=slices.DeviceId(item.driver, item.pool, device.name),
        device=device,
        node_name=placement.get("nodeName") if placement is device.extra else item.node_name,
        node_selector=placement.get("nodeSelector"),
        all_nodes=bool(placement.get("allNodes")),
        taints=tuple(taints.parse_taint(taint) for taint in device.extra.get("taints") or ()),
        consumes={
            (entry["counterSet"], counter): amount
            for entry in device.extra.get("consumesCounters") or ()
            for counter, amount in _amounts(entry.get("counters")).items()
        },
        unsupported=tuple(
            sorted(key for key, value in device.extra.items() if value and key not in _HANDLED)
        ),
    )


def _amounts(counters: Mapping[str, Any] | None) -> Mapping[str, Fraction]:
    return {
        name: quantities.parse(str(body["value"])).amount for name, body in (counters or {}).items()
    }


def held(allocations: Iterable[claims.Allocation]) -> set[slices.DeviceId]:
    """The devices that these allocations keep from others; admin access keeps none."""
    return {
        result.device
        for allocation in allocations
        for result in allocation.results
        if not result.admin_access
    }
