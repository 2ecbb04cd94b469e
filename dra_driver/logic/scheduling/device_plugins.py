"""What of a pod's extended resources the device plugins of a node give, and what a claim does.

Sources: Kubernetes 1.36 `pkg/scheduler/framework/plugins/noderesources/fit.go`, and
`dynamicresources/extendeddynamicresources.go`, filterExtendedResources.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dra_driver.logic.scheduling import extended_resources
from dra_driver.model import claims, nodes

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Lack:
    """A resource of which a node has too little left; `offered` is None where none is offered."""

    resource: str
    offered: int | None
    used: int
    wanted: int

    def __str__(self) -> str:
        """In the words of kube-scheduler."""
        return f"Insufficient {self.resource}"


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """The resources that device plugins of a node give; what they `lack` keeps the pod away.

    A resource that no plugin offers, or none of, is served by a claim if a class has it.
    """

    resources: frozenset[str] = frozenset()
    lack: tuple[Lack, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """A pod with extended resources, and the classes that serve some.

    `used` is what other pods have of the device plugins, by node and resource.
    """

    pod: Json
    served_by: extended_resources.Classes
    used: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)

    def on(self, node: nodes.Node) -> Serving:
        """What the device plugins of the node give the pod."""
        used = self.used.get(node.name, {})
        return serving(self.pod, self.served_by, node.offered or {}, lambda name: used.get(name, 0))

    def claim(self, leave: Collection[str]) -> claims.ResourceClaim | None:
        """What is left to a claim where device plugins give the resources in `leave`, if any is."""
        body = extended_resources.claim(self.pod, self.served_by, leave)
        return claims.parse(body) if body is not None else None


def serving(
    pod: Json,
    served_by: extended_resources.Classes,
    offered: Mapping[str, int],
    used: Callable[[str], int],
) -> Serving:
    """What device plugins that offer so much give a pod; `used` is what other pods have of one."""
    given: set[str] = set()
    lack: list[Lack] = []
    for resource, wanted in extended_resources.needs(pod).items():
        there = offered.get(resource)
        if served_by.of(resource) is not None and not there:
            continue
        taken = used(resource) if there else 0
        if (there or 0) - taken < wanted:
            lack.append(Lack(resource, there, taken, wanted))
        else:
            given.add(resource)
    return Serving(frozenset(given), tuple(lack))
