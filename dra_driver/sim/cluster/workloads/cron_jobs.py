"""CronJobs: one Job, at once, whatever the schedule says.

Source of the names and of the status: Kubernetes 1.36, `pkg/controller/cronjob`.
"""

import datetime as dt
from typing import Any

from dra_driver.sim.cluster.workloads import jobs, plans, pods

Json = dict[str, Any]

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def plan(family: plans.Family) -> plans.Plan:
    """Makes the Job, unless there has been one or the CronJob is suspended."""
    has_run = bool(family.children or family.status.get("lastScheduleTime"))
    due = not has_run and not family.spec.get("suspend")
    return plans.Plan(create=(_made(family),) if due else (), status=_status(family))


def _made(family: plans.Family) -> Json:
    template = family.spec["jobTemplate"]
    told = template.get("metadata") or {}
    minutes = int(dt.datetime.fromisoformat(family.now).timestamp()) // 60
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{family.name}-{minutes}",
            "labels": told.get("labels") or {},
            "annotations": {**(told.get("annotations") or {}), _SCHEDULED: family.now},
            "ownerReferences": [pods.owned_by(family.owner)],
        },
        "spec": template["spec"],
    }


def _status(family: plans.Family) -> Json:
    status = family.status
    made = [str(job["metadata"]["creationTimestamp"]) for job in family.children]
    if made:
        status["lastScheduleTime"] = max(made)
    ends = [
        str(job["status"]["completionTime"])
        for job in family.children
        if jobs.end_of(job) == "Complete"
    ]
    if ends:
        status["lastSuccessfulTime"] = max(ends)
    active = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "namespace": job["metadata"]["namespace"],
            "uid": job["metadata"]["uid"],
        }
        for job in family.children
        if not jobs.end_of(job)
    ]
    status.pop("active", None)
    return status | ({"active": active} if active else {})
