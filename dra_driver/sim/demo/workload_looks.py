"""What becomes of the workloads of a demo: whether their controllers have done all they will."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import restarts, runtime
from dra_driver.sim.cluster.workloads import controllers, jobs, loop, plans, pods
from dra_driver.sim.demo import bringing, outcome

Json = dict[str, Any]

SOON_SECONDS = 30.0
"""A Job whose pods end within that time is waited for."""
_MADE = (("apps/v1", "ReplicaSet"), ("batch/v1", "Job"))
"""Workloads that others make."""


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """Workloads by their controllers, and the nodes, at one moment."""

    owners: Mapping[controllers.Controller, Sequence[Json]]
    nodes: Sequence[Json]


class WorkloadObserver:
    """Looks at the workloads of the kinds that were applied."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._expected: dict[tuple[str, str], controllers.Controller] = {}

    def expect(self, objects: Iterable[Json]) -> None:
        """Look at the workloads among the objects, which have been applied, from now on."""
        wanted = {(b["apiVersion"], b["kind"]) for b in objects if bringing.is_workload(b)}
        if not wanted:
            return
        known = dict(controllers.BY_KIND)
        for definition in self._client.list(controllers.DEFINITIONS)[0]:
            known |= controllers.of_definition(definition)
        for name in sorted(wanted | set(_MADE)):
            if name in known:
                self._expected[name] = known[name]

    def look(self) -> Look:
        """What there is now."""
        if not self._expected:
            return Look({}, ())
        # Those that make others first: what comes later is seen with what it follows from.
        found = dict.fromkeys(self._expected[name] for name in sorted(self._expected, key=_order))
        return Look(
            {item: self._client.list(item.resource)[0] for item in found},
            self._client.list(kube.NODES)[0],
        )


def _order(name: tuple[str, str]) -> bool:
    return name in _MADE


def judged(
    look: Look, all_pods: Sequence[Json], warnings: Mapping[str, Json]
) -> tuple[outcome.Workload, ...]:
    """The workloads by kind and name; `warnings` are the last ones, by UID of their objects."""
    by_resource = {item.resource: found for item, found in look.owners.items()}
    by_resource[kube.PODS] = all_pods
    return tuple(
        _judged(controller, owner, by_resource[controller.children], look.nodes, warnings)
        for controller, owners in look.owners.items()
        for owner in owners
    )


def _judged(
    controller: controllers.Controller,
    owner: Json,
    others: Sequence[Json],
    nodes: Sequence[Json],
    warnings: Mapping[str, Json],
) -> outcome.Workload:
    family = loop.family(owner, others, nodes)
    plan = controller.plan(family)
    at_rest = plans.is_at_rest(family, plan) and not _ends_soon(family)
    failure = _failure(owner)
    reason = failure
    if plan.create and (warning := warnings.get(owner["metadata"]["uid"])):
        reason = warning["message"]
    elif owner["kind"] == "DaemonSet" and not (plan.status or {}).get("desiredNumberScheduled"):
        reason = "no node takes its pods: look at nodeSelector, affinity and tolerations"
    return outcome.Workload(
        kind=owner["kind"],
        namespace=owner["metadata"]["namespace"],
        name=family.name,
        at_rest=at_rest,
        reason=reason,
        failed=failure is not None,
    )


def _failure(owner: Json) -> str | None:
    """Why a Job has given up; None if it has not."""
    conditions = (owner.get("status") or {}).get("conditions") or ()
    if owner["kind"] != "Job" or jobs.end_of(owner) != "Failed":
        return None
    return next(str(item["message"]) for item in conditions if item["type"] == "Failed")


def _ends_soon(family: plans.Family) -> bool:
    """Whether it is a Job that goes on, whose pods will have ended in a moment."""
    if family.owner["kind"] != "Job" or jobs.end_of(family.owner):
        return False
    active = [pod for pod in family.children if pods.is_active(pod)]
    return bool(active) and all(
        (seconds := end_seconds(pod)) is not None and seconds <= SOON_SECONDS for pod in active
    )


def end_seconds(pod: Json) -> float | None:
    """After how many seconds all containers have ended by themselves, where they are pretended.

    None where one does not, or is started again and again.
    """
    policy = pod["spec"].get("restartPolicy", "Always")
    ends = [
        runtime.end_of((*(container.get("command") or ()), *(container.get("args") or ())))
        for container in pod["spec"]["containers"]
    ]
    if any(end is None or restarts.is_due(policy, end[1]) for end in ends):
        return None
    return max(end[0] for end in ends if end is not None)


def made_good(look: Look) -> frozenset[str]:
    """The UIDs of Jobs that have completed: a pod of theirs that failed did no harm."""
    return frozenset(
        str(owner["metadata"]["uid"])
        for owners in look.owners.values()
        for owner in owners
        if owner["kind"] == "Job" and jobs.end_of(owner) == "Complete"
    )
