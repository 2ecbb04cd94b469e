"""What became of the pods of a demo: gathered from the API and the kubelets, shown or printed."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters import kube, terminal
from dra_driver.sim import cluster, manifests, runtime

Json = dict[str, Any]

EXPECT_ANNOTATION = "demo.dra-driver/expect"
RUNNING = "Running"
UNSCHEDULABLE = "Unschedulable"
FAILED = "Failed"
EXPECTATIONS = (RUNNING, UNSCHEDULABLE)
_RUNS = (RUNNING, "Succeeded")


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
        return self.phase in (_RUNS if self.expected == RUNNING else (self.expected,))


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Nodes with their devices, and pods."""

    nodes: Mapping[str, tuple[str, ...]]
    pods: tuple[Pod, ...]


def check_expectations(objects: Iterable[Json]) -> None:
    """Refuse pods that expect what no pod becomes.

    Raises:
        errors.Rejected: the annotation has another value than those in `EXPECTATIONS`.
    """
    for body in objects:
        expected = _expected(body)
        if body["kind"] == "Pod" and expected not in EXPECTATIONS:
            raise errors.Rejected(
                f"{manifests.full_name(body)}: annotation {EXPECT_ANNOTATION}: {expected!r}; "
                f"write {' or '.join(EXPECTATIONS)}"
            )


def _expected(body: Json) -> str:
    annotations = body["metadata"].get("annotations")
    return str((annotations or {}).get(EXPECT_ANNOTATION, RUNNING))


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
        expected=_expected(body),
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
    phase = status.get("phase") or "Pending"
    return phase, _ended(status) if phase == FAILED else None


def _ended(status: Json) -> str:
    """How the containers of a failed pod ended."""
    ends = {
        item["name"]: item["state"]["terminated"].get("exitCode")
        for item in status.get("containerStatuses") or ()
        if "terminated" in (item.get("state") or {})
    }
    texts = [f"container {name} ended with status {code}" for name, code in ends.items() if code]
    return ", ".join(texts) or "it never ran"


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


def to_blocks(outcome: Outcome) -> tuple[terminal.Block, ...]:
    """The form that people read, in detail: each pod that got something, and what it sees of it."""
    return tuple(
        terminal.Block(
            (
                (full_name(pod), "bold"),
                ": ",
                (pod.phase, _style(pod)),
                f" on {pod.node}" if pod.node else "",
            ),
            tuple(_details(pod)),
        )
        for pod in outcome.pods
        if pod.claims or pod.containers
    )


def _details(pod: Pod) -> Iterator[str]:
    for claim in pod.claims:
        yield f"claim {claim.name}{'' if claim.devices else ': nothing is allocated'}"
        for device in claim.devices:
            model = device.model or device.driver
            yield "  ".join(["", device.device, model, *([device.uuid] if device.uuid else [])])
    for name, view in pod.containers.items():
        seen = [
            *view.output,
            *(f"{key}={value}" for key, value in view.env.items()),
            *view.device_nodes,
        ]
        yield f"container {name} sees{'' if seen else ' no devices'}"
        yield from (f"  {line}" for line in seen)


def to_tables(outcome: Outcome) -> tuple[terminal.Table, ...]:
    """The form that people read, at a glance: what became of each pod, and why others wait."""
    pods = tuple(
        (full_name(pod), (pod.phase, _style(pod)), pod.node or "-", _models(pod) or "-")
        for pod in outcome.pods
    )
    waiting = tuple(
        (full_name(pod), pod.reason or "no reason is known")
        for pod in outcome.pods
        if pod.phase not in _RUNS
    )
    tables = [
        terminal.Table("Pods", ("POD", "PHASE", "NODE", "DEVICES"), pods),
        terminal.Table("Why pods do not run", ("POD", "REASON"), waiting),
    ]
    return tuple(table for table in tables if table.rows)


def full_name(pod: Pod) -> str:
    """As in messages: `namespace/name`."""
    return f"{pod.namespace}/{pod.name}"


def _style(pod: Pod) -> str:
    return "green" if pod.as_expected else "bold red"


def _models(pod: Pod) -> str:
    """What the pod has, as `2x Tesla T4, NVIDIA H100 80GB HBM3`."""
    counts = collections.Counter(
        device.model or device.driver for claim in pod.claims for device in claim.devices
    )
    return ", ".join(
        model if count == 1 else f"{count}x {model}" for model, count in counts.items()
    )
