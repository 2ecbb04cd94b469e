"""Defaults and rules for ResourceSlices.

Source: Kubernetes 1.36, `pkg/apis/resource/validation/validation.go`.
"""

import functools
from typing import Any

from dra_driver.sim.api.kinds import (
    combined_counters,
    fields,
    resource_capacities,
    resource_extras,
    resource_gates,
    strategies,
    syntax,
)

Json = dict[str, Any]

_MAX_DEVICES = 128
_MAX_DEVICES_WITH_ADVANCED_FEATURES = 64
_MAX_COUNTER_SETS = 8
_MAX_COUNTERS = 32
_MAX_COUNTER_CONSUMPTIONS = 2
_MAX_ATTRIBUTES_AND_CAPACITIES = 32
_MAX_ATTRIBUTE_VALUES = 48
_MAX_TAINTS = 16
_MAX_BINDING_CONDITIONS = 4
_LONGEST_VALUE = 64
_SEPARATE_COUNTERS_SINCE = 35
_LISTS = ("bools", "ints", "strings", "versions")
_VALUES = ("bool", "int", "string", "version", *_LISTS)
_EFFECTS = ("NoSchedule", "NoExecute", "None")
_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_TERM_SINCE = 38
"""The minor version of Kubernetes from which on a device has one node selector term, as a slice:
kubernetes/kubernetes#141213."""


def _prepare(write: strategies.Write) -> None:
    spec = write.new.setdefault("spec", {})
    spec.setdefault("pool", {}).setdefault("generation", 0)
    resource_gates.drop_disabled(write, _drops(write))
    for device in spec.get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", write.around.now)
        for mapping in (device.get("nodeAllocatableResourceMappings") or {}).values():
            mapping.setdefault("allocationMultiplier", "1")


def _drops(write: strategies.Write) -> dict[str, resource_gates.Drop]:
    drops = dict(resource_gates.SLICE)
    if resource_gates.DEVICE_STATUS in write.around.disabled_gates:
        # Conditions are reported through the status of the claim.
        drops[resource_gates.DEVICE_STATUS] = drops[resource_gates.BINDING_CONDITIONS]
    return drops


def _validate(write: strategies.Write) -> fields.Errors:
    spec = write.new["spec"]
    old = write.old["spec"] if write.old is not None else None
    devices = spec.get("devices") or ()
    before = {device.get("name"): device for device in (old or {}).get("devices") or ()}
    # What is combined is limited by what it comes to in all.
    combined = write.around.minor < _SEPARATE_COUNTERS_SINCE
    check = functools.partial(
        _device_errors,
        before=before,
        per_device=bool(spec.get("perDeviceNodeSelection")),
        most_consumptions=None if combined else _MAX_COUNTER_CONSUMPTIONS,
        around=write.around,
    )
    advanced = not combined and any(map(_is_advanced, devices))
    limit = _MAX_DEVICES_WITH_ADVANCED_FEATURES if advanced else _MAX_DEVICES
    return [
        *syntax.driver(spec.get("driver"), "spec.driver"),
        *_pool_errors(spec["pool"]),
        *_immutable_errors(spec, old),
        *_node_errors(spec),
        *_counter_layout_errors(spec, combined=combined),
        *fields.distinct(
            devices, limit, "spec.devices", check, lambda device: device.get("name", "")
        ),
        *fields.distinct(
            spec.get("sharedCounters"),
            None if combined else _MAX_COUNTER_SETS,
            "spec.sharedCounters",
            _counter_set_errors,
            lambda counter_set: counter_set.get("name", ""),
        ),
        *resource_extras.spec_errors(spec, write.around.minor),
    ]


def _warn(body: Json) -> list[str]:
    driver = body["spec"]["driver"]
    if driver == driver.lower():
        return []
    return [
        f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters'
    ]


STRATEGY = strategies.Strategy(_prepare, _validate, _warn)


def _is_advanced(device: Json) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    values = (device.get("attributes") or {}).values()
    return any(name in value for value in values for name in _LISTS)


def _pool_errors(pool: Json) -> fields.Errors:
    found = syntax.pool(pool.get("name"), "spec.pool.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        detail = "must be greater than zero"
        found.append(fields.invalid("spec.pool.resourceSliceCount", count, detail))
    if generation < 0:
        detail = "must be greater than or equal to zero"
        found.append(fields.invalid("spec.pool.generation", generation, detail))
    return found


def _immutable_errors(spec: Json, old: Json | None) -> fields.Errors:
    if old is None:
        return []
    pairs = (
        ("spec.pool.name", spec["pool"].get("name"), old["pool"]["name"]),
        ("spec.driver", spec.get("driver"), old["driver"]),
        ("spec.nodeName", spec.get("nodeName"), old.get("nodeName")),
    )
    return [
        fields.invalid(path, new, "field is immutable") for path, new, was in pairs if new != was
    ]


def _node_errors(spec: Json) -> fields.Errors:
    found: fields.Errors = []
    given = [f"`{name}`" for name in _NODE_FIELDS if _is_chosen(spec.get(name))]
    if "nodeName" in spec:
        name = spec["nodeName"]
        if name:
            found += syntax.subdomain(name, "spec.nodeName")
        else:
            detail = "must be either unset or set to a non-empty string"
            found.append(fields.invalid("spec.nodeName", name, detail))
    if "nodeSelector" in spec:
        found += syntax.node_selector(spec["nodeSelector"], "spec.nodeSelector")
        found += _term_errors(spec["nodeSelector"], "spec.nodeSelector")
    for name in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(name) is False:
            detail = "must be either unset or set to true"
            found.append(fields.invalid(f"spec.{name}", spec[name], detail))
    allowed = "exactly one of " + ", ".join(f"`{name}`" for name in _NODE_FIELDS) + " is required"
    if not given:
        found.append(fields.required("spec", allowed))
    elif len(given) > 1:
        detail = f"{allowed}, but multiple fields are set"
        found.append(fields.invalid("spec", "{" + ", ".join(given) + "}", detail))
    return found


def _term_errors(selector: Json, path: str) -> fields.Errors:
    terms = selector.get("nodeSelectorTerms") or []
    if len(terms) == 1:
        return []
    detail = "must have exactly one node selector term"
    return [fields.invalid(f"{path}.nodeSelectorTerms", terms, detail)]


def _is_chosen(value: Any) -> bool:
    """Whether a field says on which nodes devices are; a selector does, though it be empty."""
    return isinstance(value, dict) or bool(value)


def _counter_layout_errors(spec: Json, *, combined: bool) -> fields.Errors:
    if combined:
        return combined_counters.errors(spec)
    if "sharedCounters" in spec and "devices" in spec:
        detail = "only one of `sharedCounters` or `devices` is allowed"
        return [fields.invalid("spec", "", detail)]
    return []


def _counter_set_errors(counter_set: Json, path: str) -> fields.Errors:
    found = syntax.required_label(counter_set.get("name"), f"{path}.name")
    return found + _counters_errors(counter_set, path)


def _consumption_errors(consumption: Json, path: str) -> fields.Errors:
    return [
        *syntax.required_label(consumption.get("counterSet"), f"{path}.counterSet"),
        *_counters_errors(consumption, path),
        *resource_extras.group_errors(consumption, path),
    ]


def _counters_errors(body: Json, path: str) -> fields.Errors:
    place = f"{path}.counters"
    if not body.get("counters"):
        return [fields.required(place)]
    return fields.mapped(
        body["counters"],
        _MAX_COUNTERS,
        place,
        key=syntax.label,
        value=fields.nothing,
        longest_key=syntax.LONGEST_LABEL,
    )


def _device_errors(
    device: Json,
    path: str,
    *,
    before: dict[str | None, Json],
    per_device: bool,
    most_consumptions: int | None,
    around: strategies.Surroundings,
) -> fields.Errors:
    old = before.get(device.get("name"))
    key = functools.partial(syntax.qualified_name, minor=around.minor)
    found = [
        *syntax.label(device.get("name", ""), f"{path}.name"),
        *_size_errors(device, path),
        *fields.mapped(
            device.get("attributes"),
            None,
            f"{path}.attributes",
            key=key,
            value=_attribute_errors,
            longest_key=syntax.LONGEST_QUALIFIED_NAME,
        ),
    ]
    # What has been accepted is not questioned again.
    if old is None or old.get("capacity") != device.get("capacity"):
        multiple = bool(device.get("allowMultipleAllocations"))
        found += fields.mapped(
            device.get("capacity"),
            None,
            f"{path}.capacity",
            key=key,
            value=functools.partial(resource_capacities.validate, multiple=multiple, around=around),
            longest_key=syntax.LONGEST_QUALIFIED_NAME,
        )
    if old is None or old.get("taints") != device.get("taints"):
        place = f"{path}.taints"
        found += fields.listed(device.get("taints"), _MAX_TAINTS, place, taint_errors)
    found += fields.distinct(
        device.get("consumesCounters"),
        most_consumptions,
        f"{path}.consumesCounters",
        _consumption_errors,
        lambda consumption: consumption.get("counterSet", ""),
    )
    found += _device_node_errors(device, path, per_device=per_device, minor=around.minor)
    found += binding_errors(device, path)
    return found + resource_extras.device_errors(device, path)


def _size_errors(device: Json, path: str) -> fields.Errors:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    found = []
    total = len(attributes) + len(capacity)
    if total > _MAX_ATTRIBUTES_AND_CAPACITIES:
        detail = (
            "the total number of attributes and capacities must not exceed "
            f"{_MAX_ATTRIBUTES_AND_CAPACITIES}"
        )
        found.append(fields.invalid(path, total, detail))
    values = sum(
        sum(len(value.get(name) or ()) for name in _LISTS) or 1 for value in attributes.values()
    )
    if values > _MAX_ATTRIBUTE_VALUES:
        detail = f"the total number of attribute values must not exceed {_MAX_ATTRIBUTE_VALUES}"
        found.append(fields.invalid(path, values, detail))
    return found


def _attribute_errors(value: Json, path: str) -> fields.Errors:
    found: fields.Errors = []
    for name, items in (
        ("string", [value.get("string")]),
        ("version", [value.get("version")]),
        ("strings", value.get("strings") or ()),
        ("versions", value.get("versions") or ()),
    ):
        for index, item in enumerate(items):
            if item is None:
                continue
            place = f"{path}.{name}[{index}]" if name.endswith("s") else f"{path}.{name}"
            if name.startswith("version"):
                found += syntax.version(item, place)
            found += syntax.text(item, place, _LONGEST_VALUE)
    for name in _LISTS:
        if value.get(name) == []:
            found.append(fields.invalid(f"{path}.{name}", [], "must not be empty if specified"))
    given = [name for name in _VALUES if name in value]
    if len(given) != 1:
        shown = value if given else ""
        found.append(fields.invalid(path, shown, "exactly one value must be specified"))
    return found


def taint_errors(taint: Json, path: str) -> fields.Errors:
    """What is wrong with a taint of a device."""
    found = syntax.label_key(taint.get("key"), f"{path}.key")
    found += syntax.label_value(taint.get("value"), f"{path}.value")
    effect = taint.get("effect")
    if not effect:
        found.append(fields.required(f"{path}.effect"))
    elif effect not in _EFFECTS:
        found.append(fields.not_supported(f"{path}.effect", effect, _EFFECTS))
    return found


def _device_node_errors(device: Json, path: str, *, per_device: bool, minor: int) -> fields.Errors:
    names = ("nodeName", "nodeSelector", "allNodes")
    if not per_device:
        if not any(name in device for name in names):
            return []
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        )
        return [fields.invalid(path, None, detail)]
    found: fields.Errors = []
    if "nodeName" in device:
        if device["nodeName"]:
            found += syntax.subdomain(device["nodeName"], f"{path}.nodeName")
        else:
            found.append(fields.invalid(f"{path}.nodeName", "", "must not be empty"))
    if "nodeSelector" in device:
        found += syntax.node_selector(device["nodeSelector"], f"{path}.nodeSelector")
        if minor >= _ONE_TERM_SINCE and device["nodeSelector"].get("nodeSelectorTerms"):
            found += _term_errors(device["nodeSelector"], f"{path}.nodeSelector")
    if device.get("allNodes") is False:
        detail = "must be either unset or set to true"
        found.append(fields.invalid(f"{path}.allNodes", device["allNodes"], detail))
    given = [f"`{name}`" for name in names if _is_chosen(device.get(name))]
    allowed = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
        "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    if not given:
        found.append(fields.required(path, allowed))
    elif len(given) > 1:
        found.append(fields.invalid(path, "{" + ", ".join(given) + "}", allowed))
    return found


def binding_errors(body: Json, path: str) -> fields.Errors:
    """What is wrong with the binding conditions of a device or an allocation result."""
    conditions = body.get("bindingConditions") or []
    failures = body.get("bindingFailureConditions") or []
    place, failure_place = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    limit = _MAX_BINDING_CONDITIONS
    found = [
        *fields.listed(conditions, limit, place, syntax.label_key),
        *fields.listed(failures, limit, failure_place, syntax.label_key),
        *fields.duplicates(conditions, place),
    ]
    # What is there twice is told even if there are too many.
    needed, seen = set(conditions), set()
    for index, condition in enumerate(failures):
        where = f"{failure_place}[{index}]"
        if condition in seen:
            found.append(fields.duplicate(where, condition))
        seen.add(condition)
        if condition in needed:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(fields.invalid(where, condition, detail))
    if failures and not conditions:
        detail = "bindingConditions are required to use bindingFailureConditions"
        found.append(fields.invalid(place, conditions, detail))
    if conditions and not failures:
        detail = "bindingFailureConditions are required to use bindingConditions"
        found.append(fields.invalid(failure_place, failures, detail))
    return found
