"""PriorityClasses, and which priority a pod gets by them.

Sources: Kubernetes 1.36, `pkg/apis/scheduling/validation/validation.go`,
`plugin/pkg/admission/priority/admission.go`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dra_driver.sim.api.kinds import fields, strategies

Json = dict[str, Any]

SYSTEM: Mapping[str, int] = MappingProxyType(
    {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
)
"""The classes that each cluster has, and their values."""
_RESOURCE = "priorityclasses.scheduling.k8s.io"
_RESERVED = "system-"
_HIGHEST = 1_000_000_000
_POLICIES = ("PreemptLowerPriority", "Never")
_IMMUTABLE = "may not be changed in an update."


def _prepare(write: strategies.Write) -> None:
    write.new.setdefault("value", 0)
    write.new.setdefault("preemptionPolicy", _POLICIES[0])


def _validate(write: strategies.Write) -> fields.Errors:
    new, found = write.new, []
    name = new["metadata"].get("name", "")
    if name.startswith(_RESERVED):
        if SYSTEM.get(name) != new["value"]:
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class"
            )
            found.append(fields.forbidden("metadata.name", detail))
    elif new["value"] > _HIGHEST:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST}"
        found.append(fields.forbidden("value", detail))
    policy = new["preemptionPolicy"]
    if policy not in _POLICIES:
        found.append(fields.not_supported("preemptionPolicy", policy, _POLICIES))
    return found + [
        fields.forbidden(field, _IMMUTABLE)
        for field in ("value", "preemptionPolicy")
        if write.old is not None and new[field] != write.old[field]
    ]


def _admit(write: strategies.Write) -> str | None:
    if not write.new.get("globalDefault"):
        return None
    default = _default(write)
    if default is None or default["metadata"]["name"] == write.new["metadata"].get("name"):
        return None
    name = default["metadata"]["name"]
    return f"PriorityClass {name} is already marked as default. Only one default can exist"


CLASS = strategies.Strategy(_prepare, _validate, admit=_admit)


def of_pod(write: strategies.Write) -> str | None:
    """Gives a new pod the priority of its class; why the pod is forbidden."""
    spec = write.new.get("spec")
    if write.old is not None or not isinstance(spec, dict):
        return None
    wanted = spec.get("priorityClassName")
    found = _named(write, wanted) if wanted else _default(write)
    if wanted and found is None:
        return f"no PriorityClass with name {wanted} was found"
    value = 0 if found is None else found["value"]
    if spec.get("priority", value) != value:
        return (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
    if found is not None:
        spec |= {"priorityClassName": found["metadata"]["name"], "priority": value}
        policy = found["preemptionPolicy"]
        if spec.setdefault("preemptionPolicy", policy) != policy:
            return (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
                f"provided in pod spec; priority admission controller computed {policy} from the "
                "given PriorityClass name"
            )
    return None


def _named(write: strategies.Write, name: str) -> Json | None:
    classes = write.around.others(_RESOURCE)
    return next((item for item in classes if item["metadata"]["name"] == name), None)


def _default(write: strategies.Write) -> Json | None:
    """The class of pods that name none."""
    classes = [item for item in write.around.others(_RESOURCE) if item.get("globalDefault")]
    return min(classes, key=lambda item: int(item["value"]), default=None)
