"""What the scheduler knows of the cluster: parsed once, when an object changes.

Every `on_…` is an informer's callback. It tells whether pods that did not fit might fit now.
"""

import collections
import threading
import uuid
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.logic.scheduling import (
    emulation,
    placing,
    pools,
    scheduling,
    taint_rules,
    usage,
)
from dra_driver.model import claims, nodes, slices

Json = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name)."""

DELETED = "DELETED"


class ClusterState:
    """Nodes, slices, classes, allocated devices and pods per node. Threads may share it."""

    def __init__(self, behaviour: emulation.Emulation = emulation.FIXED) -> None:
        self._lock = threading.Lock()
        self._log = telemetry.logger("scheduler")
        self._behaviour = behaviour
        self._inventory = pools.Inventory.of(())
        self._slices: dict[str, slices.ResourceSlice | None] = {}
        self._published: dict[str, slices.ResourceSlice] = {}
        self._rules: dict[str, taint_rules.Rule] = {}
        self._classes: dict[str, claims.DeviceClass] = {}
        self._nodes: dict[str, nodes.Node] = {}
        self._versions: dict[str, int] = {}
        self._allocations: dict[str, claims.Allocation] = {}
        self._in_use = usage.InUse()
        self._placed: dict[str, str] = {}
        self._pods: collections.Counter[str] = collections.Counter()

    def on_slice(self, kind: str, body: Json) -> bool:
        """A ResourceSlice changed."""
        name = body["metadata"]["name"]
        with self._lock:
            parsed = None if kind == DELETED else self._parse_slice(body)
            if parsed is None:
                self._published.pop(name, None)
                self._slices[name] = None
            else:
                self._published[name] = parsed
                self._slices[name] = taint_rules.applied(parsed, self._rules.values())
        return True

    def on_taint_rule(self, kind: str, body: Json) -> bool:
        """A DeviceTaintRule changed."""
        name = body["metadata"]["name"]
        with self._lock:
            self._rules.pop(name, None)
            if kind != DELETED:
                self._rules[name] = taint_rules.parse(body, self._behaviour)
            for published, item in self._published.items():
                self._slices[published] = taint_rules.applied(item, self._rules.values())
        return True

    def on_class(self, kind: str, body: Json) -> bool:
        """A DeviceClass changed."""
        with self._lock:
            if kind == DELETED:
                self._classes.pop(body["metadata"]["name"], None)
            else:
                self._classes[body["metadata"]["name"]] = claims.parse_class(body)
        return True

    def on_node(self, kind: str, body: Json) -> bool:
        """A Node changed; whether in a way that matters, so not by a mere heartbeat."""
        name = body["metadata"]["name"]
        with self._lock:
            before = self._nodes.pop(name, None)
            if kind != DELETED:
                self._nodes[name] = nodes.parse(body)
            return self._nodes.get(name) != before

    def on_claim(self, kind: str, body: Json) -> bool:
        """A ResourceClaim changed, or was written by the scheduler; whether it gave devices back.

        What the watch tells of a claim after that may be older than what was written.
        """
        uid, version = body["metadata"]["uid"], int(body["metadata"]["resourceVersion"])
        allocation = (body.get("status") or {}).get("allocation")
        after = None
        if kind != DELETED and allocation is not None:
            after = claims.parse_allocation(allocation)
        with self._lock:
            if kind != DELETED and version < self._versions.get(uid, 0):
                return False
            self._versions[uid] = version
            before = self._allocations.pop(uid, None)
            if after is not None:
                self._allocations[uid] = after
            if before != after:
                self._in_use = self._in_use.changed(
                    added=() if after is None else (after,),
                    removed=() if before is None else (before,),
                )
            if kind == DELETED:
                del self._versions[uid]
        return before is not None and before != after

    def on_pod(self, kind: str, body: Json) -> None:
        """A Pod changed."""
        node = str((body.get("spec") or {}).get("nodeName") or "")
        runs = kind != DELETED and not placing.is_finished(body)
        # A pod never loses its node: one without has none yet, or was bound since.
        if node or not runs:
            self.placed(body["metadata"]["uid"], node if runs else "")

    def placed(self, uid: str, node: str) -> None:
        """A pod runs on a node, or with an empty name on none any more."""
        with self._lock:
            before = self._placed.pop(uid, None)
            if before is not None:
                self._pods[before] -= 1
            if node:
                self._placed[uid] = node
                self._pods[node] += 1

    def is_placed(self, uid: str) -> bool:
        """Whether a pod has a node."""
        with self._lock:
            return uid in self._placed

    def node_of(self, uid: str) -> str | None:
        """The node of a pod, as long as it runs there; None if it has none."""
        with self._lock:
            return self._placed.get(uid)

    def view(self) -> scheduling.View:
        """The cluster now; nodes with the fewest pods first, then by name."""
        with self._lock:
            if self._slices:
                self._inventory = self._inventory.update(self._slices)
                self._slices = {}
            order = sorted(
                self._nodes.values(), key=lambda node: (self._pods[node.name], node.name)
            )
            return scheduling.View(
                inventory=self._inventory,
                classes=dict(self._classes),
                nodes=tuple(order),
                in_use=self._in_use,
                share_ids=lambda: str(uuid.uuid4()),
                behaviour=self._behaviour,
            )

    def _parse_slice(self, body: Json) -> slices.ResourceSlice | None:
        try:
            return slices.parse(body)
        except errors.Rejected as error:
            # Without it its pool is incomplete, so that none of its devices is handed out.
            name = body["metadata"]["name"]
            self._log.warning("ResourceSlice ignored", slice=name, reason=str(error))
            return None
