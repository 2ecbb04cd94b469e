"""What the evictor knows of slices, rules and allocated claims: read once, when an object changes.

Every `on_…` is an informer's callback. It tells the pods for which something else may hold now.
"""

import dataclasses
import threading
from collections.abc import Collection
from typing import Any

from dra_driver.logic.scheduling import emulation, evicting, taint_rules
from dra_driver.model import claims, slices, taints
from dra_driver.sim.cluster import cluster_state, rule_status

Json = dict[str, Any]
Key = cluster_state.Key
_Pool = tuple[str, str]
"""Driver and pool name."""


class TaintSight:
    """Taints that end pods, by whom they are, and who has the devices. Threads may share it."""

    def __init__(self, behaviour: emulation.Emulation = emulation.FIXED) -> None:
        """Nothing is known."""
        self._behaviour = behaviour
        self._lock = threading.Lock()
        self._pools: dict[_Pool, dict[str, Json]] = {}
        self._tainted: evicting.Tainted = {}
        self._rules: dict[str, taint_rules.Rule] = {}
        self._devices: dict[Key, tuple[slices.DeviceId, ...]] = {}
        """Of each claim that is allocated."""
        self._users: dict[Key, tuple[Key, ...]] = {}
        """Pods for which a claim is reserved."""

    def on_slice(self, kind: str, body: Json) -> Collection[Key]:
        """A ResourceSlice changed."""
        key = body["spec"]["driver"], body["spec"]["pool"]["name"]
        with self._lock:
            pool = self._pools.setdefault(key, {})
            before = evicting.tainted(pool.values())
            pool.pop(body["metadata"]["name"], None)
            if kind != cluster_state.DELETED:
                pool[body["metadata"]["name"]] = body
            if not pool:
                del self._pools[key]
            after = evicting.tainted(pool.values())
            changed = {
                device
                for device in before.keys() | after.keys()
                if _dated(before.get(device)) != _dated(after.get(device))
            }
            kept = {each: of for each, of in self._tainted.items() if each not in before}
            self._tainted = {**kept, **after}
            return self._pods_with(changed)

    def on_claim(self, kind: str, body: Json) -> Collection[Key]:
        """A ResourceClaim changed."""
        namespace = body["metadata"]["namespace"]
        key = namespace, body["metadata"]["name"]
        claim = claims.parse_outcome(body)
        users = (body.get("status") or {}).get("reservedFor") or ()
        with self._lock:
            before = self._users.pop(key, ())
            self._devices.pop(key, None)
            if kind == cluster_state.DELETED or claim.allocation is None:
                return set(before)
            self._devices[key] = tuple(result.device for result in claim.allocation.results)
            self._users[key] = tuple(
                (namespace, user["name"])
                for user in users
                if user.get("resource", "pods") == "pods"
            )
            return {*before, *self._users[key]}

    def on_rule(self, kind: str, body: Json) -> Collection[Key]:
        """A DeviceTaintRule changed."""
        name = body["metadata"]["name"]
        with self._lock:
            before = self._rules.pop(name, None)
            if kind != cluster_state.DELETED and rule_status.is_evicting(body):
                # Without a selector it selects nothing here, also where the scheduler takes that
                # for everything.
                self._rules[name] = taint_rules.parse(body)
            if before == self._rules.get(name):
                return ()
            return {pod for pods in self._users.values() for pod in pods}

    def now(self) -> evicting.Sight:
        """The taints as they are."""
        with self._lock:
            return evicting.Sight(self._tainted, tuple(self._rules.values()), self._behaviour)

    def dry_run(self, rule: Json) -> evicting.Sight:
        """As if a rule that has no effect ended pods, and no other rule."""
        taint = rule["spec"]["taint"] | {"effect": taints.NO_EXECUTE}
        alone = dataclasses.replace(taint_rules.parse(rule), taint=taint)
        return dataclasses.replace(self.now(), rules=(alone,))

    def selected(self, rule: Json) -> tuple[int, int]:
        """How many devices a rule selects: of those that are published, and that claims have."""
        parsed = taint_rules.parse(rule)
        with self._lock:
            published = sum(
                parsed.selects(slices.DeviceId(*key, device["name"]))
                for key, pool in self._pools.items()
                for _, device in evicting.devices(pool.values())
            )
            allocated = sum(
                parsed.selects(device) for each in self._devices.values() for device in each
            )
        return published, allocated

    def _pods_with(self, devices: set[slices.DeviceId]) -> set[Key]:
        return {
            pod
            for claim, own in self._devices.items()
            if not devices.isdisjoint(own)
            for pod in self._users[claim]
        }


def _dated(found: tuple[taints.Taint, ...] | None) -> list[tuple[taints.Taint, str]]:
    """Taints with what does not count when they are compared."""
    return [(taint, taint.added) for taint in found or ()]
