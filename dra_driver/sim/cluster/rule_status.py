"""What the status of a DeviceTaintRule tells: how far it has come with ending pods.

Source: Kubernetes 1.36 to 1.38, `pkg/controller/devicetainteviction`, maybeUpdateRuleStatus.
"""

import dataclasses
import datetime as dt
from typing import Any

from dra_driver.model import taints

Json = dict[str, Any]

CONDITION = "EvictionInProgress"
PERIOD_SECONDS = 10.0
"""At most so often the condition is written for one spec of a rule."""
_NO_EFFECT = "None"
_ONCE = (
    "if the effect was NoExecute. This information will not be updated again. Recreate the "
    "DeviceTaintRule to trigger an update."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """`pods` are those that it has still to end, or would, in so many `namespaces`.

    `listed` devices are in slices, `allocated` ones in claims: both are told of a dry run alone.
    `ended` is how many pods it has ended since the controller began.
    """

    pods: int = 0
    namespaces: int = 0
    listed: int = 0
    allocated: int = 0
    ended: int = 0


def is_dry_run(rule: Json) -> bool:
    """Whether the rule only tells what it would do."""
    return bool(rule["spec"]["taint"].get("effect") == _NO_EFFECT)


def is_evicting(rule: Json) -> bool:
    """Whether the rule ends pods."""
    return bool(rule["spec"]["taint"].get("effect") == taints.NO_EXECUTE)


def wait_seconds(rule: Json, now: dt.datetime, period: float = PERIOD_SECONDS) -> float:
    """Until its condition may be written; 0 if now."""
    before = _before(rule)
    if not before or before.get("observedGeneration") != rule["metadata"].get("generation"):
        return 0.0
    since = (now - dt.datetime.fromisoformat(before["lastTransitionTime"])).total_seconds()
    return max(0.0, period - since)


def condition(rule: Json, counts: Counts, now: dt.datetime) -> Json | None:
    """Its condition as it is to be; None if that is what it has."""
    status, reason, message = _told(rule, counts)
    ended = ""
    if counts.ended:
        ended = f"{_pods(counts.ended)} evicted since starting the controller."
    told = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": " ".join(filter(None, (message, ended))),
        "observedGeneration": rule["metadata"].get("generation"),
    }
    before = _before(rule)
    if all(before.get(key) == value for key, value in told.items()):
        return None
    return told | {"lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _told(rule: Json, counts: Counts) -> tuple[str, str, str]:
    if is_dry_run(rule):
        return "False", "NoEffect", _would(counts)
    if not is_evicting(rule):
        return "False", "OtherEffect", "Eviction only happens for the NoExecute effect."
    if counts.pods:
        need = "needs" if counts.pods == 1 else "need"
        where = _namespaces(counts.namespaces)
        message = f"{_pods(counts.pods)} {need} to be evicted in {where}."
        return "True", "PodsPendingEviction", message
    return "False", "Completed" if counts.ended else "NotStarted", ""


def _would(counts: Counts) -> str:
    return (
        f"{_devices(counts.listed, 'published')} selected. "
        f"{_devices(counts.allocated, 'allocated')} selected. "
        f"{_pods(counts.pods)} would be evicted in {_namespaces(counts.namespaces)} {_ONCE}"
    )


def _before(rule: Json) -> Json:
    conditions = (rule.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == CONDITION), {})


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _devices(count: int, which: str) -> str:
    return f"{count} {which} device{'' if count == 1 else 's'}"


def _namespaces(count: int) -> str:
    return "1 namespace" if count == 1 else f"{count} different namespaces"
