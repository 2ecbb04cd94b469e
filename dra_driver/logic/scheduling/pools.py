"""Which devices a node can use: ResourceSlices gathered into pools, in publishing order.

Source: Kubernetes 1.36 `staging/src/k8s.io/dynamic-resource-allocation/structured/internal/
incubating/pools_incubating.go`.
"""

import dataclasses
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from dra_driver.logic.scheduling import candidacy, usage
from dra_driver.model import nodes, slices

PoolKey = usage.PoolKey
_Keys = frozenset[PoolKey]
_NO_KEYS: _Keys = frozenset()
INVALID = "invalid: "
"""How the defect of a pool begins whose slices contradict each other."""
_QUESTIONS = 256
"""Kept for each node; a claim asks one for each of its requests."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool as one node sees it. Devices of an incomplete or invalid pool cannot be used."""

    driver: str
    name: str
    generation: int
    candidates: tuple[candidacy.Candidate, ...] = ()
    counters: candidacy.Counters = dataclasses.field(default_factory=dict)
    devices: Mapping[str, candidacy.Candidate] = dataclasses.field(default_factory=dict)
    """All devices of the pool by name, those of other nodes included."""
    defect: str = ""
    """Why the pool cannot be used: incomplete, or what makes it invalid."""

    def __str__(self) -> str:
        """As in messages: driver/pool."""
        return f"{self.driver}/{self.name}"

    @property
    def is_invalid(self) -> bool:
        """Whether it cannot be used although all its slices are there."""
        return self.defect.startswith(INVALID)

    @property
    def key(self) -> PoolKey:
        """What tells it from other pools."""
        return self.driver, self.name


class Seen:
    """What one node sees: pools in the order in which the allocator takes them, and their devices.

    `candidates` are those of pools that can be used.
    """

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools
        self.candidates = tuple(c for pool in pools if not pool.defect for c in pool.candidates)
        self._answers: dict[Hashable, bytearray] = {}

    def answers(self, question: Hashable) -> bytearray:
        """Answers to one question about each candidate, kept for the next who asks.

        They start as 0; what other numbers stand for is up to the caller.
        """
        if question not in self._answers:
            if len(self._answers) >= _QUESTIONS:
                self._answers = {}
            self._answers[question] = bytearray(len(self.candidates))
        return self._answers[question]


class _Slice:
    """A slice; its devices are parsed when a node first looks at them."""

    def __init__(self, body: slices.ResourceSlice) -> None:
        self.body = body
        self._candidates: tuple[candidacy.Candidate, ...] | None = None

    @property
    def candidates(self) -> tuple[candidacy.Candidate, ...]:
        if self._candidates is None:
            self._candidates = candidacy.of_slice(self.body)
        return self._candidates

    @property
    def counters(self) -> list[Mapping[str, Any]]:
        return self.body.extra.get("sharedCounters") or []

    def is_relevant(self, node: nodes.Node) -> bool:
        if self.counters and not self.body.devices:
            # Before Kubernetes 1.35 counters stand with their devices, and are for their nodes.
            return True
        if self.body.node_name is not None:
            return self.body.node_name == node.name
        if self.body.extra.get("perDeviceNodeSelection"):
            return any(candidate.is_on(node) for candidate in self.candidates)
        selector = self.body.extra.get("nodeSelector")
        return bool(
            self.body.extra.get("allNodes")
            or (selector is not None and nodes.matches(selector, node))
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Index:
    """Slices by pool, in the order of their names, and pools by the nodes that they are for."""

    names: Mapping[str, PoolKey] = dataclasses.field(default_factory=dict)
    pools: Mapping[PoolKey, tuple[_Slice, ...]] = dataclasses.field(default_factory=dict)
    local: Mapping[str, _Keys] = dataclasses.field(default_factory=dict)
    wide: _Keys = frozenset()
    """Pools with slices that name no node."""

    def of_node(self, node: nodes.Node) -> _Keys:
        return self.local.get(node.name, _NO_KEYS) | self.wide

    def changed(
        self, gone: Collection[str], added: Mapping[PoolKey, Sequence[_Slice]]
    ) -> tuple["_Index", _Keys]:
        """Without the slices of these names, with others; also the pools that this touches."""
        touched = frozenset(self.names[name] for name in gone if name in self.names) | set(added)
        pools = {key: self._replaced(key, gone, added.get(key, ())) for key in touched}
        local = dict(self.local)
        for node in _nodes(self.pools, touched) | _nodes(pools, touched):
            here = {key for key in touched if node in _nodes(pools, [key])}
            local[node] = self.local.get(node, _NO_KEYS) - touched | here
        wide = {k for k, items in pools.items() if any(i.body.node_name is None for i in items)}
        names = {name: key for name, key in self.names.items() if name not in gone}
        names |= {item.body.name: key for key, items in added.items() for item in items}
        left = {key: items for key, items in {**self.pools, **pools}.items() if items}
        return _Index(names, left, local, self.wide - touched | wide), touched

    def _replaced(
        self, key: PoolKey, gone: Collection[str], added: Sequence[_Slice]
    ) -> tuple[_Slice, ...]:
        kept = [item for item in self.pools.get(key, ()) if item.body.name not in gone]
        return tuple(sorted([*kept, *added], key=lambda item: item.body.name))


def _nodes(pools: Mapping[PoolKey, tuple[_Slice, ...]], keys: Iterable[PoolKey]) -> set[str]:
    slices_ = (item.body for key in keys for item in pools.get(key, ()))
    return {body.node_name for body in slices_ if body.node_name is not None}


class Inventory:
    """All ResourceSlices, by pool. Immutable to its users: a change makes a new one that shares.

    What a node can use is worked out when first asked for, and kept until a slice of its pools
    changes.
    """

    def __init__(
        self,
        index: _Index,
        gathered: dict[str, tuple[nodes.Node, Seen]],
        elsewhere: dict[PoolKey, Pool | None],
    ) -> None:
        """Use `of` or `update`."""
        self._index = index
        self._gathered = gathered
        self._elsewhere = elsewhere

    @classmethod
    def of(cls, published: Iterable[slices.ResourceSlice]) -> "Inventory":
        """The inventory of these slices; names are unique."""
        return cls(_Index(), {}, {}).update({item.name: item for item in published})

    def update(self, changes: Mapping[str, slices.ResourceSlice | None]) -> "Inventory":
        """The inventory after slices were added, changed or, with None, removed, by name."""
        added: dict[PoolKey, list[_Slice]] = {}
        for item in changes.values():
            if item is not None:
                added.setdefault((item.driver, item.pool), []).append(_Slice(item))
        index, touched = self._index.changed(changes, added)
        gathered = self._gathered
        if touched & (self._index.wide | index.wide):
            gathered = {}
        concerned = _nodes(self._index.pools, touched) | _nodes(index.pools, touched)
        return Inventory(
            index,
            {name: known for name, known in gathered.items() if name not in concerned},
            {key: pool for key, pool in self._elsewhere.items() if key not in touched},
        )

    def pools(self, node: nodes.Node) -> tuple[Pool, ...]:
        """The pools with devices for the node, in the order in which the allocator takes them."""
        return self.seen(node).pools

    def seen(self, node: nodes.Node) -> Seen:
        """What the node sees.

        A pool that has nothing for the node but counters of other nodes is not part of it.
        """
        known = self._gathered.get(node.name)
        if known is None or known[0] != node:
            gathered = [
                _gather(self._index.pools[key], node) for key in sorted(self._index.of_node(node))
            ]
            found = [pool for pool in gathered if pool is not None]
            known = (node, Seen(tuple(sorted(found, key=has_binding_conditions))))
            self._gathered[node.name] = known
        return known[1]

    def unusable_elsewhere(self, node: nodes.Node) -> tuple[Pool, ...]:
        """Pools of other nodes that cannot be used and that this node looks at all the same.

        The allocator takes in slices with counters whatever node they are of.
        """
        own = self._index.of_node(node)
        found = []
        for key, items in sorted(self._index.pools.items()):
            if key in own:
                continue
            if key not in self._elsewhere:
                # Any node that the pool has no slice of sees the same of it.
                self._elsewhere[key] = _gather(items, nodes.Node(""))
            pool = self._elsewhere[key]
            if pool is not None and pool.defect:
                found.append(pool)
        return tuple(found)


def has_binding_conditions(pool: Pool) -> bool:
    """Whether a device of the pool has to be waited for once it is allocated."""
    return any(candidate.device.extra.get("bindingConditions") for candidate in pool.candidates)


def _gather(everything: tuple[_Slice, ...], node: nodes.Node) -> Pool | None:
    relevant = [item for item in everything if item.is_relevant(node)]
    if not relevant:
        return None
    first = relevant[0].body
    generation = max(item.body.generation for item in relevant)
    kept = [item for item in relevant if item.body.generation == generation]
    current, count = kept, kept[0].body.slice_count
    if len(kept) != count:
        # Only then the scheduler looks at slices that are for other nodes.
        if any(item.body.generation > generation for item in everything):
            return None
        current = [item for item in everything if item.body.generation == generation]
        if len(current) != count:
            defect = f"incomplete: {len(current)} of {count} slices"
            return Pool(first.driver, first.pool, generation, defect=defect)
    offered = tuple(candidate for item in kept for candidate in item.candidates)
    sets = [(entry["name"], entry.get("counters")) for item in current for entry in item.counters]
    counters = {
        (name, counter): amount
        for name, values in sets
        for counter, amount in candidacy.amounts(values).items()
    }
    devices = {c.id.device: c for item in current for c in item.candidates}
    defect = _defect(offered, [name for name, _ in sets], counters, devices.values())
    return Pool(first.driver, first.pool, generation, offered, counters, devices, defect)


def _defect(
    offered: tuple[candidacy.Candidate, ...],
    sets: list[str],
    counters: candidacy.Counters,
    everything: Iterable[candidacy.Candidate],
) -> str:
    if twice := _first_repeated(candidate.id.device for candidate in offered):
        return f"{INVALID}device {twice!r} is listed twice"
    if twice := _first_repeated(sets):
        return f"{INVALID}counter set {twice!r} is defined twice"
    for candidate in everything:
        if unknown := candidate.consumes.keys() - counters.keys():
            name, counter = min(unknown)
            return f"{INVALID}device {candidate.id.device!r} uses unknown counter {name}/{counter}"
    return ""


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""
