"""The columns of workloads, of priority classes and of definitions of kinds.

Source: `pkg/printers/internalversion/printers.go` of Kubernetes 1.36.
"""

import datetime as dt
from typing import Any

from dra_driver.sim.api.kinds import printing

Json = dict[str, Any]

REPLICAS = (
    printing.NAME,
    printing.Column("Desired", printing.at("spec.replicas", 0), type="integer"),
    printing.Column("Current", printing.at("status.replicas", 0), type="integer"),
    printing.Column("Ready", printing.at("status.readyReplicas", 0), type="integer"),
    printing.AGE,
)
STATEFUL_SET = (printing.NAME, printing.Column("Ready", printing.ready_replicas), printing.AGE)


def _job_status(body: Json, _now: dt.datetime) -> str:
    conditions = (body.get("status") or {}).get("conditions") or ()
    for name in ("Complete", "Failed", "Suspended"):
        if any(item["type"] == name and item["status"] == "True" for item in conditions):
            return name
    return "Running"


def _completions(body: Json, _now: dt.datetime) -> str:
    spec, succeeded = body["spec"], (body.get("status") or {}).get("succeeded", 0)
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(body: Json, now: dt.datetime) -> str:
    status = body.get("status") or {}
    if "startTime" not in status:
        return ""
    end = status.get("completionTime")
    return printing.age(status["startTime"], printing.parse_time(end) if end else now)


JOB = (
    printing.NAME,
    printing.Column("Status", _job_status),
    printing.Column("Completions", _completions),
    printing.Column("Duration", _duration),
    printing.AGE,
)


def _active(body: Json, _now: dt.datetime) -> int:
    return len((body.get("status") or {}).get("active") or ())


def _last_schedule(body: Json, now: dt.datetime) -> str:
    last = (body.get("status") or {}).get("lastScheduleTime")
    return printing.age(last, now) if last else "<none>"


def _suspended(body: Json, _now: dt.datetime) -> str:
    return str(bool(body["spec"].get("suspend")))


CRON_JOB = (
    printing.NAME,
    printing.Column("Schedule", printing.at("spec.schedule")),
    printing.Column("Timezone", printing.at("spec.timeZone", "<none>")),
    printing.Column("Suspend", _suspended),
    printing.Column("Active", _active, type="integer"),
    printing.Column("Last Schedule", _last_schedule),
    printing.AGE,
)
PRIORITY_CLASS = (
    printing.NAME,
    printing.Column("Value", printing.at("value", 0), type="integer"),
    printing.Column("Global-Default", printing.at("globalDefault", default=False), type="boolean"),
    printing.AGE,
    printing.Column("PreemptionPolicy", printing.at("preemptionPolicy")),
)
DEFINITION = (
    printing.NAME,
    printing.Column("Created At", printing.at("metadata.creationTimestamp")),
)
