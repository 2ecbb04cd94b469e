"""What of a pod a node's device plugins serve: that needs no claim, and has to be left there."""

import dataclasses

from dra_driver.logic.explaining import targets
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import device_plugins, extended_resources, placing
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
    running = _running(node, snapshot)
    found = device_plugins.serving(
        target.extended,
        snapshot.extended,
        node.offered,
        lambda resource: extended_resources.used(running, resource),
    )
    obstacle = _told(found.lack[0]) if found.lack else None
    return Serving(found.resources, obstacle)


def _told(lack: device_plugins.Lack) -> str:
    if lack.offered is None:
        return f"{lack}: no device plugin there offers it"
    return (
        f"{lack}: its device plugin offers {lack.offered}, pods have {lack.used}, "
        f"the pod needs {lack.wanted}"
    )


def _running(node: nodes.Node, snapshot: snapshots.Snapshot) -> list[snapshots.Json]:
    return [
        pod
        for pod in snapshot.pods.values()
        if (pod.get("spec") or {}).get("nodeName") == node.name and not placing.is_finished(pod)
    ]
