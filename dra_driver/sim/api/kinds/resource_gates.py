"""Fields for DRA behind a feature gate: dropped while it is off, unless in use.

Sources: Kubernetes 1.36, `pkg/registry/resource/*/strategy.go`, `pkg/api/resourceclaimspec`,
`pkg/api/pod/util.go`.
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
CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
DEVICE_TAINTS = "DRADeviceTaints"
EXTENDED_RESOURCE = "DRAExtendedResource"
LIST_TYPE_ATTRIBUTES = "DRAListTypeAttributes"
NODE_ALLOCATABLE = "DRANodeAllocatableResources"
PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
PRIORITIZED_LIST = "DRAPrioritizedList"

_NEVER = 1000
ON_SINCE: Mapping[str, int] = MappingProxyType(
    {
        ADMIN_ACCESS: 34,
        BINDING_CONDITIONS: 36,
        CONSUMABLE_CAPACITY: 36,
        DEVICE_STATUS: 33,
        DEVICE_TAINTS: 36,
        EXTENDED_RESOURCE: 36,
        LIST_TYPE_ATTRIBUTES: _NEVER,
        NODE_ALLOCATABLE: _NEVER,
        PARTITIONABLE_DEVICES: 36,
        PRIORITIZED_LIST: 34,
    }
)
"""The minor version of Kubernetes from which on the gate is on by default."""


def disabled(minor: int, *, off: Iterable[str], on: Iterable[str]) -> frozenset[str]:
    """The gates that are off in 1.`minor`, changed by the names in `off` and `on`.

    Raises:
        errors.Rejected: a name is not that of a gate.
    """
    unknown = sorted((set(off) | set(on)) - set(ON_SINCE))
    if unknown:
        raise errors.Rejected(
            f"feature gates {unknown!r} are not known; allowed are {sorted(ON_SINCE)!r}"
        )
    default = {name for name, since in ON_SINCE.items() if minor < since}
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
    return _pop(_devices(body), "nodeAllocatableResourceMappings")


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


CLAIM: Mapping[str, Drop] = MappingProxyType(
    {
        PRIORITIZED_LIST: _claim_prioritized,
        ADMIN_ACCESS: _claim_admin,
        DEVICE_TAINTS: _claim_taints,
        CONSUMABLE_CAPACITY: _claim_consumable,
        DEVICE_STATUS: _claim_device_status,
        BINDING_CONDITIONS: _claim_binding,
    }
)
"""Also for templates."""


def _class_extended(body: Json) -> bool:
    return _pop((body.get("spec") or {},), "extendedResourceName")


CLASS: Mapping[str, Drop] = MappingProxyType({EXTENDED_RESOURCE: _class_extended})


def _pod_extended(body: Json) -> bool:
    return _pop((body.get("status") or {},), "extendedResourceClaimStatus")


POD: Mapping[str, Drop] = MappingProxyType({EXTENDED_RESOURCE: _pod_extended})
