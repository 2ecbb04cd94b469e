"""What keeps pods from devices that their claims have, and what to do about it.

The plugin on the node says the same to the kubelet, one thing at a time, once a pod starts there.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.logic.explaining import tainted_devices
from dra_driver.logic.picturing import granted, snapshots
from dra_driver.logic.preparing import device_status
from dra_driver.logic.scheduling import candidacy, pools
from dra_driver.model import claims, nodes, slices

Json = dict[str, Any]

_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PRETENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}


@dataclasses.dataclass(frozen=True, slots=True)
class Hindrance:
    """What is wrong with a claim, or with one device of it, and the next step.

    `device` is empty where it is the claim as a whole. With `stops` False pods can go on, or start.
    """

    claim: str
    device: str
    problem: str
    remedy: str
    stops: bool = True

    def __str__(self) -> str:
        """As in messages."""
        what = f"claim {self.claim}{', device ' if self.device else ''}{self.device}"
        return f"{what}: {self.problem}. {self.remedy}"


def of(body: Json, snapshot: snapshots.Snapshot, node: str = "") -> tuple[Hindrance, ...]:
    """What is wrong with an allocated claim; `node` is where its pod runs, if it does."""
    claim = claims.parse_outcome(body)
    if claim.allocation is None:
        return ()
    about = _About(f"{claim.ref.namespace}/{claim.ref.name}", body, claim, snapshot)
    found = [*about.of_claim(node)]
    if not any(one.stops for one in found):
        found += [one for result in claim.allocation.results for one in about.of_device(result)]
    return tuple(dict.fromkeys(found))


@dataclasses.dataclass(frozen=True, slots=True)
class _About:
    name: str
    body: Json
    claim: claims.ResourceClaim
    snapshot: snapshots.Snapshot

    @property
    def allocation(self) -> claims.Allocation:
        return self.claim.allocation or claims.Allocation(())

    def of_claim(self, runs_on: str) -> Iterator[Hindrance]:
        """What concerns all of its devices."""
        place = granted.node_of(self.allocation)
        known = {node.name: node for node in self.snapshot.nodes}
        if place and place not in known and self.snapshot.nodes_given:
            yield self._hindrance(
                f"it is allocated to devices of node {place}, which does not exist",
                "Delete the pods that have the claim, and it is allocated anew",
            )
            return
        selector = self.allocation.node_selector
        here = known.get(runs_on)
        if here is not None and selector is not None and not nodes.matches(selector, here):
            yield self._hindrance(
                f"the pod was bound to node {runs_on}, and its devices are on "
                f"{f'node {place}' if place else 'other nodes'}",
                "Make the pod again, without spec.nodeName: the scheduler binds it where they are",
            )
        there = known.get(place or "")
        away = [taint for taint in there.taints if taint.key in _AWAY] if there else []
        if away:
            yield self._hindrance(
                f"node {place} has the taint {away[0]}: it does not answer",
                "Look at the node (`kubectl describe node`); once its pods are deleted and its "
                "object too, the claim is free",
            )

    def of_device(self, result: claims.Result) -> Iterator[Hindrance]:
        """What concerns one of its devices."""
        pool = self._pool(result.device)
        candidate = pool.devices.get(result.device.device) if pool is not None else None
        if candidate is None:
            yield self._unlisted(result, pool)
        elif not result.admin_access:
            yield from self._rivals(result, candidate)
        if candidate is not None:
            yield from self._tainted(result, candidate)
        yield from self._reported(result)

    def _unlisted(self, result: claims.Result, pool: pools.Pool | None) -> Hindrance:
        driver, name = result.device.driver, f"{result.device.driver}/{result.device.pool}"
        if pool is None:
            return self._hindrance(
                f"no ResourceSlice has its pool {name}",
                f"Either driver {driver} does not run on the node, or it has not published yet: "
                "look at its pods and their log. If the node is gone for good, delete the pods "
                "that have the claim",
                result,
            )
        if pool.defect:
            return self._hindrance(
                f"its pool is {pool.defect}, so that it cannot be seen whether the device is there",
                f"Wait until driver {driver} has published all of it; else look at its log",
                result,
                stops=False,
            )
        return self._hindrance(
            f"no ResourceSlice lists it; pool {name} has {_listed(pool.devices)}",
            "Was the status of the claim written by hand or restored, or MIG changed on the node? "
            "Delete the pods that have the claim, and it is allocated anew",
            result,
        )

    def _rivals(self, result: claims.Result, candidate: candidacy.Candidate) -> Iterator[Hindrance]:
        """Other claims that have what is enough for one of them."""
        for holder in self._others(candidate, result):
            yield self._hindrance(
                f"{holder} has it too{self._whose(holder, result.device)}",
                _end_one(holder),
                result,
            )
        for device, holder in self._overlapping(candidate):
            yield self._hindrance(
                f"it overlaps {device.device}, which {holder} has{self._whose(holder, device)}",
                _end_one(holder),
                result,
            )

    def _others(
        self, candidate: candidacy.Candidate, result: claims.Result
    ) -> Iterator[snapshots.Holder]:
        used = self.snapshot.in_use.device(candidate.id)
        full = {
            name: amount
            for name, amount in used.consumed.items()
            if name in candidate.device.capacity and amount > candidate.device.capacity[name].exact
        }
        for holder in self._rival_holders(candidate.id):
            theirs = [
                one
                for one in holder.allocation.results
                if one.device == candidate.id and not one.admin_access
            ]
            # Shares exclude each other only where they are more than there is.
            whole = any(one.share_id is None for one in (result, *theirs))
            if theirs and (whole or full):
                yield holder

    def _overlapping(
        self, candidate: candidacy.Candidate
    ) -> Iterator[tuple[slices.DeviceId, snapshots.Holder]]:
        """Devices in use that take from the same counters, of which there are not enough."""
        pool = self._pool(candidate.id)
        if pool is None or not candidate.consumes:
            return
        held = [
            other
            for name in self.snapshot.in_use.pool(pool.key)
            if (other := pool.devices.get(name)) is not None
        ]
        for other in held:
            both = candidate.consumes.keys() & other.consumes.keys()
            short = any(
                sum(one.consumes.get(counter, 0) for one in held) > pool.counters.get(counter, 0)
                for counter in both
                if candidate.consumes[counter] and other.consumes[counter]
            )
            if other is not candidate and short:
                for holder in self._rival_holders(other.id):
                    yield other.id, holder

    def _rival_holders(self, device: slices.DeviceId) -> Iterator[snapshots.Holder]:
        for holder in self.snapshot.holders.get(device, ()):
            if f"{holder.namespace}/{holder.claim}" != self.name:
                yield holder

    def _whose(self, holder: snapshots.Holder, device: slices.DeviceId) -> str:
        """For which of the two claims the driver has prepared it, as far as it tells."""
        other = self.snapshot.claims[holder.namespace, holder.claim]
        if _is_ready(other, device):
            return ", for which it is prepared"
        return ""

    def _tainted(
        self, result: claims.Result, candidate: candidacy.Candidate
    ) -> Iterator[Hindrance]:
        for one in tainted_devices.of(result, candidate, ending=self._ending()):
            yield self._hindrance(one.problem, one.remedy, result, stops=one.stops)

    def _ending(self) -> str:
        annotations = self.body["metadata"].get("annotations") or {}
        if _PRETENDED.items() <= annotations.items():
            return "Kubernetes before 1.38 does not end pods with extended resources for that"
        return "Kubernetes ends its pods"

    def _reported(self, result: claims.Result) -> Iterator[Hindrance]:
        entry = granted.reported(self.body, result) or {}
        for condition in entry.get("conditions") or ():
            if condition["type"] == device_status.READY and condition["status"] == "False":
                since = condition.get("lastTransitionTime")
                yield self._hindrance(
                    f"its driver reports that it is not ready ({condition.get('reason')}"
                    f"{f', since {since}' if since else ''}): "
                    f"{_short(condition.get('message') or '')}",
                    f"The log of driver {result.device.driver} on the node has more",
                    result,
                )

    def _pool(self, device: slices.DeviceId) -> pools.Pool | None:
        """The pool of a device, as a node sees it that can use it."""
        place = granted.node_of(self.allocation)
        for node in self.snapshot.nodes:
            if place and node.name != place:
                continue
            for pool in self.snapshot.inventory.pools(node):
                if pool.key == (device.driver, device.pool):
                    return pool
        return None

    def _hindrance(
        self, problem: str, remedy: str, result: claims.Result | None = None, *, stops: bool = True
    ) -> Hindrance:
        device = f"{result.device}" if result is not None else ""
        return Hindrance(self.name, device, problem.rstrip("."), remedy, stops)


def _end_one(holder: snapshots.Holder) -> str:
    if not holder.pods:
        return f"Delete claim {holder.namespace}/{holder.claim}: no pod uses it"
    return "Delete the pods of one of the two claims"


def _listed(devices: Mapping[str, object]) -> str:
    names = sorted(devices)
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST]) or 'no devices'}{more}"


_MOST = 8
_LONGEST = 512


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _is_ready(body: Json, device: slices.DeviceId) -> bool:
    return any(
        condition["type"] == device_status.READY and condition["status"] == "True"
        for entry in (body.get("status") or {}).get("devices") or ()
        if (entry["driver"], entry["pool"], entry["device"])
        == (device.driver, device.pool, device.device)
        for condition in entry.get("conditions") or ()
    )
