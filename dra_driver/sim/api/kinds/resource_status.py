"""Rules for ResourceClaims: the spec when they are made, the status when it changes.

Sources: Kubernetes 1.36, `pkg/apis/resource/validation/validation.go`,
`pkg/registry/resource/resourceclaim/strategy.go`.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.api.kinds import (
    fields,
    resource_claims,
    resource_extras,
    resource_gates,
    resource_schemas,
    resource_slices,
    strategies,
    syntax,
)

Json = dict[str, Any]
DeviceId = tuple[str, str, str]
ShareId = tuple[str, str, str, str]

_MAX_RESULTS = 32
_MAX_RESERVED_FOR = 256
_MAX_CONDITIONS = 8
_LONGEST_DATA = 10 * 1024
_LONGEST_INTERFACE_NAME = 256
_LONGEST_HARDWARE_ADDRESS = 128
_MAX_IPS = 16
_SOURCES = ("FromClaim", "FromClass")
_TOLERATIONS_SINCE = 37
"""The minor version of Kubernetes from which on tolerations of results are looked at:
kubernetes/kubernetes#138725."""
_CONDITION_STATUS = ("False", "True", "Unknown")
_CONDITION_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def _prepare(write: strategies.Write) -> None:
    write.new.setdefault("spec", {})
    status = write.new.setdefault("status", {})
    if write.status and write.old is not None:
        _drop_deallocated(status, write.old.get("status") or {})
    resource_gates.drop_disabled(write, resource_gates.CLAIM)
    resource_claims.default(write.new["spec"])
    for result in _results(status):
        resource_claims.default_tolerations(result)


def _drop_deallocated(status: Json, old: Json) -> None:
    """What is reported of a device goes with its allocation."""
    gone = {_device_id(item) for item in _results(old)}
    gone -= {_device_id(item) for item in _results(status)}
    if "devices" in status:
        kept = [item for item in status["devices"] if _device_id(item) not in gone]
        status["devices"] = kept
        if not kept:
            del status["devices"]


def _validate(write: strategies.Write) -> fields.Errors:
    new, old = write.new, write.old
    namespace = new["metadata"]["namespace"]
    if old is None:
        requests = new["spec"]["devices"].get("requests")
        return [
            *resource_claims.admin_errors(
                requests, "spec.devices.requests", namespace, write.around
            ),
            *resource_claims.validate(new["spec"], "spec", write.around),
        ]
    if not write.status:
        return resource_claims.immutable_errors(
            resource_schemas.CLAIM_SPEC, new["spec"], old["spec"], "spec"
        )
    return _status_errors(write)


STRATEGY = strategies.Strategy(_prepare, _validate)


def _results(status: Json) -> list[Json]:
    allocation = status.get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _device_id(item: Json) -> DeviceId:
    return item.get("driver", ""), item.get("pool", ""), item.get("device", "")


def _share_id(item: Json) -> ShareId:
    return (*_device_id(item), item.get("shareID", ""))


def _status_errors(write: strategies.Write) -> fields.Errors:
    status = write.new["status"]
    old = (write.old or {}).get("status") or {}
    allocated = {_share_id(item) for item in _results(status)}
    found = [
        *_admin_errors(write, _results(status), _results(old)),
        *fields.distinct(
            status.get("reservedFor"),
            _MAX_RESERVED_FOR,
            "status.reservedFor",
            _consumer_errors,
            lambda consumer: consumer.get("uid", ""),
        ),
        *fields.distinct(
            status.get("devices"),
            None,
            "status.devices",
            functools.partial(_device_errors, allocated=allocated),
            lambda device: "/".join(_share_id(device)).rstrip("/"),
        ),
        *_reservation_errors(status, old, write.new["metadata"]),
    ]
    return found + _allocation_errors(write, status.get("allocation"), old.get("allocation"))


def _admin_errors(write: strategies.Write, results: list[Json], old: list[Json]) -> fields.Errors:
    # Who has it keeps it, whatever has become of the namespace.
    if any(result.get("adminAccess") for result in old):
        return []
    namespace = write.new["metadata"]["namespace"]
    path = "status.allocation.devices.results"
    return resource_claims.admin_errors(results, path, namespace, write.around)


def _consumer_errors(consumer: Json, path: str) -> fields.Errors:
    names = ("resource", "name", "uid")
    return [fields.required(f"{path}.{name}") for name in names if not consumer.get(name)]


def _reservation_errors(status: Json, old: Json, metadata: Json) -> fields.Errors:
    reserved, path = status.get("reservedFor") or [], "status.reservedFor"
    if not reserved:
        return []
    if status.get("allocation") is None:
        return [fields.forbidden(path, "may not be specified when `allocated` is not set")]
    before = old.get("reservedFor") or []
    if metadata.get("deletionTimestamp") and any(item not in before for item in reserved):
        detail = (
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
            "are set"
        )
        return [fields.forbidden(path, detail)]
    return []


def _allocation_errors(
    write: strategies.Write, allocation: Json | None, old: Json | None
) -> fields.Errors:
    path = "status.allocation"
    if allocation is None:
        return []
    if old is not None:
        return resource_claims.immutable_errors(resource_schemas.ALLOCATION, allocation, old, path)
    names = resource_claims.request_names(write.new["spec"])
    devices, place = allocation.get("devices") or {}, f"{path}.devices"
    found = [
        *fields.listed(
            devices.get("results"),
            _MAX_RESULTS,
            f"{place}.results",
            functools.partial(_result_errors, names=names, minor=write.around.minor),
        ),
        *fields.listed(
            devices.get("config"),
            2 * resource_claims.MAX_CONFIGS,
            f"{place}.config",
            functools.partial(_config_errors, names=names),
        ),
    ]
    if allocation.get("nodeSelector") is not None:
        found += syntax.node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")
    return found


def _result_errors(
    result: Json, path: str, *, names: resource_claims.RequestNames, minor: int
) -> fields.Errors:
    check = resource_claims.toleration_errors if minor >= _TOLERATIONS_SINCE else fields.nothing
    return [
        *resource_claims.reference_errors(
            result.get("request", ""), f"{path}.request", names=names
        ),
        *_id_errors(result, path),
        *resource_slices.binding_errors(result, path),
        *fields.each(result.get("tolerations"), f"{path}.tolerations", check),
        *resource_extras.operation_errors(
            result.get("skipNodeOperations"), f"{path}.skipNodeOperations"
        ),
    ]


def _id_errors(item: Json, path: str) -> fields.Errors:
    found = [
        *syntax.driver(item.get("driver"), f"{path}.driver"),
        *syntax.pool(item.get("pool"), f"{path}.pool"),
        *syntax.label(item.get("device", ""), f"{path}.device"),
    ]
    if "shareID" in item:
        found += syntax.uuid(item["shareID"], f"{path}.shareID")
    return found


def _config_errors(
    config: Json, path: str, *, names: resource_claims.RequestNames
) -> fields.Errors:
    source, place = config.get("source"), f"{path}.source"
    found: fields.Errors = []
    if not source:
        found.append(fields.required(place))
    elif source not in _SOURCES:
        found.append(fields.not_supported(place, source, _SOURCES))
    found += resource_claims.reference_list_errors(
        config.get("requests"), f"{path}.requests", names
    )
    return found + resource_claims.opaque_errors(config, path)


def _device_errors(device: Json, path: str, *, allocated: set[ShareId]) -> fields.Errors:
    found = _id_errors(device, path)
    if _share_id(device) not in allocated:
        shown = "/".join(_share_id(device)).rstrip("/")
        found.append(fields.invalid(path, shown, "must be an allocated device in the claim"))
    found += conditions_errors(device.get("conditions") or (), f"{path}.conditions")
    if "data" in device:
        found += syntax.json_object(device["data"], f"{path}.data", _LONGEST_DATA)
    return found + _network_errors(device.get("networkData") or {}, f"{path}.networkData")


def conditions_errors(conditions: Sequence[Json], path: str) -> fields.Errors:
    """What is wrong with the conditions in a status."""
    found: fields.Errors = []
    # What is wrong with the entries is told even if there are too many.
    if len(conditions) > _MAX_CONDITIONS:
        found.append(fields.too_many(path, len(conditions), _MAX_CONDITIONS))
    types: set[str] = set()
    for index, condition in enumerate(conditions):
        place, name = f"{path}[{index}]", condition.get("type", "")
        if name in types:
            found.append(fields.duplicate(f"{place}.type", name))
        types.add(name)
        found += _condition_errors(condition, place)
    return found


def _condition_errors(condition: Json, path: str) -> fields.Errors:
    found = syntax.label_key(condition.get("type"), f"{path}.type")
    if condition.get("status") not in _CONDITION_STATUS:
        status = condition.get("status") or ""
        found.append(fields.not_supported(f"{path}.status", status, _CONDITION_STATUS))
    if not condition.get("lastTransitionTime"):
        found.append(fields.required(f"{path}.lastTransitionTime"))
    reason = condition.get("reason") or ""
    if not reason:
        found.append(fields.required(f"{path}.reason"))
    elif not _CONDITION_REASON.fullmatch(reason):
        detail = (
            "a condition reason must start with alphabetic character, optionally followed by a "
            "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
            "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',"
            "  or 'ReasonA:ReasonB', regex used for validation is "
            f"'{_CONDITION_REASON.pattern}')"
        )
        found.append(fields.invalid(f"{path}.reason", reason, detail))
    return found


def _network_errors(network: Json, path: str) -> fields.Errors:
    name, address = network.get("interfaceName", ""), network.get("hardwareAddress", "")
    return [
        *syntax.text(name, f"{path}.interfaceName", _LONGEST_INTERFACE_NAME),
        *syntax.text(address, f"{path}.hardwareAddress", _LONGEST_HARDWARE_ADDRESS),
        *fields.distinct(network.get("ips"), _MAX_IPS, f"{path}.ips", syntax.interface_address),
    ]
