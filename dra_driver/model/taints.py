"""Taints and tolerations of nodes (core/v1) and of devices (resource.k8s.io/v1): one shape."""

import dataclasses
from collections.abc import Mapping
from typing import Any

NONE = "None"
NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"


@dataclasses.dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods away unless they tolerate it. `added` is since when, as published."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE
    added: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        """As kubectl writes it: key=value:effect."""
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"

    @property
    def blocks(self) -> bool:
        """Whether it matters for scheduling; other effects (None, unknown ones) do not."""
        return self.effect in {NO_SCHEDULE, NO_EXECUTE}


@dataclasses.dataclass(frozen=True, slots=True)
class Toleration:
    """What taints are put up with. An empty effect means all, an empty key with Exists too.

    `seconds` is for how long one that evicts is; None: without end.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def covers(self, taint: Taint) -> bool:
        """Whether the taint is put up with. Source: `core/v1/toleration.go`, ToleratesTaint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.operator == "Equal" and self.value == taint.value


def parse_taint(body: Mapping[str, Any]) -> Taint:
    """One entry of `spec.taints` of a node or `taints` of a device."""
    return Taint(
        key=body["key"],
        value=body.get("value") or "",
        effect=body.get("effect") or "",
        added=body.get("timeAdded") or "",
    )


def parse_toleration(body: Mapping[str, Any]) -> Toleration:
    """One entry of `tolerations` of a pod or a device request."""
    return Toleration(
        key=body.get("key") or "",
        operator=body.get("operator") or "Equal",
        value=body.get("value") or "",
        effect=body.get("effect") or "",
        seconds=body.get("tolerationSeconds"),
    )
