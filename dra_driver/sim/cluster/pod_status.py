"""What a kubelet writes into the status of a pod."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from dra_driver.sim.cluster import restarts

Json = dict[str, Any]

_OUR_CONDITIONS = ("Initialized", "Ready", "ContainersReady")
_KILLED = 137
"""Exit status of what was ended by SIGKILL."""


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def told(
    pod: Json,
    phase: str,
    statuses: Mapping[str, int | None],
    lives: Mapping[str, restarts.Life],
) -> Json:
    """What the kubelet says of a pod; a container that still ran at the end was killed."""
    now = _now()
    before = pod.get("status") or {}
    running = phase == "Running"
    ready = running and all(life.at is None for life in lives.values())
    known = {item["type"]: item for item in before.get("conditions") or ()}
    ours: dict[str, Json] = {
        kind: {
            "type": kind,
            "status": str(running if kind == "Initialized" else ready),
            "lastTransitionTime": now,
        }
        for kind in _OUR_CONDITIONS
    }
    return {
        "phase": phase,
        "startTime": before.get("startTime") or now,
        "conditions": list((known | ours).values()),
        "containerStatuses": [
            _container_status(
                container,
                lives.get(container["name"]) or restarts.Life(),
                None if running else terminated(statuses.get(container["name"])),
            )
            for container in pod["spec"]["containers"]
        ],
    }


def with_health(status: Json, health: Mapping[str, list[Json]]) -> Json:
    """The statuses of containers with how their devices are."""
    containers = []
    for item in status.get("containerStatuses") or ():
        kept = {key: value for key, value in item.items() if key != "allocatedResourcesStatus"}
        told = health.get(item["name"])
        containers.append(kept | ({"allocatedResourcesStatus": told} if told else {}))
    return {"containerStatuses": containers}


def _container_status(container: Json, life: restarts.Life, end: Json | None) -> Json:
    """Of a container that has ended, waits to be started again, or runs."""
    runs = end is None and life.at is None
    state = {"running": {"startedAt": _now()}} if runs else life.waiting(container["name"])
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": runs,
        "started": runs,
        "restartCount": life.restarts,
        "state": state if end is None else end,
        **({"lastState": life.last} if life.last else {}),
    }


def terminated(status: int | None) -> Json:
    """The state of a container that ended with `status`; None: it was killed."""
    code = _KILLED if status is None else status
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": _now()}}
