"""The columns that `kubectl get` shows: what the API server prints, row by row.

Source: `pkg/printers/internalversion/printers.go` of Kubernetes 1.36.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading and the cell of an object at a moment."""

    name: str
    cell: Callable[[Json, dt.datetime], Any]
    wide: bool = False
    """Only with `-o wide`."""
    type: str = "string"
    format: str = ""
    description: str = ""


def parse_time(text: str) -> dt.datetime:
    """The moment that an RFC 3339 text stands for."""
    return dt.datetime.fromisoformat(text)


def age(since: str | None, now: dt.datetime) -> str:
    """How long ago, as `kubectl` writes it: `45s`, `3m12s`, `5h`, `12d`."""
    if not since:
        return "<unknown>"
    seconds = int((now - parse_time(since)).total_seconds())
    return human_duration(seconds)


def human_duration(seconds: int) -> str:
    """Two digits of precision (`duration.HumanDuration` of apimachinery)."""
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    for limit, (unit, size), below in _DURATIONS:
        if seconds < limit:
            large, rest = divmod(seconds, size)
            small = rest // below[1] if below else 0
            return f"{large}{unit}{small}{below[0]}" if below and small else f"{large}{unit}"
    return f"{seconds // _YEAR[1]}y"


_SECOND, _MINUTE, _HOUR, _DAY = ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)
_YEAR = ("y", 365 * 86400)
_DURATIONS = (
    (120, _SECOND, None),
    (600, _MINUTE, _SECOND),
    (3 * 3600, _MINUTE, None),
    (8 * 3600, _HOUR, _MINUTE),
    (48 * 3600, _HOUR, None),
    (8 * 86400, _DAY, _HOUR),
    (730 * 86400, _DAY, None),
    (2920 * 86400, _YEAR, _DAY),
)
"""Below how many seconds, in which unit, and with which second unit if it is not zero."""


def at(path: str, default: Any = "") -> Callable[[Json, dt.datetime], Any]:
    """A cell with the value at a dotted path."""
    parts = path.split(".")

    def cell(body: Json, _now: dt.datetime) -> Any:
        value: Any = body
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        return default if value is None else value

    return cell


def _age(body: Json, now: dt.datetime) -> str:
    return age(body["metadata"].get("creationTimestamp"), now)


NAME = Column("Name", at("metadata.name"), format="name")
AGE = Column("Age", _age)
DEFAULT = (
    NAME,
    Column("Age", lambda body, _now: body["metadata"].get("creationTimestamp"), type="date"),
)


def _statuses(body: Json) -> list[Json]:
    return list((body.get("status") or {}).get("containerStatuses") or ())


def _pod_ready(body: Json, _now: dt.datetime) -> str:
    total = len((body.get("spec") or {}).get("containers") or ())
    return f"{sum(bool(item.get('ready')) for item in _statuses(body))}/{total}"


def _pod_status(body: Json, _now: dt.datetime) -> str:
    status = body.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for item in reversed(_statuses(body)):
        state = item.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        reason = waiting.get("reason") or terminated.get("reason") or reason
    gated = any(
        item.get("type") == "PodScheduled" and item.get("reason") == "SchedulingGated"
        for item in status.get("conditions") or ()
    )
    if gated:
        reason = "SchedulingGated"
    if body["metadata"].get("deletionTimestamp"):
        return "Terminating" if status.get("phase") not in ("Failed", "Succeeded") else reason
    return str(reason)


def _pod_restarts(body: Json, _now: dt.datetime) -> str:
    return str(sum(int(item.get("restartCount") or 0) for item in _statuses(body)))


def _readiness_gates(_body: Json, _now: dt.datetime) -> str:
    return "<none>"


POD = (
    NAME,
    Column("Ready", _pod_ready),
    Column("Status", _pod_status),
    Column("Restarts", _pod_restarts),
    AGE,
    Column("IP", at("status.podIP", "<none>"), wide=True),
    Column("Node", at("spec.nodeName", "<none>"), wide=True),
    Column("Nominated Node", at("status.nominatedNodeName", "<none>"), wide=True),
    Column("Readiness Gates", _readiness_gates, wide=True),
)


def _node_status(body: Json, _now: dt.datetime) -> str:
    conditions = (body.get("status") or {}).get("conditions") or ()
    ready = next((item for item in conditions if item.get("type") == "Ready"), None)
    if ready is None:
        words = ["Unknown"]
    else:
        words = ["Ready" if ready.get("status") == "True" else "NotReady"]
    if (body.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(body: Json, _now: dt.datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = body["metadata"].get("labels") or {}
    roles = sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))
    return ",".join(role for role in roles if role) or "<none>"


def _node_address(kind: str) -> Callable[[Json, dt.datetime], str]:
    def cell(body: Json, _now: dt.datetime) -> str:
        addresses = (body.get("status") or {}).get("addresses") or ()
        return next((str(a["address"]) for a in addresses if a.get("type") == kind), "<none>")

    return cell


NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", at("status.nodeInfo.kubeletVersion")),
    Column("Internal-IP", _node_address("InternalIP"), wide=True),
    Column("External-IP", _node_address("ExternalIP"), wide=True),
    Column("OS-Image", at("status.nodeInfo.osImage", "<unknown>"), wide=True),
    Column("Kernel-Version", at("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
    Column(
        "Container-Runtime",
        at("status.nodeInfo.containerRuntimeVersion", "<unknown>"),
        wide=True,
    ),
)

NAMESPACE = (NAME, Column("Status", at("status.phase")), AGE)


def _event_object(body: Json, _now: dt.datetime) -> str:
    involved = body.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_last_seen(body: Json, now: dt.datetime) -> str:
    series = body.get("series") or {}
    seen = series.get("lastObservedTime") or body.get("lastTimestamp") or body.get("eventTime")
    return age(seen or body["metadata"].get("creationTimestamp"), now)


def _event_first_seen(body: Json, now: dt.datetime) -> str:
    seen = body.get("firstTimestamp") or body.get("eventTime")
    return age(seen or body["metadata"].get("creationTimestamp"), now)


def _event_source(body: Json, _now: dt.datetime) -> str:
    source = body.get("source") or {}
    parts = [source.get("component") or body.get("reportingComponent") or "", source.get("host")]
    return ", ".join(part for part in parts if part)


def _event_count(body: Json, _now: dt.datetime) -> int:
    return int((body.get("series") or {}).get("count") or body.get("count") or 1)


def _event_message(body: Json, _now: dt.datetime) -> str:
    return str(body.get("message") or "").strip()


EVENT = (
    Column("Last Seen", _event_last_seen),
    Column("Type", at("type")),
    Column("Reason", at("reason")),
    Column("Object", _event_object),
    Column("Subobject", at("involvedObject.fieldPath"), wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", _event_message),
    Column("First Seen", _event_first_seen, wide=True),
    Column("Count", _event_count, wide=True, type="integer"),
    Column("Name", at("metadata.name"), wide=True, format="name"),
)


def _claim_state(body: Json, _now: dt.datetime) -> str:
    status = body.get("status") or {}
    states = []
    if body["metadata"].get("deletionTimestamp"):
        states.append("deleted")
    if status.get("allocation") is None:
        if not states:
            states.append("pending")
    else:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    return ",".join(states)


CLAIM = (NAME, Column("State", _claim_state), AGE)
TEMPLATE = (NAME, AGE)
DEVICE_CLASS = (NAME, AGE)


def _slice_node(body: Json, _now: dt.datetime) -> str:
    spec = body.get("spec") or {}
    return str(spec.get("nodeName") or ("<all>" if spec.get("allNodes") else "<unset>"))


SLICE = (
    NAME,
    Column("Node", _slice_node),
    Column("Driver", at("spec.driver")),
    Column("Pool", at("spec.pool.name")),
    AGE,
)


TAINT_RULE = (
    NAME,
    Column("Driver", at("spec.deviceSelector.driver")),
    Column("Pool", at("spec.deviceSelector.pool")),
    Column("Device", at("spec.deviceSelector.device")),
    Column("Effect", at("spec.taint.effect")),
    AGE,
)


def _data_count(body: Json, _now: dt.datetime) -> int:
    return len(body.get("data") or {}) + len(body.get("binaryData") or {})


CONFIG_MAP = (NAME, Column("Data", _data_count, type="string"), AGE)
SECRET = (NAME, Column("Type", at("type")), Column("Data", _data_count, type="string"), AGE)
SERVICE_ACCOUNT = (NAME, Column("Secrets", lambda body, _now: len(body.get("secrets") or ())), AGE)
LEASE = (NAME, Column("Holder", at("spec.holderIdentity")), AGE)


def ready_replicas(body: Json, _now: dt.datetime) -> str:
    """A cell with how many pods are ready of those that are wanted."""
    status = body.get("status") or {}
    wanted = (body.get("spec") or {}).get("replicas", 1)
    return f"{status.get('readyReplicas', 0)}/{wanted}"


DEPLOYMENT = (
    NAME,
    Column("Ready", ready_replicas),
    Column("Up-to-date", at("status.updatedReplicas", 0), type="integer"),
    Column("Available", at("status.availableReplicas", 0), type="integer"),
    AGE,
)
DAEMON_SET = (
    NAME,
    Column("Desired", at("status.desiredNumberScheduled", 0), type="integer"),
    Column("Current", at("status.currentNumberScheduled", 0), type="integer"),
    Column("Ready", at("status.numberReady", 0), type="integer"),
    Column("Up-to-date", at("status.updatedNumberScheduled", 0), type="integer"),
    Column("Available", at("status.numberAvailable", 0), type="integer"),
    AGE,
)
