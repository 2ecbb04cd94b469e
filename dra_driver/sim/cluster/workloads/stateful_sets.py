"""StatefulSets: pods with names that stay, one after another or all at once.

Not as the real one: there are no ControllerRevisions, so a pod below the partition that is made
again has the newest template; and no PersistentVolumeClaims are made of volumeClaimTemplates.
Source: Kubernetes 1.36, `pkg/controller/statefulset`.
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.logic.scheduling import placing
from dra_driver.sim.cluster.workloads import plans, pods

Json = dict[str, Any]

_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"


def plan(family: plans.Family) -> plans.Plan:
    """Makes pods in order, then deletes those that are too many, then those of old templates."""
    revision = f"{family.name}-{pods.template_hash(family.spec['template'])}"
    held = _by_ordinal(family)
    first = (family.spec.get("ordinals") or {}).get("start", 0)
    wanted = range(first, first + family.spec["replicas"])
    parallel = family.spec["podManagementPolicy"] == "Parallel"
    create, delete = [], []
    settled = True
    for ordinal in wanted:
        pod = held.get(ordinal)
        if pod is None:
            create.append(_made(family, ordinal, revision))
        elif placing.is_finished(pod) and not pods.is_deleting(pod):
            delete.append(pod)
        elif _runs(pod):
            continue
        settled = False
        if not parallel:
            break
    if parallel or settled:
        delete += _surplus(held, wanted, parallel=parallel)
    if settled and not delete:
        delete += _outdated(family, held, wanted, revision)
    status = _status(family, held, revision)
    return plans.Plan(create=tuple(create), delete=tuple(delete), status=status)


def _by_ordinal(family: plans.Family) -> dict[int, Json]:
    held = {}
    for pod in family.children:
        base, _, number = pod["metadata"]["name"].rpartition("-")
        if base == family.name and number.isdecimal():
            held[int(number)] = pod
    return held


def _runs(pod: Json) -> bool:
    return pods.is_ready(pod) and pods.is_active(pod)


def _surplus(held: Mapping[int, Json], wanted: range, *, parallel: bool) -> list[Json]:
    """Pods beyond those that are wanted: the last first, and one at a time unless in parallel."""
    there = [held[ordinal] for ordinal in sorted(held, reverse=True) if ordinal not in wanted]
    due = there if parallel else there[:1]
    return [pod for pod in due if not pods.is_deleting(pod)]


def _outdated(
    family: plans.Family, held: Mapping[int, Json], wanted: range, revision: str
) -> list[Json]:
    """The last pod of an old template; all run, so that one may go."""
    strategy = family.spec["updateStrategy"]
    if strategy.get("type") != "RollingUpdate" or len(held) > len(wanted):
        return []
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    old = [
        held[ordinal]
        for ordinal in reversed(wanted)
        if ordinal >= partition and pods.labels(held[ordinal]).get(pods.REVISION_LABEL) != revision
    ]
    return old[:1]


def _made(family: plans.Family, ordinal: int, revision: str) -> Json:
    name = f"{family.name}-{ordinal}"
    pod = pods.made_of(
        family.owner,
        family.spec["template"],
        name=name,
        labels={
            pods.REVISION_LABEL: revision,
            _NAME_LABEL: name,
            _INDEX_LABEL: str(ordinal),
        },
    )
    pod["spec"]["hostname"] = name
    if family.spec.get("serviceName"):
        pod["spec"]["subdomain"] = family.spec["serviceName"]
    return pod


def _status(family: plans.Family, held: Mapping[int, Json], revision: str) -> Json:
    living = [pod for pod in held.values() if not placing.is_finished(pod)]
    updated = [pod for pod in living if pods.labels(pod).get(pods.REVISION_LABEL) == revision]
    ready = sum(map(_runs, living))
    replicas = family.spec["replicas"]
    before = family.status.get("currentRevision", revision)
    current = revision if len(updated) == len(living) == replicas == ready else before
    same = [pod for pod in living if pods.labels(pod).get(pods.REVISION_LABEL) == current]
    return {
        "replicas": len(living),
        "availableReplicas": ready,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    } | plans.counts(
        observedGeneration=family.owner["metadata"].get("generation", 0),
        readyReplicas=ready,
        currentReplicas=len(same),
        updatedReplicas=len(updated),
    )
