"""Which schemas a CustomResourceDefinition may have: structural ones.

Source of what is refused, and of the words: Kubernetes 1.36,
`apiextensions-apiserver/pkg/apiserver/schema/validation.go`, `.../defaulting/validation.go` and
`pkg/apis/apiextensions/validation/validation.go`.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.logic.cel import patterns, values
from dra_driver.sim.api.kinds import (
    custom_checks,
    custom_fitting,
    custom_lists,
    custom_rules,
    fields,
)

Json = dict[str, Any]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_UNSUPPORTED = (
    "$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties",
)  # fmt: skip
_COMBINED = ("allOf", "anyOf", "oneOf")
_MAP_TYPE = "x-kubernetes-map-type"
_SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "type": str, "format": str, "title": str, "description": str, "pattern": str,
    "nullable": bool, "exclusiveMaximum": bool, "exclusiveMinimum": bool, "uniqueItems": bool,
    "maximum": (int, float), "minimum": (int, float), "multipleOf": (int, float),
    "maxLength": int, "minLength": int, "maxItems": int, "minItems": int,
    "maxProperties": int, "minProperties": int,
    "enum": list, "required": list, "allOf": list, "anyOf": list, "oneOf": list,
    "items": dict, "properties": dict, "not": dict, "additionalProperties": (dict, bool),
    "externalDocs": dict, "example": object, "default": object, "$schema": str,
    custom_fitting.PRESERVE: bool, custom_fitting.EMBEDDED: bool,
    custom_checks.INT_OR_STRING: bool, custom_lists.TYPE: str, custom_lists.KEYS: list,
    _MAP_TYPE: str, custom_rules.RULES: list,
}  # fmt: skip
"""The fields of a schema, and of which type each is in JSON."""
_OF_THE_STRUCTURE = {
    "type": "must be empty to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "additionalProperties": "must be undefined to be structural",
    "nullable": "must be false to be structural",
    custom_fitting.PRESERVE: "must be false to be structural",
    custom_fitting.EMBEDDED: "must be false to be structural",
    custom_checks.INT_OR_STRING: "must be false to be structural",
    custom_lists.TYPE: "must be undefined to be structural",
    custom_lists.KEYS: "must be empty to be structural",
    _MAP_TYPE: "must be undefined to be structural",
    custom_rules.RULES: "must be empty to be structural",
}
"""What is said outside of `allOf`, `anyOf`, `oneOf` and `not`, and not within."""


def check(schema: Any, path: str) -> fields.Errors:
    """What is wrong with the schema of an object that stands at `path`; rules are not looked at."""
    if not isinstance(schema, dict):
        return [fields.invalid(path, schema, "must be a schema")]
    found = [*_everywhere(schema, path)]
    if not found:
        found = [*_structure(schema, path, "root")]
    if not found:
        found = [*_defaults(schema, path)]
    return sorted(found, key=str)


def _everywhere(schema: Json, path: str) -> Iterator[fields.FieldError]:
    """What is wrong wherever a schema stands: fields that there are not, values of another type."""
    for name, value in schema.items():
        place = f"{path}.{name}"
        if name == "items" and isinstance(value, list):
            yield fields.forbidden(place, "items must be a schema object and not an array")
        elif name in _UNSUPPORTED:
            yield fields.forbidden(place, f"{name} is not supported")
        elif name not in _SHAPES:
            yield fields.forbidden(place, "is no field of a schema")
        elif not _is_shaped(name, value):
            yield fields.invalid(place, value, "is of another type in schemas")
    if schema.get("uniqueItems") is True:
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield fields.forbidden(f"{path}.uniqueItems", why)
    if (pattern := schema.get("pattern")) and isinstance(pattern, str):
        yield from _pattern_errors(pattern, f"{path}.pattern")
    for place, below in _within(schema, path):
        if isinstance(below, dict):
            yield from _everywhere(below, place)
        else:
            yield fields.invalid(place, below, "must be a schema")


def _is_shaped(name: str, value: Any) -> bool:
    wanted = _SHAPES[name]
    if isinstance(value, bool) and wanted in (int, (int, float)):
        return False
    items = value if isinstance(value, list) else []
    of = {"required": str, custom_lists.KEYS: str, custom_rules.RULES: dict}.get(name, object)
    return isinstance(value, wanted) and all(isinstance(item, of) for item in items)


def _pattern_errors(pattern: str, path: str) -> Iterator[fields.FieldError]:
    try:
        patterns.compile(pattern)
    except values.CallError as error:
        detail = f"must be a valid regular expression, but isn't: {error}"
        yield fields.invalid(path, pattern, detail)


def _within(schema: Json, path: str) -> Iterator[tuple[str, Any]]:
    """All schemas in a schema, and where."""
    yield from _parts(schema, path)
    for name in _COMBINED:
        if isinstance(listed := schema.get(name), list):
            for index, below in enumerate(listed):
                yield f"{path}.{name}[{index}]", below
    if isinstance(schema.get("not"), dict):
        yield f"{path}.not", schema["not"]


def _parts(schema: Json, path: str) -> Iterator[tuple[str, Any]]:
    """The schemas of the parts of a value."""
    for name, below in (_mapping(schema.get("properties"))).items():
        yield f"{path}.properties[{name}]", below
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield f"{path}.{name}", schema[name]


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _structure(schema: Json, path: str, level: str) -> Iterator[fields.FieldError]:
    kind = schema.get("type", "")
    yield from _type_errors(schema, path, level)
    if kind == "array" and "items" not in schema:
        yield fields.required(f"{path}.items", "must be specified")
    if "additionalProperties" in schema:
        yield from _map_errors(schema, path, level)
    yield from _extension_errors(schema, path)
    yield from _list_errors(schema, path)
    if level == "root" or schema.get(custom_fitting.EMBEDDED):
        yield from _metadata_errors(schema, path, level)
    for place, below in _parts(schema, path):
        yield from _structure(below, place, "items" if place.endswith(".items") else "field")
    yield from _combined(schema, path, schema)


_NO_TYPE = {
    "root": "must not be empty at the root",
    "items": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _type_errors(schema: Json, path: str, level: str) -> Iterator[fields.FieldError]:
    kind, place = schema.get("type", ""), f"{path}.type"
    free = schema.get(custom_checks.INT_OR_STRING) or schema.get(custom_fitting.PRESERVE)
    if schema.get(custom_fitting.EMBEDDED) and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield fields.invalid(place, kind, detail) if kind else fields.required(place, detail)
    elif not kind and not free:
        yield fields.required(place, _NO_TYPE[level])
    elif kind == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        yield fields.forbidden(place, detail)
    elif kind and kind not in _TYPES:
        yield fields.not_supported(place, kind, _TYPES)
    if level == "root":
        if kind and kind != "object":
            yield fields.invalid(place, kind, "must be object at the root")
        if schema.get("nullable"):
            yield fields.forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _map_errors(schema: Json, path: str, level: str) -> Iterator[fields.FieldError]:
    place = f"{path}.additionalProperties"
    if level == "root":
        yield fields.forbidden(place, "must not be used at the root")
    if schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        yield fields.forbidden(place, detail)
    if schema.get(custom_fitting.EMBEDDED):
        detail = "must not be used if x-kubernetes-embedded-resource is set"
        yield fields.forbidden(place, detail)


def _extension_errors(schema: Json, path: str) -> Iterator[fields.FieldError]:
    preserve = schema.get(custom_fitting.PRESERVE)
    if preserve is False:
        place = f"{path}.{custom_fitting.PRESERVE}"
        yield fields.invalid(place, preserve, "must be true or undefined")
    for name in (custom_fitting.PRESERVE, custom_fitting.EMBEDDED):
        if schema.get(custom_checks.INT_OR_STRING) and schema.get(name):
            detail = "must be false if x-kubernetes-int-or-string is true"
            yield fields.invalid(f"{path}.{name}", schema[name], detail)
    if schema.get(custom_fitting.EMBEDDED) and not preserve and not schema.get("properties"):
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        )
        yield fields.required(f"{path}.properties", detail)
    if (kind := schema.get(_MAP_TYPE)) is not None:
        if kind not in ("atomic", "granular"):
            yield fields.not_supported(f"{path}.{_MAP_TYPE}", kind, ("atomic", "granular"))
        yield from _wants_type(schema, path, "object", _MAP_TYPE)


def _wants_type(schema: Json, path: str, wanted: str, name: str) -> Iterator[fields.FieldError]:
    kind, detail = schema.get("type", ""), f"must be {wanted} if {name} is specified"
    if not kind:
        yield fields.required(f"{path}.type", detail)
    elif kind != wanted:
        yield fields.invalid(f"{path}.type", kind, detail)


def _list_errors(schema: Json, path: str) -> Iterator[fields.FieldError]:
    kind, keys = schema.get(custom_lists.TYPE), schema.get(custom_lists.KEYS) or []
    place, items = f"{path}.{custom_lists.KEYS}", schema.get("items") or {}
    if kind is not None:
        yield from _wants_type(schema, path, "array", custom_lists.TYPE)
        if kind not in ("atomic", "map", "set"):
            allowed = ("atomic", "map", "set")
            yield fields.not_supported(f"{path}.{custom_lists.TYPE}", kind, allowed)
    if kind in ("map", "set") and items.get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        yield fields.forbidden(f"{path}.items.nullable", detail)
    if keys and kind != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield fields.required(f"{path}.{custom_lists.TYPE}", detail)
    if kind != "map":
        return
    if not keys:
        yield fields.required(place, "must not be empty if x-kubernetes-list-type is map")
    if items and items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield fields.invalid(f"{path}.items.type", items.get("type", ""), detail)
    known = items.get("properties") or {}
    if any(key not in known for key in keys):
        yield fields.invalid(place, keys, "entries must all be names of item properties")
    for key in keys:
        if key in known and "default" not in known[key] and key not in items.get("required", ()):
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
                "required property"
            )
            yield fields.required(f"{path}.items.properties[{key}].default", detail)


def _metadata_errors(schema: Json, path: str, level: str) -> Iterator[fields.FieldError]:
    known = schema.get("properties") or {}
    for name, wanted in (("apiVersion", "string"), ("kind", "string"), ("metadata", "object")):
        if name in known and known[name].get("type", "") != wanted:
            place = f"{path}.properties[{name}].type"
            yield fields.invalid(place, known[name].get("type", ""), f"must be {wanted}")
    if level != "root" or "metadata" not in known:
        return
    rest = {*known["metadata"]} - {"type", "description", "properties"}
    named = set(known["metadata"].get("properties") or ())
    if rest or named - {"name", "generateName"}:
        detail = (
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified"
        )
        yield fields.forbidden(f"{path}.properties[metadata]", detail)


def _combined(schema: Json, path: str, outer: Json) -> Iterator[fields.FieldError]:
    """In what combines conditions there are only conditions, on fields that are known outside."""
    for name in _COMBINED:
        for index, below in enumerate(schema.get(name) or ()):
            if name == "anyOf" and schema["anyOf"] == _INT_OR_STRING:
                break
            yield from _condition(below, f"{path}.{name}[{index}]", outer)
    if "not" in schema:
        yield from _condition(schema["not"], f"{path}.not", outer)


def _condition(schema: Json, path: str, outer: Json) -> Iterator[fields.FieldError]:
    for name, detail in _OF_THE_STRUCTURE.items():
        if schema.get(name) not in (None, "", False, [], ()):
            yield fields.forbidden(f"{path}.{name}", detail)
    for name, below in (schema.get("properties") or {}).items():
        known, place = custom_fitting.below(outer, name), f"{path}.properties[{name}]"
        if name == "metadata":
            yield fields.forbidden(place, "must not be specified in a nested context")
        elif known is None:
            where = _outer_place(path, name)
            yield fields.required(where, f"because it is defined in {place}")
        else:
            yield from _condition(below, place, known)
    if "items" in schema and isinstance(outer.get("items"), dict):
        yield from _condition(schema["items"], f"{path}.items", outer["items"])
    yield from _combined(schema, path, outer)


def _outer_place(path: str, name: str) -> str:
    """Where the field has to be defined, too: the path without what combines."""
    parts: list[str] = []
    for part in path.split("."):
        if part == "not" or part.partition("[")[0] in _COMBINED:
            continue
        parts.append(part)
    return ".".join([*parts, f"properties[{name}]"])


def _defaults(schema: Json, path: str) -> Iterator[fields.FieldError]:
    """A default must be a value that the schema takes, without fields that it does not know."""
    if "default" in schema and schema["default"] is not None:
        value, place = copy.deepcopy(schema["default"]), f"{path}.default"
        bare = {"properties": {"": {**schema, custom_fitting.EMBEDDED: False}}}
        unknown = custom_fitting.prune(bare, {"": value})
        for name in unknown:
            detail = "must not have unknown fields"
            yield fields.invalid(f"{place}.{name.removeprefix('.')}", schema["default"], detail)
        yield from custom_checks.check(schema, value, path=place)
    for place, below in _parts(schema, path):
        yield from _defaults(below, place)
