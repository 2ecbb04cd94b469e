"""Which nodes may run a pod, apart from its devices: the basic filters of kube-scheduler.

CPU and memory are not counted: the embedded cluster's nodes have them without end.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.logic.scheduling import extended_resources
from dra_driver.model import nodes, taints

Json = dict[str, Any]

SCHEDULER = "default-scheduler"
"""Who places pods that name nobody."""
MAX_CONSUMERS = 256
"""Pods that can share a claim. Source: `resource/v1.ResourceClaimReservedForMaxSize`."""

_UNSCHEDULABLE = taints.Taint("node.kubernetes.io/unschedulable")
_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclasses.dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim as a pod names it; `claim` is None as long as a template's claim is not made.

    `template` is None for a claim that the pod names directly.
    """

    name: str
    claim: str | None
    template: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as placing needs it."""

    namespace: str
    name: str
    uid: str
    claims: tuple[PodClaim, ...]
    node_labels: Mapping[str, str]
    affinity: Mapping[str, Any] | None
    tolerations: tuple[taints.Toleration, ...]
    extended_resources: tuple[str, ...]
    """Resources like `nvidia.com/gpu` that its containers ask for."""


def parse(body: Json) -> Pod:
    """The pod in a core/v1 object."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        claims=tuple(_claims(spec, body.get("status") or {})),
        node_labels=spec.get("nodeSelector") or {},
        affinity=affinity.get("requiredDuringSchedulingIgnoredDuringExecution"),
        tolerations=tuple(taints.parse_toleration(item) for item in spec.get("tolerations") or ()),
        extended_resources=tuple(sorted(extended_resources.needs(body))),
    )


def is_finished(body: Json) -> bool:
    """Whether the pod's containers will not run again."""
    return (body.get("status") or {}).get("phase") in _FINISHED


def is_done(body: Json) -> bool:
    """Whether the pod has no more use for its claims: finished, or deleted before it ran.

    Source: `pkg/controller/resourceclaim/controller.go`, isPodDone.
    """
    deleted = "deletionTimestamp" in body["metadata"]
    return is_finished(body) or (deleted and not (body.get("spec") or {}).get("nodeName"))


def is_pending(body: Json, scheduler: str = SCHEDULER) -> bool:
    """Whether the pod waits for this scheduler to give it a node."""
    spec = body.get("spec") or {}
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or spec.get("schedulerName", scheduler) != scheduler
        or "deletionTimestamp" in body["metadata"]
        or is_finished(body)
    )


def obstacle(pod: Pod, node: nodes.Node) -> str | None:
    """Why the node does not take the pod, in the words of kube-scheduler."""
    found = [taint for taint in node.taints if _keeps_away(taint, pod)]
    if node.unschedulable and _keeps_away(_UNSCHEDULABLE, pod):
        return "node(s) were unschedulable"
    if found:
        shown = f"{found[0].key}: {found[0].value}" if found[0].value else found[0].key
        return f"node(s) had untolerated taint {{{shown}}}"
    labelled = all(node.labels.get(key) == value for key, value in pod.node_labels.items())
    if not labelled or (pod.affinity is not None and not nodes.matches(pod.affinity, node)):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def _keeps_away(taint: taints.Taint, pod: Pod) -> bool:
    return taint.blocks and not any(item.covers(taint) for item in pod.tolerations)


def _claims(spec: Json, status: Json) -> Iterable[PodClaim]:
    made = {
        item["name"]: item.get("resourceClaimName")
        for item in status.get("resourceClaimStatuses") or ()
    }
    for item in spec.get("resourceClaims") or ():
        template = item.get("resourceClaimTemplateName")
        if template is None:
            yield PodClaim(item["name"], item["resourceClaimName"])
        # A status without a name says that the pod needs no claim after all.
        elif item["name"] not in made or made[item["name"]] is not None:
            yield PodClaim(item["name"], made.get(item["name"]), template)
