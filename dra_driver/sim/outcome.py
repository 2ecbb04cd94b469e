"""What became of the pods of a demo: gathered from the API and the kubelets, shown or printed."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.adapters import kube, terminal
from dra_driver.sim import cluster, runtime

Json = dict[str, Any]

EXPECT_ANNOTATION = "demo.dra-driver/expect"
RUNNING = "Running"
UNSCHEDULABLE = "Unschedulable"
EXPECTATIONS = (RUNNING, UNSCHEDULABLE)


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """An allocated device; model and UUID where its slice tells."""

    driver: str
    pool: str
    device: str
    model: str | None
    uuid: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a pod, by its own name."""

    name: str
    devices: tuple[Device, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod, what it was expected to become and what it became.

    `phase` is the pod's phase, or `Unschedulable`; `reason` says why it does not run.
    """

    namespace: str
    name: str
    expected: str
    phase: str
    node: str | None
    reason: str | None
    claims: tuple[Claim, ...]
    containers: Mapping[str, runtime.View]

    @property
    def as_expected(self) -> bool:
        """Whether the pod reached the state that its manifest expects."""
        wanted = (RUNNING, "Succeeded") if self.expected == RUNNING else (self.expected,)
        return self.phase in wanted


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Nodes with their devices, and pods."""

    nodes: Mapping[str, tuple[str, ...]]
    pods: tuple[Pod, ...]


def gather(running: cluster.Cluster) -> Outcome:
    """How it is now."""
    devices = running.devices()
    claims = {
        (body["metadata"]["namespace"], body["metadata"]["name"]): body
        for body in running.client.list(kube.CLAIMS)[0]
    }
    warnings = _warnings(running.client.list(kube.EVENTS)[0])
    names: dict[str, list[str]] = {name: [] for name in running.nodes}
    for _, pool, device in sorted(devices):
        names.setdefault(pool, []).append(device)
    pods = sorted(
        running.client.list(kube.PODS)[0],
        key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]),
    )
    return Outcome(
        nodes={node: tuple(found) for node, found in sorted(names.items())},
        pods=tuple(_pod(body, running, claims, devices, warnings) for body in pods),
    )


def _pod(
    body: Json,
    running: cluster.Cluster,
    claims: Mapping[tuple[str, str], Json],
    devices: Mapping[tuple[str, str, str], Json],
    warnings: Mapping[str, str],
) -> Pod:
    metadata, status = body["metadata"], body.get("status") or {}
    node = body["spec"].get("nodeName")
    phase, reason = _phase(status)
    if phase == "Pending" and node is not None:
        reason = warnings.get(metadata["uid"], reason)
    kubelet = running.nodes[node].kubelet if node in running.nodes else None
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        expected=(metadata.get("annotations") or {}).get(EXPECT_ANNOTATION, RUNNING),
        phase=phase,
        node=node,
        reason=reason,
        claims=tuple(
            _claim(name, claims.get((metadata["namespace"], name)), devices)
            for name in _claim_names(body)
        ),
        containers=kubelet.views(metadata["uid"]) if kubelet else {},
    )


def _phase(status: Json) -> tuple[str, str | None]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("reason") or "Pending", condition.get("message")
    return status.get("phase") or "Pending", None


def _claim_names(pod: Json) -> list[str]:
    made = {
        item["name"]: item.get("resourceClaimName")
        for item in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = [
        item.get("resourceClaimName") or made.get(item["name"])
        for item in pod["spec"].get("resourceClaims") or ()
    ]
    return [name for name in names if name is not None]


def _claim(name: str, body: Json | None, devices: Mapping[tuple[str, str, str], Json]) -> Claim:
    allocation = ((body or {}).get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    found = []
    for result in results:
        key = (result["driver"], result["pool"], result["device"])
        attributes = (devices.get(key) or {}).get("attributes") or {}
        found.append(
            Device(
                *key,
                model=(attributes.get("productName") or {}).get("string"),
                uuid=(attributes.get("uuid") or {}).get("string"),
            )
        )
    return Claim(name, tuple(found))


def _warnings(events: Iterable[Json]) -> dict[str, str]:
    """The last warning about each object, by UID."""
    return {
        event["involvedObject"]["uid"]: event["message"]
        for event in sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
        if event.get("type") == "Warning" and event["involvedObject"].get("uid")
    }


def to_json(outcome: Outcome) -> Json:
    """The form that other programs read."""
    return {
        "nodes": [
            {"name": name, "devices": list(devices)} for name, devices in outcome.nodes.items()
        ],
        "pods": [_pod_json(pod) for pod in outcome.pods],
    }


def _pod_json(pod: Pod) -> Json:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "phase": pod.phase,
        "node": pod.node,
        "reason": pod.reason,
        "claims": [
            {"name": claim.name, "devices": [dataclasses.asdict(d) for d in claim.devices]}
            for claim in pod.claims
        ],
        "containers": [
            {
                "name": name,
                "env": dict(view.env),
                "deviceNodes": list(view.device_nodes),
                "mounts": [{"hostPath": host, "containerPath": at} for host, at in view.mounts],
                "output": list(view.output),
            }
            for name, view in pod.containers.items()
        ],
    }


def to_tables(outcome: Outcome) -> tuple[terminal.Table, ...]:
    """The form that people read: who got what, why others wait, and what containers see."""
    waiting = tuple(
        (_full_name(pod), pod.reason or "no reason is known")
        for pod in outcome.pods
        if pod.phase not in (RUNNING, "Succeeded")
    )
    tables = [_pod_table(outcome), _container_table(outcome)]
    if waiting:
        tables.insert(1, terminal.Table("Why pods wait", ("POD", "REASON"), waiting))
    return tuple(tables)


def _full_name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _pod_table(outcome: Outcome) -> terminal.Table:
    rows: list[tuple[terminal.Cell, ...]] = []
    for pod in outcome.pods:
        head: tuple[terminal.Cell, ...] = (
            _full_name(pod),
            (pod.phase, "green" if pod.as_expected else "bold red"),
            pod.node or "-",
        )
        devices = [(claim.name, device) for claim in pod.claims for device in claim.devices]
        if not devices:
            rows.append((*head, "-", "-", "-", "-"))
        for claim, device in devices:
            rows.append(
                (*head, claim, device.device, device.model or device.driver, device.uuid or "-")
            )
            head = ("", "", "")
    return terminal.Table(
        "Pods and their devices",
        ("POD", "PHASE", "NODE", "CLAIM", "DEVICE", "MODEL", "UUID"),
        tuple(rows),
    )


def _container_table(outcome: Outcome) -> terminal.Table:
    rows = []
    for pod in outcome.pods:
        for name, view in pod.containers.items():
            environment = [f"{key}={value}" for key, value in view.env.items()]
            seen = [*view.output, *environment, *view.device_nodes]
            rows.append((_full_name(pod), name, "\n".join(seen) or "-"))
    return terminal.Table(
        "What each container sees: nvidia-smi -L, environment, device nodes",
        ("POD", "CONTAINER", "SEES"),
        tuple(rows),
    )
