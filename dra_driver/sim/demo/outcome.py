"""What became of the pods of a demo: what was expected, and how it is shown or printed."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.console import terminal
from dra_driver.sim.cluster import manifests, runtime
from dra_driver.sim.demo import bringing, shared

Json = dict[str, Any]

EXPECT_ANNOTATION = "demo.dra-driver/expect"
RUNNING = "Running"
UNSCHEDULABLE = "Unschedulable"
FAILED = "Failed"
REFUSED = "Refused"
WAITED = "Unschedulable, then Running"
EXPECTATIONS = (RUNNING, UNSCHEDULABLE, REFUSED, WAITED)
RUNS = (RUNNING, "Succeeded")
"""Phases of a pod whose containers run, or have run to their end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """An allocated device; model, MIG profile and UUID where its slice tells.

    `share` is there where other claims may have shares of it too, and `time_slice` where another
    than the GPU's default one is set: `Long`.
    """

    driver: str
    pool: str
    device: str
    model: str | None
    profile: str | None
    uuid: str | None
    share: shared.Share | None = None
    time_slice: str | None = None

    @property
    def kind(self) -> str:
        """As people call it: `Tesla T4`, `1g.10gb of NVIDIA H100`, `share of 4Gi of Tesla T4`."""
        model = self.model or self.driver
        whole = f"{self.profile} of {model}" if self.profile else model
        return self.share.of(whole) if self.share else whole


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a pod, by its own name."""

    name: str
    devices: tuple[Device, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod, what it was expected to become and what it became.

    `phase` is the pod's phase, or `Unschedulable`, or `Refused` where a driver does not prepare its
    claims; `reason` says why it does not run. `claims` of a pod that has ended are those that it
    had. `ends` tells that its containers end by themselves, `made_good` that it belongs to a Job
    that has completed, whatever became of this pod, `converted_from` what it asked for before the
    webhook made claims of that.
    """

    namespace: str
    name: str
    expected: str
    phase: str
    node: str | None
    reason: str | None
    claims: tuple[Claim, ...]
    containers: Mapping[str, runtime.View]
    was_unschedulable: bool = False
    has_run: bool = False
    ends: bool = False
    made_good: bool = False
    converted_from: tuple[str, ...] = ()

    @property
    def as_expected(self) -> bool:
        """Whether the pod reached the state that its manifest expects."""
        if self.made_good and self.phase == FAILED:
            return True
        if self.expected in (UNSCHEDULABLE, REFUSED):
            return self.phase == self.expected
        return self.phase in RUNS and (self.was_unschedulable or self.expected == RUNNING)

    @property
    def became(self) -> str:
        """As people read it: `Running`, `Running (was Unschedulable)`."""
        waited = self.was_unschedulable and self.phase in RUNS
        return f"{self.phase} (was {UNSCHEDULABLE})" if waited else self.phase


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Something that a controller makes pods of.

    `at_rest` tells that it has made and deleted what it will, `failed` that it is a Job that has
    given up, whatever pods it has left; `reason` says why it makes none, or has failed.
    """

    kind: str
    namespace: str
    name: str
    at_rest: bool
    reason: str | None
    failed: bool = False

    @property
    def full_name(self) -> str:
        """As in messages: `Deployment default/web`."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Nodes with their devices, pods, and workloads."""

    nodes: Mapping[str, tuple[str, ...]]
    pods: tuple[Pod, ...]
    workloads: tuple[Workload, ...] = ()

    @property
    def busy(self) -> tuple[Workload, ...]:
        """The workloads that have not made what they are to make."""
        return tuple(item for item in self.workloads if not item.at_rest)

    @property
    def failed(self) -> tuple[Workload, ...]:
        """The Jobs that have given up."""
        return tuple(item for item in self.workloads if item.failed)

    @property
    def as_expected(self) -> bool:
        """Whether there are pods, all that are to be there, and each is as expected."""
        idle = self.busy or self.failed or not self.pods
        return not idle and all(pod.as_expected for pod in self.pods)


def check_expectations(objects: Iterable[Json]) -> None:
    """Refuse pods that expect what no pod becomes.

    Raises:
        errors.Rejected: the annotation has another value than those in `EXPECTATIONS`.
    """
    for body in objects:
        for pod in bringing.pod_templates(body):
            expected = expectation(pod)
            if expected not in EXPECTATIONS:
                raise errors.Rejected(
                    f"{manifests.full_name(body)}: annotation {EXPECT_ANNOTATION}: {expected!r}; "
                    f"write one of: {'; '.join(EXPECTATIONS)}"
                )


def expectation(pod: Json) -> str:
    """What the annotation of the pod, or of a template, says that it becomes."""
    annotations = (pod.get("metadata") or {}).get("annotations")
    return str((annotations or {}).get(EXPECT_ANNOTATION, RUNNING))


def to_json(outcome: Outcome) -> Json:
    """The form that other programs read."""
    return {
        "nodes": [
            {"name": name, "devices": list(devices)} for name, devices in outcome.nodes.items()
        ],
        "pods": [_pod_json(pod) for pod in outcome.pods],
        "workloads": [
            {
                "kind": item.kind,
                "namespace": item.namespace,
                "name": item.name,
                "atRest": item.at_rest,
                "failed": item.failed,
                "reason": item.reason,
            }
            for item in outcome.workloads
        ],
    }


def _pod_json(pod: Pod) -> Json:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "phase": pod.phase,
        "wasUnschedulable": pod.was_unschedulable,
        "node": pod.node,
        "reason": pod.reason,
        "convertedFrom": list(pod.converted_from),
        "claims": [
            {"name": claim.name, "devices": [_device_json(device) for device in claim.devices]}
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


def _device_json(device: Device) -> Json:
    body = dataclasses.asdict(device)
    time_slice = body.pop("time_slice")
    return body | {"timeSlice": time_slice}


def to_blocks(outcome: Outcome) -> tuple[terminal.Block, ...]:
    """The form that people read, in detail: each pod that got something, and what it sees of it."""
    return tuple(
        terminal.Block(
            (
                (full_name(pod), "bold"),
                ": ",
                (pod.became, _style(pod)),
                f" on {pod.node}" if pod.node else "",
            ),
            tuple(_details(pod)),
        )
        for pod in outcome.pods
        if pod.claims or pod.containers
    )


def _details(pod: Pod) -> Iterator[str]:
    for told in pod.converted_from:
        yield f"converted: {told}"
    for claim in pod.claims:
        yield f"claim {claim.name}{'' if claim.devices else ': nothing is allocated'}"
        for device in claim.devices:
            more = [device.uuid, device.time_slice and f"time slice {device.time_slice}"]
            yield "  ".join(["", device.device, device.kind, *filter(None, more)])
    for name, view in pod.containers.items():
        seen = [
            *view.output,
            *_mps(view),
            *(f"{key}={value}" for key, value in view.env.items()),
            *view.device_nodes,
        ]
        yield f"container {name} sees{'' if seen else ' no devices'}"
        yield from (f"  {line}" for line in seen)


def _mps(view: runtime.View) -> Iterator[str]:
    limits = shared.mps_limits(view.env)
    if limits is not None:
        yield f"MPS, each process: {', '.join(limits) or 'no limits'}"


def to_tables(outcome: Outcome) -> tuple[terminal.Table, ...]:
    """The form that people read, at a glance: what became of each pod, and why others wait."""
    rows: list[tuple[terminal.Cell, ...]] = [
        (full_name(pod), (pod.became, _style(pod)), pod.node or "-", _kinds(pod) or "-")
        for pod in outcome.pods
    ]
    columns: tuple[str, ...] = ("POD", "PHASE", "NODE", "DEVICES")
    ways = [_sharing(pod) for pod in outcome.pods]
    if any(ways):  # Most pods share nothing, and tables are wide.
        columns += ("SHARING",)
        rows = [(*row, way or "-") for row, way in zip(rows, ways, strict=True)]
    waiting = tuple(
        (full_name(pod), pod.reason or "no reason is known")
        for pod in outcome.pods
        if pod.phase not in RUNS
    )
    tables = [
        terminal.Table("Pods", columns, tuple(rows)),
        terminal.Table("Why pods do not run", ("POD", "REASON"), waiting),
    ]
    return tuple(table for table in tables if table.rows)


def full_name(pod: Pod) -> str:
    """As in messages: `namespace/name`."""
    return f"{pod.namespace}/{pod.name}"


def _style(pod: Pod) -> str:
    return "green" if pod.as_expected else "bold red"


def _kinds(pod: Pod) -> str:
    """What the pod has, as `2x Tesla T4, 1g.10gb of NVIDIA H100 80GB HBM3`."""
    counts = collections.Counter(device.kind for claim in pod.claims for device in claim.devices)
    return ", ".join(kind if count == 1 else f"{count}x {kind}" for kind, count in counts.items())


def _sharing(pod: Pod) -> str:
    """How the pod shares, as `MPS: 30 %, 4Gi`, `time slice Long`; different ways only once."""
    limits = [shared.mps_limits(view.env) for view in pod.containers.values()]
    ways = [f"MPS: {', '.join(each) or 'no limits'}" for each in limits if each is not None]
    slices = [device.time_slice for claim in pod.claims for device in claim.devices]
    ways += [f"time slice {name}" for name in slices if name]
    return "; ".join(dict.fromkeys(ways))
