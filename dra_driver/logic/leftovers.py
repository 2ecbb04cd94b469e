"""What nodes that do not exist any more have left in the cluster.

A node's slices and pods name it, and have it as their owner: the garbage collector of Kubernetes
removes them. What is found here is what it missed.
"""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dra_driver.logic import mps_pod
from dra_driver.model import claims

Json = dict[str, Any]
REASON = "NodeGone"
_MAX_EVENT_NAME = 253


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Leftover:
    """An object of a node that does not exist. `kind` is Pod, ResourceSlice or ResourceClaim."""

    kind: str
    namespace: str
    name: str
    uid: str
    node: str

    def __str__(self) -> str:
        """As in messages."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place} ({self.uid})"


def pods(found: Iterable[Json], nodes: Collection[str]) -> list[Leftover]:
    """The pods of MPS daemons whose node does not exist. `nodes` are the names of those that do."""
    gone = []
    for body in found:
        metadata, node = body["metadata"], (body.get("spec") or {}).get("nodeName")
        domain = (metadata.get("labels") or {}).get(mps_pod.DOMAIN)
        if domain and mps_pod.is_ours(body, domain) and node and node not in nodes:
            gone.append(_leftover("Pod", metadata, node))
    return gone


def slices(found: Iterable[Json], nodes: Collection[str], driver: str) -> list[Leftover]:
    """The driver's slices of nodes that do not exist."""
    return [
        _leftover("ResourceSlice", body["metadata"], body["spec"]["nodeName"])
        for body in found
        if body["spec"].get("driver") == driver
        and body["spec"].get("nodeName")
        and body["spec"]["nodeName"] not in nodes
    ]


def stale_claims(
    found: Iterable[claims.ResourceClaim], nodes: Collection[str], driver: str
) -> list[Leftover]:
    """Claims that have a device of a node that does not exist: a node's pool has its name."""
    gone = []
    for claim in found:
        results = claim.allocation.results if claim.allocation else ()
        pools = sorted(
            {result.device.pool for result in results if result.device.driver == driver} - {*nodes}
        )
        if pools:
            ref = claim.ref
            gone.append(
                Leftover("ResourceClaim", ref.namespace, ref.name, ref.uid, ", ".join(pools))
            )
    return gone


def due(
    found: Iterable[Leftover], before: Mapping[Leftover, float], *, now: float, grace: float
) -> tuple[dict[Leftover, float], tuple[Leftover, ...]]:
    """Since when each is known, and those that were found earlier too, `grace` seconds ago or more.

    A node that only restarts may be without its Node object for a moment.
    """
    since = {leftover: before.get(leftover, now) for leftover in found}
    ripe = (each for each in since if each in before and now - since[each] >= grace)
    return since, tuple(sorted(ripe))


def claim_event(leftover: Leftover, *, component: str, time: str) -> Json:
    """The event that tells of a stale claim; its name is the same each time."""
    digest = hashlib.sha256(f"{leftover.uid}\0{leftover.node}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{leftover.name[: _MAX_EVENT_NAME - 17]}.{digest}",
            "namespace": leftover.namespace,
        },
        "involvedObject": {
            "apiVersion": "resource.k8s.io/v1",
            "kind": leftover.kind,
            "namespace": leftover.namespace,
            "name": leftover.name,
            "uid": leftover.uid,
        },
        "type": "Warning",
        "reason": REASON,
        "message": f"allocated to devices of {leftover.node}, which does not exist any more; "
        "delete the pods that have the claim, and it is allocated anew",
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "source": {"component": component},
        "reportingComponent": component,
    }


def _leftover(kind: str, metadata: Mapping[str, Any], node: str) -> Leftover:
    return Leftover(kind, metadata.get("namespace") or "", metadata["name"], metadata["uid"], node)
