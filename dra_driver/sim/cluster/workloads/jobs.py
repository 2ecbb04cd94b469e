"""Jobs: pods that have to run to their end so many times.

Not as the real one: failures are made good at once, without a growing pause; a finished pod that
is deleted is forgotten; activeDeadlineSeconds, ttlSecondsAfterFinished, podFailurePolicy and
successPolicy are without effect. Source: Kubernetes 1.36, `pkg/controller/job`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.cluster.workloads import plans, pods

Json = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_ENDS = ("Complete", "Failed")
_REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
_EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


@dataclasses.dataclass(frozen=True, slots=True)
class _Pods:
    """The pods of a Job by what became of them."""

    active: Sequence[Json]
    succeeded: Sequence[Json]
    failed: Sequence[Json]

    @property
    def done(self) -> set[int]:
        """The indexes that need no pod any more."""
        return {_index(pod) for pod in self.succeeded}


def plan(family: plans.Family) -> plans.Plan:
    """Makes as many pods as may run, until enough have succeeded or too many have failed."""
    found = _Pods(
        active=[pod for pod in family.children if pods.is_active(pod)],
        succeeded=[pod for pod in family.children if pods.phase(pod) == "Succeeded"],
        failed=[pod for pod in family.children if pods.phase(pod) == "Failed"],
    )
    if end_of(family.owner):
        # What still runs is of no use.
        return plans.Plan(delete=tuple(found.active), status=family.status)
    if family.spec.get("suspend"):
        return plans.Plan(delete=tuple(found.active), status=_status(family, found, suspended=True))
    if _has_failed(family, found):
        return plans.Plan(delete=tuple(found.active), status=_ended(family, found, "Failed"))
    if _is_complete(family, found):
        return plans.Plan(delete=tuple(found.active), status=_ended(family, found, "Complete"))
    missing = _wanted(family, found) - len(found.active)
    create = _indexed(family, found, missing) if _is_indexed(family) else _plain(family, missing)
    delete = list(reversed(found.active))[: max(-missing, 0)]
    return plans.Plan(tuple(create), (), tuple(delete), status=_status(family, found))


def end_of(job: Json) -> str:
    """How the Job ended: `Complete`, `Failed`; empty while it has not."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = (item["type"] for item in conditions if item["status"] == "True")
    return next((kind for kind in ends if kind in _ENDS), "")


def _is_indexed(family: plans.Family) -> bool:
    return bool(family.spec.get("completionMode") == "Indexed")


def _index(pod: Json) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, "-1"))


def _has_failed(family: plans.Family, found: _Pods) -> bool:
    limit = int(family.spec["backoffLimit"])
    if family.spec["template"]["spec"].get("restartPolicy") == "OnFailure":
        # Source: pastBackoffLimitOnFailure.
        restarts = sum(
            int(item.get("restartCount", 0))
            for pod in found.active
            for item in (pod.get("status") or {}).get("containerStatuses") or ()
        )
        if restarts and restarts >= limit:
            return True
    return len(found.failed) > limit


def _is_complete(family: plans.Family, found: _Pods) -> bool:
    completions = family.spec.get("completions")
    if completions is None:
        return bool(found.succeeded) and not found.active
    if _is_indexed(family):
        return set(range(completions)) <= found.done
    return len(found.succeeded) >= int(completions)


def _wanted(family: plans.Family, found: _Pods) -> int:
    """How many pods are to run now."""
    parallelism, completions = family.spec["parallelism"], family.spec.get("completions")
    if completions is None:
        return min(parallelism, len(found.active)) if found.succeeded else int(parallelism)
    done = len(found.done) if _is_indexed(family) else len(found.succeeded)
    return int(min(parallelism, completions - done))


def _plain(family: plans.Family, missing: int) -> list[Json]:
    return [pods.made_of(family.owner, family.spec["template"]) for _ in range(missing)]


def _indexed(family: plans.Family, found: _Pods, missing: int) -> list[Json]:
    """Pods for the lowest indexes that have none."""
    taken = found.done | {_index(pod) for pod in found.active}
    free = [index for index in range(family.spec["completions"]) if index not in taken]
    return [_with_index(family, index) for index in free[: max(missing, 0)]]


def _with_index(family: plans.Family, index: int) -> Json:
    mark = {INDEX: str(index)}
    base = f"{family.name}-{index}"
    pod = pods.made_of(
        family.owner, family.spec["template"], base=base, labels=mark, annotations=mark
    )
    pod["spec"]["hostname"] = base
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in pod["spec"].get("containers") or ():
        variables = container.setdefault("env", [])
        if all(item["name"] != _INDEX_VARIABLE for item in variables):
            variables.append({"name": _INDEX_VARIABLE, "valueFrom": source})
    return pod


def _ended(family: plans.Family, found: _Pods, how: str) -> Json:
    reason, message = _REACHED if how == "Complete" else _EXCEEDED
    first = "SuccessCriteriaMet" if how == "Complete" else "FailureTarget"
    status = _status(family, dataclasses.replace(found, active=()))
    status["conditions"] = [
        plans.condition(family, kind, status=True, reason=reason, message=message)
        for kind in (first, how)
    ]
    return status | ({"completionTime": family.now} if how == "Complete" else {})


def _status(family: plans.Family, found: _Pods, *, suspended: bool = False) -> Json:
    status: Json = {"uncountedTerminatedPods": {}} | plans.counts(
        active=len(found.active),
        ready=sum(map(pods.is_ready, found.active)),
        succeeded=len(found.succeeded),
        failed=len(found.failed),
    )
    if not suspended:
        status["startTime"] = family.status.get("startTime") or family.now
    if _is_indexed(family) and found.done:
        status["completedIndexes"] = _intervals(sorted(found.done))
    held = {item["type"] for item in family.status.get("conditions") or ()}
    if suspended or "Suspended" in held:
        word = "suspended" if suspended else "resumed"
        status["conditions"] = [
            plans.condition(
                family,
                "Suspended",
                status=suspended,
                reason=f"Job{word.capitalize()}",
                message=f"Job {word}",
            )
        ]
    return status


def _intervals(numbers: Sequence[int]) -> str:
    """As `1,3-5,7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
