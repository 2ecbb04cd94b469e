"""Custom resources are brought into form by the schema of their definition: fields that it does not
know go, and defaults come.

Source: Kubernetes 1.36, `apiextensions-apiserver/pkg/apiserver/schema` (`pruning/algorithm.go`,
`defaulting/prunenulls.go`, `defaulting/algorithm.go`).
"""

import copy
from typing import Any

Json = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
_OF_ALL_OBJECTS = frozenset(("apiVersion", "kind", "metadata"))


def prune(schema: Json, body: Json) -> list[str]:
    """Remove from an object what its schema does not know. The paths of that, sorted."""
    unknown: list[str] = []
    _prune({**schema, EMBEDDED: True}, body, "", unknown)
    return sorted(unknown)


def fill(schema: Json, body: Json) -> None:
    """Remove nulls where there may be none, and set defaults."""
    _drop_nulls(schema, body)
    _set_defaults(schema, body)


def below(schema: Json, key: str) -> Json | None:
    """The schema of a field or of an entry of a map; None where nothing is said of it."""
    found = (schema.get("properties") or {}).get(key)
    if found is None:
        found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else None


def _prune(schema: Json, value: Any, path: str, unknown: list[str]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _prune(schema.get("items") or {}, item, f"{path}[{index}]", unknown)
    if not isinstance(value, dict):
        return
    for key in list(value):
        if schema.get(EMBEDDED) and key in _OF_ALL_OBJECTS:
            continue
        place = f"{path}.{key}" if path else key
        if (known := below(schema, key)) is not None:
            _prune(known, value[key], place, unknown)
        elif not schema.get(PRESERVE) and schema.get("additionalProperties") is not True:
            unknown.append(place)
            del value[key]


def _drop_nulls(schema: Json | None, value: Any) -> None:
    if schema is None:
        return
    if isinstance(value, list):
        for item in value:
            _drop_nulls(schema.get("items"), item)
    if not isinstance(value, dict):
        return
    for key in list(value):
        known = below(schema, key)
        if value[key] is None and known is not None and not _may_be_null(known):
            del value[key]
        else:
            _drop_nulls(known, value[key])


def _may_be_null(schema: Json) -> bool:
    """Whether null stays: as it is, or for its default."""
    return bool(schema.get("nullable")) or "default" in schema


def _set_defaults(schema: Json | None, value: Any) -> None:
    if schema is None:
        return
    if isinstance(value, dict):
        for key, known in (schema.get("properties") or {}).items():
            if "default" in known and key not in value:
                value[key] = copy.deepcopy(known["default"])
        for key in value:
            known = below(schema, key)
            value[key] = _or_default(known, value[key])
            _set_defaults(known, value[key])
    elif isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            value[index] = _or_default(items, item)
            _set_defaults(items, value[index])


def _or_default(schema: Json | None, value: Any) -> Any:
    if value is None and schema is not None and not schema.get("nullable"):
        return copy.deepcopy(schema.get("default"))
    return value
