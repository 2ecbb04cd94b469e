"""Rules for the fields of ResourceSlices that are behind gates which are off by default.

Sources: Kubernetes 1.36, `pkg/apis/resource/validation/validation.go`; 1.37,
`staging/src/k8s.io/api/resource/v1/types.go`, of which what it says of a field is checked here.
"""

import functools
from typing import Any

from dra_driver.sim.api.kinds import fields, resource_capacities, syntax

Json = dict[str, Any]

_NODE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
_MAX_GROUPS = 2
_PREPARE, _UNPREPARE, _ALL = "NodePrepareResources", "NodeUnprepareResources", "*"


def spec_errors(spec: Json, minor: int) -> fields.Errors:
    """What is wrong with such fields of the spec of a slice."""
    found: fields.Errors = []
    name = spec.get("partitionTypeAttribute")
    if name is not None:
        found += syntax.fully_qualified_name(name, "spec.partitionTypeAttribute", minor=minor)
    return found + operation_errors(spec.get("skipNodeOperations"), "spec.skipNodeOperations")


def operation_errors(operations: Any, path: str) -> fields.Errors:
    """What is wrong with a list of calls that are not needed."""

    def check(operation: str, place: str) -> fields.Errors:
        if operation in (_PREPARE, _UNPREPARE, _ALL):
            return []
        return [fields.not_supported(place, operation, (_PREPARE, _UNPREPARE, _ALL))]

    found = fields.distinct(operations, None, path, check)
    if _PREPARE in (operations or ()) and not {_UNPREPARE, _ALL} & set(operations):
        detail = f"{_PREPARE} may only be skipped together with {_UNPREPARE}"
        found.append(fields.invalid(path, operations, detail))
    return found


def group_errors(consumption: Json, path: str) -> fields.Errors:
    """What is wrong with the groups of devices that may draw on one counter set together."""
    groups, place = consumption.get("compatibilityGroups"), f"{path}.compatibilityGroups"
    return fields.distinct(groups, _MAX_GROUPS, place, fields.nothing)


def device_errors(device: Json, path: str) -> fields.Errors:
    """What is wrong with resources of the node that go with a device, in either form."""
    capacities = device.get("capacity") or {}
    found: fields.Errors = []
    for field, check in (
        ("nodeAllocatableResourceMappings", _mapping_errors),
        ("nodeAllocatableResources", _resource_errors),
    ):
        for name, body in sorted((device.get(field) or {}).items()):
            place = f"{path}.{field}[{name}]"
            if name not in _NODE_RESOURCES and not name.startswith("hugepages-"):
                detail = "must be a node allocatable resource name"
                found.append(fields.invalid(place, name, detail))
            found += check(body, place, capacities)
    return found


def _mapping_errors(mapping: Json, path: str, capacities: Json) -> fields.Errors:
    multiplier = mapping.get("allocationMultiplier")
    return [
        *_key_errors(mapping.get("capacityKey"), f"{path}.capacityKey", capacities),
        *resource_capacities.positive(multiplier, f"{path}.allocationMultiplier"),
    ]


def _key_errors(key: str | None, path: str, capacities: Json) -> fields.Errors:
    return [] if key is None or key in capacities else [fields.not_found(path, key)]


def _resource_errors(body: Json, path: str, capacities: Json) -> fields.Errors:
    mapping, overhead = body.get("mapping"), body.get("overhead")
    if mapping is None and overhead is None:
        return [fields.required(path, "at least one of `mapping` or `overhead` is required")]
    found: fields.Errors = []
    if mapping is not None:
        found += _translation_errors(mapping, f"{path}.mapping", capacities)
    for name, amount in sorted((overhead or {}).items()):
        found += resource_capacities.positive(amount, f"{path}.overhead.{name}")
    return found


def _translation_errors(mapping: Json, path: str, capacities: Json) -> fields.Errors:
    names = ("capacityKey", "deviceMultiplier")
    given = [name for name in names if name in mapping]
    allowed = "exactly one of `capacityKey` or `deviceMultiplier` is required"
    found = _key_errors(mapping.get("capacityKey"), f"{path}.capacityKey", capacities)
    if not given:
        found.append(fields.required(path, allowed))
    elif len(given) > 1:
        detail = f"{allowed}, but multiple fields are set"
        found.append(fields.invalid(path, mapping, detail))
    for name, other in (
        ("capacityKey", "capacityMultiplier"),
        ("capacityMultiplier", "capacityKey"),
    ):
        if name in mapping and other not in mapping:
            detail = f"required when `{name}` is set"
            found.append(fields.required(f"{path}.{other}", detail))
    check = functools.partial(_multiplier_errors, mapping, path)
    return found + check("capacityMultiplier") + check("deviceMultiplier")


def _multiplier_errors(mapping: Json, path: str, name: str) -> fields.Errors:
    return resource_capacities.positive(mapping.get(name), f"{path}.{name}")
