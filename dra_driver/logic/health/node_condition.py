"""The condition of a Node that tells whether a GPU needs a reboot of the node."""

from collections.abc import Iterable
from typing import Any

from dra_driver.logic.health import conditions, news
from dra_driver.model import health, texts

HEARTBEAT = 300.0
"""Seconds between two writes of a condition that does not change; as node-problem-detector."""
NEEDED, NOT_NEEDED = "GpuNeedsReboot", "NoGpuNeedsReboot"
"""Reasons."""
_MOST_MESSAGE = 1024

Json = dict[str, Any]


def wanted(kind: str, view: conditions.View, places: news.Places) -> Json:
    """The condition of this type, without times."""
    causes = [one for one in conditions.grave_first(view.conditions) if news.needs_reboot(one)]
    message = "; ".join(dict.fromkeys(_said(causes, places))) or "no GPU needs a reboot of the node"
    return {
        "type": kind,
        "status": "True" if causes else "False",
        "reason": NEEDED if causes else NOT_NEEDED,
        "message": texts.told(message, _MOST_MESSAGE),
    }


def _said(causes: Iterable[health.Condition], places: news.Places) -> Iterable[str]:
    for one in causes:
        name = places.get((one.finding.gpu, None), one.finding.gpu)
        yield f"{name}: {one.finding.message}"


def patch(node: Json, condition: Json, now: str, *, beat: bool) -> Json | None:
    """The strategic merge patch that writes it; None where it is there.

    `beat`: it is written again also where nothing but the time has changed. `now` is RFC 3339, UTC.
    """
    listed = (node.get("status") or {}).get("conditions") or ()
    there = next((one for one in listed if one.get("type") == condition["type"]), None)
    if there is not None and not beat and all(there.get(k) == v for k, v in condition.items()):
        return None
    is_same = there is not None and there.get("status") == condition["status"]
    since = (there or {}).get("lastTransitionTime") if is_same else None
    times = {"lastHeartbeatTime": now, "lastTransitionTime": since or now}
    return {"status": {"conditions": [condition | times]}}
