"""What of a pod a node's device plugins serve: that needs no claim, and has to be left there."""

import dataclasses

from dra_driver.logic.explaining import targets
from dra_driver.logic.picturing import extended_resources, snapshots
from dra_driver.logic.scheduling import placing
from dra_driver.model import nodes


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """The resources that device plugins of a node serve; `obstacle` is why the pod cannot go there.

    A resource that no plugin offers, or none of, is served by a claim if a class has it.
    """

    resources: frozenset[str] = frozenset()
    obstacle: str | None = None


def of(target: targets.Target, node: nodes.Node, snapshot: snapshots.Snapshot) -> Serving:
    """What of the target's pod is served there; nothing where a node does not tell."""
    if target.extended is None or node.offered is None:
        return Serving()
    served = set()
    for resource, count in extended_resources.needs(target.extended).items():
        offered = node.offered.get(resource)
        if snapshot.extended.of(resource) is not None and not offered:
            continue
        if offered is None:
            return Serving(obstacle=f"Insufficient {resource}: no device plugin there offers it")
        used = extended_resources.used(_running(node, snapshot), resource)
        if offered - used < count:
            return Serving(
                obstacle=f"Insufficient {resource}: its device plugin offers {offered}, pods have "
                f"{used}, the pod needs {count}"
            )
        served.add(resource)
    return Serving(frozenset(served))


def _running(node: nodes.Node, snapshot: snapshots.Snapshot) -> list[snapshots.Json]:
    return [
        pod
        for pod in snapshot.pods.values()
        if (pod.get("spec") or {}).get("nodeName") == node.name and not placing.is_finished(pod)
    ]
