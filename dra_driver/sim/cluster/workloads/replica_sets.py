"""ReplicaSets and ReplicationControllers: so many pods, made and made again.

Not as the real one: pods that nobody controls are not adopted; all pods are made at once; what
passes for ready passes for available. Source: Kubernetes 1.36, `pkg/controller/replicaset`.
"""

from typing import Any

from dra_driver.sim.cluster.workloads import plans, pods

Json = dict[str, Any]

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def plan(family: plans.Family) -> plans.Plan:
    """Makes the pods that are missing, or deletes those that are too many."""
    spec = family.spec
    active = [pod for pod in family.children if pods.is_active(pod)]
    missing = spec["replicas"] - len(active)
    ready = sum(map(pods.is_ready, active))
    wanted = (spec["template"].get("metadata") or {}).get("labels") or {}
    labelled = sum(wanted.items() <= pods.labels(pod).items() for pod in active)
    status = {"replicas": len(active)} | plans.counts(
        fullyLabeledReplicas=labelled,
        readyReplicas=ready,
        availableReplicas=ready,
        # Beta and on from 1.35: gate DeploymentReplicaSetTerminatingReplicas.
        terminatingReplicas=sum(map(pods.is_deleting, family.children)),
        observedGeneration=family.owner["metadata"].get("generation", 0),
    )
    return plans.Plan(
        create=tuple(pods.made_of(family.owner, spec["template"]) for _ in range(missing)),
        delete=tuple(_first_to_go(active)[: max(-missing, 0)]),
        status=status,
    )


def _first_to_go(active: list[Json]) -> list[Json]:
    """In the order of `ActivePodsWithRanks` of `pkg/controller/controller_utils.go`."""
    newest = sorted(
        active, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True
    )
    return sorted(newest, key=_rank)


def _rank(pod: Json) -> tuple[bool, bool, bool, int]:
    cost = (pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "0")
    return (
        bool(pod["spec"].get("nodeName")),
        pods.phase(pod) == "Running",
        pods.is_ready(pod),
        int(cost) if cost.removeprefix("-").isdecimal() else 0,
    )
