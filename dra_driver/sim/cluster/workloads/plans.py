"""What a controller is shown, and what it decides."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dra_driver.model import nodes

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """A workload and what it has made."""

    owner: Json
    children: Sequence[Json]
    """The objects whose controller is the owner, by name."""
    nodes: Sequence[nodes.Node]
    """All nodes, by name."""
    now: str
    """The time, RFC 3339 with seconds."""

    @property
    def spec(self) -> Json:
        """The owner's."""
        return dict(self.owner["spec"])

    @property
    def status(self) -> Json:
        """The owner's, as it was written last."""
        return dict(self.owner.get("status") or {})

    @property
    def name(self) -> str:
        """The owner's."""
        return str(self.owner["metadata"]["name"])


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done next, in this order; what is missing then, the next plan has."""

    create: tuple[Json, ...] = ()
    change: tuple[tuple[Json, Json], ...] = ()
    """Children, and the merge patches for them."""
    delete: tuple[Json, ...] = ()
    annotations: Json = dataclasses.field(default_factory=dict)
    """Those that the owner is to have."""
    status: Json | None = None
    """What the owner's is to be; None where the controller writes none."""


def is_at_rest(family: Family, plan: Plan) -> bool:
    """Whether there is nothing to be done."""
    held = family.owner["metadata"].get("annotations") or {}
    told = plan.status is None or plan.status == family.status
    annotated = all(held.get(key) == value for key, value in plan.annotations.items())
    return told and annotated and not (plan.create or plan.change or plan.delete)


def condition(family: Family, kind: str, *, status: bool, reason: str, message: str) -> Json:
    """A condition of the owner; it keeps its time as long as its status is the same."""
    before: Json = next(
        (item for item in family.status.get("conditions") or () if item["type"] == kind), {}
    )
    body = {"type": kind, "status": str(status), "reason": reason, "message": message}
    same = before.get("status") == body["status"]
    moment = before.get("lastTransitionTime") if same else None
    updated = before.get("lastUpdateTime") if same and before.get("reason") == reason else None
    return body | {
        "lastTransitionTime": moment or family.now,
        "lastUpdateTime": updated or family.now,
    }


def counts(**numbers: int) -> Json:
    """Fields of a status: Kubernetes leaves out those that are 0."""
    return {name: number for name, number in numbers.items() if number}


def share(value: Any, of: int, *, up: bool) -> int:
    """A number that is written as such, or as a percentage, which is rounded up or down.

    Source: `k8s.io/apimachinery/pkg/util/intstr`, GetScaledValueFromIntOrPercent.
    """
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    part = int(text.removesuffix("%")) * of
    return -(-part // 100) if up else part // 100
