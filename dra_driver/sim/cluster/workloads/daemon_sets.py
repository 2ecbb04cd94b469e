"""DaemonSets: a pod on each node that suits it.

Not as the real one: pods are exchanged without maxSurge. Source: Kubernetes 1.36,
`pkg/controller/daemon`.
"""

import copy
from collections.abc import Sequence
from typing import Any

from dra_driver.logic.scheduling import placing
from dra_driver.model import nodes
from dra_driver.sim.cluster.workloads import plans, pods

Json = dict[str, Any]

_GENERATION_LABEL = "pod-template-generation"
_TROUBLES = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""What does not keep its pods away. Source: `util.AddOrUpdateDaemonPodTolerations`."""


def plan(family: plans.Family) -> plans.Plan:
    """Makes the pods of nodes that have none, and deletes those that are of no use."""
    template = family.spec["template"]
    digest = pods.template_hash(template)
    suited = {node.name for node in family.nodes if _suits(family, node)}
    held: dict[str, list[Json]] = {}
    for pod in family.children:
        held.setdefault(_node_of(pod), []).append(pod)
    useless = [
        pod
        for name, found in held.items()
        for place, pod in enumerate(found)
        if not pods.is_deleting(pod)
        and (name not in suited or place > 0 or placing.is_finished(pod))
    ]
    create = [_made(family, name, digest) for name in sorted(suited) if name not in held]
    current = [held[name][0] for name in sorted(suited & set(held))]
    delete = useless or _outdated(family, current, digest, len(suited))
    return plans.Plan(
        create=tuple(create),
        delete=tuple(delete),
        status=_status(family, held, current, digest, len(suited)),
    )


def _suits(family: plans.Family, node: nodes.Node) -> bool:
    body = _with_tolerations(pods.made_of(family.owner, family.spec["template"], name="any"))
    body["metadata"] |= {"namespace": family.owner["metadata"]["namespace"], "uid": ""}
    return placing.obstacle(placing.parse(body), node) is None


def _with_tolerations(pod: Json) -> Json:
    tolerations = pod["spec"].setdefault("tolerations", [])
    tolerations += [
        {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": effect}
        for trouble, effect in _TROUBLES
    ]
    return pod


def _made(family: plans.Family, node: str, digest: str) -> Json:
    generation = str(family.owner["metadata"].get("generation", 0))
    labels = {pods.REVISION_LABEL: digest, _GENERATION_LABEL: generation}
    pod = _with_tolerations(pods.made_of(family.owner, family.spec["template"], labels=labels))
    affinity = copy.deepcopy(pod["spec"].get("affinity") or {})
    wanted = affinity.setdefault("nodeAffinity", {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    only = nodes.only(node)
    for term in (wanted.get(required) or {}).get("nodeSelectorTerms") or ():
        term["matchFields"] = only["nodeSelectorTerms"][0]["matchFields"]
    wanted.setdefault(required, only)
    pod["spec"]["affinity"] = affinity
    return pod


def _node_of(pod: Json) -> str:
    """The node that the pod is on, or for which it was made."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


def _outdated(
    family: plans.Family, current: Sequence[Json], digest: str, wanted: int
) -> list[Json]:
    """Pods of old templates that may go: those that do not run, and as many as may be missing."""
    strategy = family.spec["updateStrategy"]
    if strategy.get("type") != "RollingUpdate":
        return []
    most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    room = max(plans.share(most, wanted, up=True), 1)
    room -= sum(not pods.is_ready(pod) or pods.is_deleting(pod) for pod in current)
    room -= wanted - len(current)
    old = [
        pod
        for pod in current
        if pods.labels(pod).get(pods.REVISION_LABEL) != digest and not pods.is_deleting(pod)
    ]
    broken = [pod for pod in old if not pods.is_ready(pod)]
    return broken + [pod for pod in old if pods.is_ready(pod)][: max(room, 0)]


def _status(
    family: plans.Family,
    held: dict[str, list[Json]],
    current: Sequence[Json],
    digest: str,
    wanted: int,
) -> Json:
    ready = sum(pods.is_ready(pod) and pods.is_active(pod) for pod in current)
    updated = sum(pods.labels(pod).get(pods.REVISION_LABEL) == digest for pod in current)
    return {
        "currentNumberScheduled": len(current),
        "desiredNumberScheduled": wanted,
        "numberMisscheduled": len(held) - len(current),
        "numberReady": ready,
    } | plans.counts(
        observedGeneration=family.owner["metadata"].get("generation", 0),
        numberAvailable=ready,
        numberUnavailable=wanted - ready,
        updatedNumberScheduled=updated,
    )
