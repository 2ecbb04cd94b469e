"""`pods/binding`: how a scheduler puts a pod on a node."""

from typing import Any

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import routing
from dra_driver.sim.api.storing import registry

Json = dict[str, Any]


def bind(objects: registry.Registry, target: routing.Target, value: Any) -> None:
    """Sets the node of the pod that the target names.

    Raises:
        problems.ApiError: 404; 409, the pod has a node or is being deleted; 400 or 422, the
            binding is none.
    """
    node = _node(value)

    def change(pod: Json) -> Json:
        taken = pod["spec"].get("nodeName")
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise problems.conflict(target.kind, name, why)
        if taken:
            why = f'pod {name} is already assigned to node "{taken}"'
            raise problems.conflict(target.kind, name, why)
        pod["spec"]["nodeName"] = node
        annotations = (value.get("metadata") or {}).get("annotations")
        if annotations:
            pod["metadata"].setdefault("annotations", {}).update(annotations)
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        conditions[:] = [item for item in conditions if item.get("type") != "PodScheduled"]
        conditions.append(
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": objects.now()}
        )
        return pod

    key = (target.namespace, target.name)
    objects.update(target.kind, key, change, internal=True)


def _node(value: Any) -> str:
    wanted = value.get("target") if isinstance(value, dict) else None
    if not isinstance(wanted, dict) or not wanted.get("name"):
        raise problems.bad_request("Binding: target.name: Required value")
    if wanted.get("kind") not in (None, "", "Node"):
        raise problems.bad_request(
            f'Binding: target.kind: Unsupported value: "{wanted["kind"]}": '
            'supported values: "Node", "<empty>"'
        )
    return str(wanted["name"])
