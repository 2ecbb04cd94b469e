"""CustomResourceDefinitions of the parameter kinds, made from the models of what users write.

Schemas are structural (`apiextensions.k8s.io/v1`): they cannot recurse, so selectors are typed to a
depth, and what is deeper is kept as it comes and checked by the controller alone, as are sharing's
memory limits: an API server compares no quantities. Every list and text has a limit, so that it can
tell what a rule costs. Source: Kubernetes 1.36, `staging/src/k8s.io/apiextensions-apiserver`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.logic.parameters import status_schema
from dra_driver.model import configs, parameter_specs, parameters, sharing

Json = dict[str, Any]

LEVELS = 4
"""Selectors in one another that are typed."""
_KEPT = frozenset({
    "type", "format", "description", "minimum", "maximum", "minLength", "maxLength", "pattern",
    "enum", "minItems", "maxItems", "maxProperties", "required", "x-kubernetes-int-or-string",
})  # fmt: skip
_SHORT: Mapping[parameters.Kind, str] = {
    parameters.Kind.GPU: "gpucp",
    parameters.Kind.MIG: "migcp",
    parameters.Kind.MIG_DEVICE: "migdcp",
    parameters.Kind.VFIO: "vfiocp",
}
_SAID: Mapping[parameters.Kind, str] = {
    parameters.Kind.GPU: "Whole GPUs.",
    parameters.Kind.MIG: "MIG devices, partitions of GPUs.",
    parameters.Kind.MIG_DEVICE: "MIG devices, partitions of GPUs: the later name of "
    "MigClaimParameters.",
    parameters.Kind.VFIO: "GPUs that are handed to virtual machines.",
}
_COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
    ("Matching", "integer", ".status.matching"),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_QUANTITIES = {"x-kubernetes-int-or-string": True, "maxLength": 64}
_OLD_LIMITS: Mapping[str, Json] = {
    "pinnedDeviceMemoryLimit": {
        "description": "a quantity, or an object from devices to quantities: older name of "
        "defaultPinnedDeviceMemoryLimit and of defaultPerDevicePinnedMemoryLimit",
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "perDevicePinnedMemoryLimit": {
        "description": "an object from devices to quantities: older name of "
        "defaultPerDevicePinnedMemoryLimit",
        "type": "object",
        "maxProperties": parameters.MOST_DEVICES,
        "additionalProperties": _QUANTITIES,
    },
}


def all_kinds() -> tuple[Json, ...]:
    """The definitions, one of each kind."""
    return tuple(map(definition, parameters.Kind))


def definition(kind: parameters.Kind) -> Json:
    """The definition of one kind."""
    names = {
        "kind": kind.value,
        "listKind": f"{kind.value}List",
        "plural": kind.plural,
        "singular": kind.plural,
        "shortNames": [_SHORT[kind]],
    }
    version = {
        "name": parameters.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": name, "type": of, "jsonPath": path} for name, of, path in _COLUMNS
        ],
        "schema": {"openAPIV3Schema": _object_schema(kind)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{parameters.GROUP}",
            # Objects go with their definition: an uninstall must take no user's parameters away.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": parameters.GROUP,
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _object_schema(kind: parameters.Kind) -> Json:
    body: Json = {
        "type": "object",
        "description": f"{_SAID[kind]} The controller makes a ResourceClaimTemplate of the same "
        "name.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(kind),
            "status": status_schema.SCHEMA,
        },
    }
    if "required" in body["properties"]["spec"]:
        body["required"] = ["spec"]
    return body


def spec_schema(kind: parameters.Kind) -> Json:
    """The structural schema of `spec`."""
    whole = parameter_specs.MODELS[kind].model_json_schema(by_alias=True)
    schema = _structural(whole, whole.get("$defs", {}), 0)
    schema["properties"]["count"]["default"] = 1
    if "sharing" in schema["properties"]:
        schema["properties"]["sharing"] = _sharing_schema(kind)
    return schema


def _structural(node: Json, defs: Mapping[str, Json], level: int) -> Json:
    """A node of a JSON schema (2020-12) without what a structural one has not.

    `level` is how many selectors it is in; deep ones have no descriptions, which are the same.
    """
    if "anyOf" in node:
        [one] = [each for each in node["anyOf"] if each.get("type") != "null"]
        return _structural(_told(one, node), defs, level)
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name.endswith("Selector"):
            level += 1
        if level > LEVELS:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return _structural(_told(defs[name], node), defs, level)
    body = {key: value for key, value in node.items() if key in _KEPT}
    if level > 1:
        body.pop("description", None)
    if "properties" in node:
        body["properties"] = {
            name: _structural(each, defs, level) for name, each in node["properties"].items()
        }
        if "andExpression" in node["properties"]:
            body["x-kubernetes-validations"] = [_exactly_one(node["properties"])]
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            body[name] = _structural(node[name], defs, level)
    return body


def _told(inner: Json, outer: Json) -> Json:
    """With the description of the field, which says more than that of its type."""
    said = outer.get("description", inner.get("description"))
    return inner | ({"description": said} if said else {})


def _exactly_one(names: Iterable[str]) -> Json:
    given = ", ".join(f"has(self.{name})" for name in names)
    return {
        "rule": f"[{given}].exists_one(given, given)",
        "message": "write exactly one property or list; several go into an andExpression",
    }


def _sharing_schema(kind: parameters.Kind) -> Json:
    """That of the configs of today, with the older names of this API."""
    is_mig = kind.device_type is sharing.DeviceType.MIG
    model = configs.MigDeviceSharing if is_mig else configs.GpuSharing
    whole = model.model_json_schema(by_alias=True)
    defs = {
        name: each | {"properties": {key: _limit(key, field) for key, field in fields.items()}}
        for name, each in whole["$defs"].items()
        for fields in [each["properties"]]
    }
    schema = _structural(whole, defs, 0)
    schema["description"] = "how the processes of the claim share the device"
    fields = schema["properties"]
    strategies = ["TimeSlicing", "MPS"]
    fields["strategy"] = {
        "type": "string",
        "enum": strategies,
        "description": f"{' or '.join(strategies)}; without it nothing is set up"
        + ("; TimeSlicing does nothing on a MIG device" if is_mig else ""),
    }
    mps = fields["mpsConfig"]
    mps["properties"] |= _OLD_LIMITS
    mps["x-kubernetes-validations"] = [
        _not_both("maxConnections", "maxClients"),
        _not_both("activeThreadPercentage", "defaultActiveThreadPercentage"),
        _not_both("perDevicePinnedMemoryLimit", "defaultPerDevicePinnedMemoryLimit"),
    ]
    schema["x-kubernetes-validations"] = [_only_with("mpsConfig", "MPS")]
    if not is_mig:
        slices = fields["timeSlicingConfig"]
        slices["x-kubernetes-validations"] = [_not_both("timeSlice", "interval")]
        schema["x-kubernetes-validations"].append(_only_with("timeSlicingConfig", "TimeSlicing"))
    return schema


def _limit(name: str, field: Json) -> Json:
    """The quantities of a config, which have a form of their own in structural schemas."""
    said = {"description": field.get("description", "")}
    if name == "defaultPerDevicePinnedMemoryLimit":
        return {**_OLD_LIMITS["perDevicePinnedMemoryLimit"], **said}
    return {**_QUANTITIES, **said} if name.endswith("MemoryLimit") else field


def _not_both(old: str, new: str) -> Json:
    return {
        "rule": f"!(has(self.{old}) && has(self.{new}))",
        "message": f"{old} is the older name of {new}: write one of them",
    }


def _only_with(field: str, strategy: str) -> Json:
    return {
        "rule": f"!has(self.{field}) || (has(self.strategy) && self.strategy == '{strategy}')",
        "message": f"{field} needs the strategy {strategy}",
    }
