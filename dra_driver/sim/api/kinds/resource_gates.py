"""Fields for DRA behind a feature gate: dropped while it is off, unless in use.

Sources: Kubernetes 1.36, `pkg/registry/resource/*/strategy.go`, `pkg/api/resourceclaimspec`,
`pkg/api/pod/util.go`; 1.37, `pkg/features/kube_features.go`.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from dra_driver import errors
from dra_driver.sim.api.kinds import strategies

Json = dict[str, Any]
Drop = Callable[[Json], bool]
"""Drops the fields of one gate from an object; whether there were any."""

ADMIN_ACCESS = "DRAAdminAccess"
BINDING_CONDITIONS = "DRADeviceBindingConditions"
COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
DERIVED_ATTRIBUTES = "DRADerivedAttributes"
DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
DEVICE_TAINTS = "DRADeviceTaints"
EXTENDED_RESOURCE = "DRAExtendedResource"
FRACTIONAL_CAPACITY = "DRAFractionalCapacityRange"
HEALTH_STATUS = "ResourceHealthStatus"
LIST_TYPE_ATTRIBUTES = "DRAListTypeAttributes"
NODE_ALLOCATABLE = "DRANodeAllocatableResources"
OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
PARTITION_TYPE = "DRAPartitionableDevicesType"
PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
PRIORITIZED_LIST = "DRAPrioritizedList"

_NEVER = 1000
ON_SINCE: Mapping[str, int] = MappingProxyType(
    {
        ADMIN_ACCESS: 34,
        BINDING_CONDITIONS: 36,
        COMPATIBILITY_GROUPS: _NEVER,
        CONSUMABLE_CAPACITY: 36,
        DERIVED_ATTRIBUTES: _NEVER,
        DEVICE_STATUS: 33,
        DEVICE_TAINTS: 36,
        EXTENDED_RESOURCE: 36,
        FRACTIONAL_CAPACITY: 38,
        HEALTH_STATUS: 36,
        LIST_TYPE_ATTRIBUTES: _NEVER,
        NODE_ALLOCATABLE: _NEVER,
        OPTIONAL_NODE_OPERATIONS: _NEVER,
        PARTITIONABLE_DEVICES: 36,
        PARTITION_TYPE: _NEVER,
        PRIORITIZED_LIST: 34,
    }
)
"""The minor version of Kubernetes from which on the gate is on by default.

DRAFractionalCapacityRange is on in 1.37 only for servers that need not work with 1.36, which by
default they have to.
"""
KNOWN_SINCE: Mapping[str, int] = MappingProxyType(
    {
        COMPATIBILITY_GROUPS: 37,
        DERIVED_ATTRIBUTES: 37,
        FRACTIONAL_CAPACITY: 37,
        OPTIONAL_NODE_OPERATIONS: 37,
        PARTITION_TYPE: 37,
    }
)
"""The minor version that brought the gate, where that is not before 1.36."""


def known(minor: int) -> frozenset[str]:
    """The gates that there are in 1.`minor`."""
    return frozenset(name for name in ON_SINCE if minor >= KNOWN_SINCE.get(name, 0))


def disabled(minor: int, *, off: Iterable[str], on: Iterable[str]) -> frozenset[str]:
    """The gates that are off in 1.`minor`, changed by the names in `off` and `on`.

    Raises:
        errors.Rejected: a name is not that of a gate.
    """
    there = known(minor)
    unknown = sorted((set(off) | set(on)) - there)
    if unknown:
        raise errors.Rejected(
            f"feature gates {unknown!r} are not known in 1.{minor}; allowed are {sorted(there)!r}"
        )
    default = {name for name in there if minor < ON_SINCE[name]}
    return frozenset((default | set(off)) - set(on))


def drop_disabled(write: strategies.Write, drops: Mapping[str, Drop]) -> None:
    """Drops the fields of all gates that are off from the new object."""
    for gate in sorted(write.around.disabled_gates & set(drops)):
        drop = drops[gate]
        if write.old is None or not drop(copy.deepcopy(write.old)):
            drop(write.new)


def _pop(records: Iterable[Json], *names: str) -> bool:
    found = False
    for record in records:
        for name in names:
            found |= record.pop(name, None) is not None
    return found


def _devices(body: Json) -> list[Json]:
    return body["spec"].get("devices") or []


def _slice_taints(body: Json) -> bool:
    return _pop(_devices(body), "taints")


def _slice_partitions(body: Json) -> bool:
    in_spec = _pop((body["spec"],), "sharedCounters", "perDeviceNodeSelection")
    in_devices = _pop(_devices(body), "consumesCounters", "nodeName", "nodeSelector", "allNodes")
    return in_spec or in_devices


def _slice_binding(body: Json) -> bool:
    names = ("bindingConditions", "bindingFailureConditions", "bindsToNode")
    return _pop(_devices(body), *names)


def _slice_consumable(body: Json) -> bool:
    multiple = _pop(_devices(body), "allowMultipleAllocations")
    capacities = [
        capacity
        for device in _devices(body)
        for capacity in (device.get("capacity") or {}).values()
    ]
    return _pop(capacities, "requestPolicy") or multiple


def _slice_node_allocatable(body: Json) -> bool:
    names = ("nodeAllocatableResourceMappings", "nodeAllocatableResources")
    return _pop(_devices(body), *names)


def _slice_groups(body: Json) -> bool:
    consumptions = [
        consumption
        for device in _devices(body)
        for consumption in device.get("consumesCounters") or ()
    ]
    return _pop(consumptions, "compatibilityGroups")


def _slice_partition_type(body: Json) -> bool:
    return _pop((body["spec"],), "partitionTypeAttribute")


def _slice_operations(body: Json) -> bool:
    return _pop((body["spec"],), "skipNodeOperations")


def _slice_lists(body: Json) -> bool:
    attributes = [
        attribute
        for device in _devices(body)
        for attribute in (device.get("attributes") or {}).values()
    ]
    return _pop(attributes, "bools", "ints", "strings", "versions")


SLICE: Mapping[str, Drop] = MappingProxyType(
    {
        DEVICE_TAINTS: _slice_taints,
        PARTITIONABLE_DEVICES: _slice_partitions,
        BINDING_CONDITIONS: _slice_binding,
        CONSUMABLE_CAPACITY: _slice_consumable,
        NODE_ALLOCATABLE: _slice_node_allocatable,
        LIST_TYPE_ATTRIBUTES: _slice_lists,
        COMPATIBILITY_GROUPS: _slice_groups,
        PARTITION_TYPE: _slice_partition_type,
        OPTIONAL_NODE_OPERATIONS: _slice_operations,
    }
)


def _claim_spec(body: Json) -> Json:
    """The devices part of the spec of a claim, or of the claim in a template."""
    spec = body["spec"]
    if body["kind"] == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    return spec.get("devices") or {}


def _requests(body: Json) -> list[Json]:
    return _claim_spec(body).get("requests") or []


def _device_requests(body: Json) -> Iterator[Json]:
    for request in _requests(body):
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def _results(body: Json) -> list[Json]:
    allocation = (body.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _claim_prioritized(body: Json) -> bool:
    return _pop(_requests(body), "firstAvailable")


def _claim_admin(body: Json) -> bool:
    requested = _pop(_device_requests(body), "adminAccess")
    return _pop(_results(body), "adminAccess") or requested


def _claim_taints(body: Json) -> bool:
    requested = _pop(_device_requests(body), "tolerations")
    return _pop(_results(body), "tolerations") or requested


def _claim_consumable(body: Json) -> bool:
    found = [
        _pop(_claim_spec(body).get("constraints") or (), "distinctAttribute"),
        _pop(_device_requests(body), "capacity"),
        _pop(_results(body), "shareID", "consumedCapacity"),
        _pop((body.get("status") or {}).get("devices") or (), "shareID"),
    ]
    return any(found)


def _claim_device_status(body: Json) -> bool:
    return _pop((body.get("status") or {},), "devices")


def _claim_binding(body: Json) -> bool:
    in_results = _pop(_results(body), "bindingConditions", "bindingFailureConditions")
    allocation = (body.get("status") or {}).get("allocation") or {}
    return _pop((allocation,), "allocationTimestamp") or in_results


def _claim_derived(body: Json) -> bool:
    return _pop(_device_requests(body), "derivedAttributes")


def _claim_groups(body: Json) -> bool:
    return _pop(_results(body), "compatibilityGroups")


def _claim_operations(body: Json) -> bool:
    return _pop(_results(body), "skipNodeOperations")


CLAIM: Mapping[str, Drop] = MappingProxyType(
    {
        PRIORITIZED_LIST: _claim_prioritized,
        ADMIN_ACCESS: _claim_admin,
        DEVICE_TAINTS: _claim_taints,
        CONSUMABLE_CAPACITY: _claim_consumable,
        DEVICE_STATUS: _claim_device_status,
        BINDING_CONDITIONS: _claim_binding,
        DERIVED_ATTRIBUTES: _claim_derived,
        COMPATIBILITY_GROUPS: _claim_groups,
        OPTIONAL_NODE_OPERATIONS: _claim_operations,
    }
)
"""Also for templates."""


def _class_extended(body: Json) -> bool:
    return _pop((body.get("spec") or {},), "extendedResourceName")


CLASS: Mapping[str, Drop] = MappingProxyType({EXTENDED_RESOURCE: _class_extended})


def _pod_extended(body: Json) -> bool:
    return _pop((body.get("status") or {},), "extendedResourceClaimStatus")


def _pod_health(body: Json) -> bool:
    names = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    status = body.get("status") or {}
    containers = [container for name in names for container in status.get(name) or ()]
    return _pop(containers, "allocatedResourcesStatus")


POD: Mapping[str, Drop] = MappingProxyType(
    {
        EXTENDED_RESOURCE: _pod_extended,
        HEALTH_STATUS: _pod_health,
    }
)
