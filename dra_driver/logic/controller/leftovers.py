"""What nodes that do not exist any more have left in the cluster.

A node's slices and pods name it, and have it as their owner: the garbage collector of Kubernetes
removes them. What is found here is what it missed.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dra_driver.logic.preparing import mps_pod
from dra_driver.model import claims, events, texts

Json = dict[str, Any]
REASON = "NodeGone"
_MAX_NODES = 512
"""Bytes of names of nodes; an event's message may have 1024."""
_NODE = ("v1", "Node")


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


@dataclasses.dataclass(frozen=True, slots=True)
class Owned:
    """An object that goes with nodes: what is kept of it until it is known which nodes exist.

    `nodes` are names; empty where they are not known.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    nodes: tuple[str, ...]


def of_pod(body: Json) -> Owned | None:
    """The pod of an MPS daemon, with its node; None if it is another pod, or on no node."""
    metadata, node = body["metadata"], (body.get("spec") or {}).get("nodeName")
    domain = (metadata.get("labels") or {}).get(mps_pod.DOMAIN)
    if not (domain and mps_pod.is_ours(body, domain) and node):
        return None
    return _owned("Pod", metadata, node)


def of_slice(body: Json, driver: str) -> Owned | None:
    """The slice, with its node; None if it is another driver's, or of no single node."""
    spec = body["spec"]
    if spec.get("driver") != driver or not spec.get("nodeName"):
        return None
    return _owned("ResourceSlice", body["metadata"], spec["nodeName"])


def of_slice_metadata(body: Json) -> Owned:
    """A slice of which only `metadata` is known: its node is the Node that owns it, if one does."""
    owners = body["metadata"].get("ownerReferences") or ()
    nodes = (each["name"] for each in owners if (each["apiVersion"], each["kind"]) == _NODE)
    return _owned("ResourceSlice", body["metadata"], *nodes)


def of_claim(claim: claims.ResourceClaim, driver: str) -> Owned | None:
    """The claim, with the nodes whose devices it has: a node's pool has its name."""
    results = claim.allocation.results if claim.allocation else ()
    pools = sorted({each.device.pool for each in results if each.device.driver == driver})
    if not pools:
        return None
    ref = claim.ref
    return Owned("ResourceClaim", ref.namespace, ref.name, ref.uid, tuple(pools))


def gone(found: Iterable[Owned], nodes: Collection[str]) -> list[Leftover]:
    """What has a node that does not exist. `nodes` are the names of those that do."""
    return [
        Leftover(each.kind, each.namespace, each.name, each.uid, ", ".join(missing))
        for each in found
        if (missing := [node for node in each.nodes if node not in nodes])
    ]


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
    about = events.About(
        "resource.k8s.io/v1", leftover.kind, leftover.name, leftover.uid, leftover.namespace
    )
    message = (
        f"allocated to devices of {texts.told(leftover.node, _MAX_NODES)}, which does not exist "
        "any more; delete the pods that have the claim, and it is allocated anew"
    )
    said = events.Said(events.WARNING, REASON, message, time, time)
    return events.body(about, said, component, [leftover.node])


def _owned(kind: str, metadata: Mapping[str, Any], *nodes: str) -> Owned:
    return Owned(kind, metadata.get("namespace") or "", metadata["name"], metadata["uid"], nodes)
