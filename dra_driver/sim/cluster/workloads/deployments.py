"""Deployments: a ReplicaSet for each template, of which the newest takes over.

Not as the real one: no deadline for progress, and no proportional scaling while it takes over.
Source: Kubernetes 1.36, `pkg/controller/deployment`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.cluster.workloads import plans, pods

Json = dict[str, Any]

HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"


@dataclasses.dataclass(frozen=True, slots=True)
class _Sets:
    """The ReplicaSets of a Deployment: the one for its template, and the others, oldest first."""

    new: Json | None
    old: Sequence[Json]
    digest: str

    @property
    def all(self) -> list[Json]:
        return [*self.old, *([self.new] if self.new else [])]


def plan(family: plans.Family) -> plans.Plan:
    """Makes the ReplicaSet of the template, and moves pods to it a few at a time."""
    sets = _sets(family)
    revision = str(_revision(sets))
    if family.spec.get("paused"):
        return plans.Plan(status=_status(family, sets))
    create: tuple[Json, ...] = ()
    change = []
    recreate = family.spec["strategy"]["type"] == "Recreate"
    size = _size_of_new(family, sets)
    waits = recreate and any(_has_pods(item) for item in sets.old)
    if sets.new is None and not waits:
        create = (_made(family, sets, size, revision),)
    elif sets.new is not None:
        patch: Json = {}
        if not waits and size != _wanted(sets.new):
            patch["spec"] = {"replicas": size}
        if _annotation(sets.new) != revision:
            patch["metadata"] = {"annotations": {_REVISION: revision}}
        if patch:
            change.append((sets.new, patch))
    if recreate:
        change += [(item, _scaled(0)) for item in sets.old if _wanted(item)]
    elif sets.new is not None and size <= _wanted(sets.new):
        change += _shrunk(family, sets)
    return plans.Plan(
        create=create,
        change=tuple(change),
        delete=_forgotten(family, sets),
        annotations={_REVISION: revision} if sets.new else {},
        status=_status(family, sets),
    )


def _sets(family: plans.Family) -> _Sets:
    digest = pods.template_hash(family.spec["template"])
    living = [item for item in family.children if not pods.is_deleting(item)]
    living.sort(key=lambda item: (int(_annotation(item) or 0), item["metadata"]["name"]))
    new = next((item for item in living if pods.labels(item).get(HASH) == digest), None)
    return _Sets(new, [item for item in living if item is not new], digest)


def _annotation(body: Json) -> str:
    return str((body["metadata"].get("annotations") or {}).get(_REVISION, ""))


def _revision(sets: _Sets) -> int:
    """That of the newest ReplicaSet, which is one more than that of any other."""
    newest = max((int(_annotation(item) or 0) for item in sets.old), default=0)
    mine = int(_annotation(sets.new) or 0) if sets.new else 0
    return mine if mine > newest else newest + 1


def _wanted(item: Json) -> int:
    return int(item["spec"]["replicas"])


def _there(item: Json, field: str = "replicas") -> int:
    return int((item.get("status") or {}).get(field, 0))


def _has_pods(item: Json) -> bool:
    """Whether there are pods, also on their way out: what they hold is not free yet."""
    return bool(_wanted(item) or _there(item) or _there(item, "terminatingReplicas"))


def _scaled(count: int) -> Json:
    return {"spec": {"replicas": count}}


def _limits(family: plans.Family) -> tuple[int, int]:
    """How many pods there may be too many, and too few."""
    replicas, rolling = family.spec["replicas"], family.spec["strategy"].get("rollingUpdate")
    if rolling is None:
        return 0, replicas
    surge = plans.share(rolling["maxSurge"], replicas, up=True)
    unavailable = plans.share(rolling["maxUnavailable"], replicas, up=False)
    # Else nothing would ever move.
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _size_of_new(family: plans.Family, sets: _Sets) -> int:
    """How many pods the newest ReplicaSet is to have. Source: `NewRSNewReplicas`."""
    replicas = int(family.spec["replicas"])
    here = _wanted(sets.new) if sets.new else 0
    if family.spec["strategy"]["type"] == "Recreate" or here >= replicas:
        return replicas
    room = replicas + _limits(family)[0] - sum(map(_wanted, sets.all))
    return min(replicas, here + max(room, 0))


def _shrunk(family: plans.Family, sets: _Sets) -> list[tuple[Json, Json]]:
    """Older ReplicaSets that may have fewer pods. Source: `reconcileOldReplicaSets`."""
    if sets.new is None:
        return []
    least = family.spec["replicas"] - _limits(family)[1]
    not_there = _wanted(sets.new) - _there(sets.new, "availableReplicas")
    spare = sum(map(_wanted, sets.all)) - least - not_there
    change = []
    for item in sets.old:
        # Pods that do not run are no loss.
        broken = max(_wanted(item) - _there(item, "availableReplicas"), 0)
        step = min(_wanted(item), max(spare, broken if spare > 0 else 0))
        if step > 0:
            change.append((item, _scaled(_wanted(item) - step)))
            spare -= step
    return change


def _forgotten(family: plans.Family, sets: _Sets) -> tuple[Json, ...]:
    """Empty ReplicaSets beyond those that are kept for a rollback."""
    empty = [item for item in sets.old if not _wanted(item) and not _there(item)]
    return tuple(empty[: max(len(empty) - family.spec.get("revisionHistoryLimit", 10), 0)])


def _made(family: plans.Family, sets: _Sets, size: int, revision: str) -> Json:
    spec, label = family.spec, {HASH: sets.digest}
    template = dict(spec["template"])
    told = dict(template.get("metadata") or {})
    template["metadata"] = told | {"labels": {**(told.get("labels") or {}), **label}}
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **label}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{family.name}-{sets.digest}",
            "labels": template["metadata"]["labels"],
            "annotations": {_REVISION: revision},
            "ownerReferences": [pods.owned_by(family.owner)],
        },
        "spec": {"replicas": size, "selector": selector, "template": template},
    }


def _status(family: plans.Family, sets: _Sets) -> Json:
    replicas, everyone = int(family.spec["replicas"]), sets.all
    there = sum(map(_there, everyone))
    available = sum(_there(item, "availableReplicas") for item in everyone)
    updated = _there(sets.new) if sets.new else 0
    numbers = plans.counts(
        observedGeneration=family.owner["metadata"].get("generation", 0),
        replicas=there,
        updatedReplicas=updated,
        readyReplicas=sum(_there(item, "readyReplicas") for item in everyone),
        availableReplicas=available,
        terminatingReplicas=sum(_there(item, "terminatingReplicas") for item in everyone),
        unavailableReplicas=max(sum(map(_wanted, everyone)) - available, 0),
    )
    enough = available >= replicas - _limits(family)[1]
    conditions = [
        plans.condition(
            family,
            "Available",
            status=enough,
            reason=f"MinimumReplicas{'Available' if enough else 'Unavailable'}",
            message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        )
    ]
    if sets.new is not None:
        done = updated == there == available == replicas
        name = sets.new["metadata"]["name"]
        conditions.append(
            plans.condition(
                family,
                "Progressing",
                status=True,
                reason="NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
                message=f'ReplicaSet "{name}" '
                + ("has successfully progressed." if done else "is progressing."),
            )
        )
    return numbers | {"conditions": conditions}
