"""The patch formats: JSON patch, merge patch and strategic merge patch.

Sources: RFC 6902, RFC 7386, and `k8s.io/apimachinery/pkg/util/strategicpatch`.
"""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dra_driver.sim.api.kinds import problems

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
ACCEPTED = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)

MERGE_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "addresses": "type",
        "conditions": "type",
        "containers": "name",
        "env": "name",
        "ephemeralContainers": "name",
        "hostAliases": "ip",
        "hostIPs": "ip",
        "imagePullSecrets": "name",
        "initContainers": "name",
        "matchConditions": "name",
        "ownerReferences": "uid",
        "podIPs": "ip",
        "ports": "containerPort",
        "reservedFor": "uid",
        "resourceClaimStatuses": "name",
        "resourceClaims": "name",
        "schedulingGates": "name",
        "secrets": "name",
        "topologySpreadConstraints": "topologyKey",
        "volumeDevices": "devicePath",
        "volumeMounts": "mountPath",
        "volumes": "name",
        "webhooks": "name",
    }
)
"""Lists whose entries are merged by a key, in the kinds that are served: field name -> key."""
MERGED_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that are merged."""

_ORDER = "$setElementOrder/"
_DELETE_VALUES = "$deleteFromPrimitiveList/"
_DIRECTIVE = "$patch"
_MISSHAPEN = (AttributeError, KeyError, IndexError, ValueError, TypeError)
"""What comes of a list, an object or a text that stands where the format has another of them."""
_RETAIN = "$retainKeys"


def apply(content_type: str, current: Json, patch: Any) -> Json:
    """The object after the patch; `current` may be changed.

    Raises:
        problems.ApiError: 400 or 422, the patch cannot be applied; 415, an unknown format.
    """
    if content_type == JSON_PATCH:
        return json_patch(current, patch)
    if not isinstance(patch, dict):
        raise problems.bad_request("the patch is not a JSON object")
    if content_type == MERGE_PATCH:
        return _as_object(merge_patch(current, patch))
    if content_type != STRATEGIC_MERGE_PATCH:
        raise problems.unsupported_media_type(content_type, ACCEPTED)
    try:
        return strategic_merge(current, patch)
    except _MISSHAPEN as error:
        raise problems.unprocessable(f"the patch does not fit the object: {error}") from error


def merge_patch(current: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, patch: Any) -> Json:
    """RFC 6902."""
    if not isinstance(patch, list):
        raise problems.bad_request("a JSON patch is a list of operations")
    for operation in patch:
        try:
            document = _OPERATIONS[operation["op"]](document, operation)
        except _MISSHAPEN as error:
            raise problems.unprocessable(f"{operation!r} cannot be applied: {error}") from error
    return _as_object(document)


def _as_object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise problems.unprocessable("the result of the patch is not a JSON object")
    return value


def _steps(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"path {pointer!r} does not begin with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _child(value: Any, step: str) -> Any:
    return value[int(step)] if isinstance(value, list) else value[step]


def _look_up(document: Any, pointer: str) -> Any:
    for step in _steps(pointer):
        document = _child(document, step)
    return document


def _parent(document: Any, pointer: str) -> tuple[Any, str]:
    *steps, last = _steps(pointer)
    for step in steps:
        document = _child(document, step)
    return document, last


def _add(document: Any, operation: Json) -> Any:
    return _insert(document, operation["path"], operation["value"])


def _insert(document: Any, pointer: str, value: Any) -> Any:
    if not pointer:
        return value
    parent, step = _parent(document, pointer)
    if isinstance(parent, list):
        index = len(parent) if step == "-" else int(step)
        if not 0 <= index <= len(parent):
            raise IndexError(f"index {index} is outside the list")
        parent.insert(index, value)
    else:
        parent[step] = value
    return document


def _remove(document: Any, operation: Json) -> Any:
    parent, step = _parent(document, operation["path"])
    del parent[int(step) if isinstance(parent, list) else step]
    return document


def _replace(document: Any, operation: Json) -> Any:
    if not operation["path"]:
        return operation["value"]
    parent, step = _parent(document, operation["path"])
    _child(parent, step)
    parent[int(step) if isinstance(parent, list) else step] = operation["value"]
    return document


def _move(document: Any, operation: Json) -> Any:
    value = _look_up(document, operation["from"])
    return _insert(_remove(document, {"path": operation["from"]}), operation["path"], value)


def _copy(document: Any, operation: Json) -> Any:
    value = copy.deepcopy(_look_up(document, operation["from"]))
    return _insert(document, operation["path"], value)


def _test(document: Any, operation: Json) -> Any:
    if _look_up(document, operation["path"]) != operation["value"]:
        raise ValueError("testing value failed")
    return document


_OPERATIONS: Mapping[str, Callable[[Any, Json], Any]] = MappingProxyType(
    {
        "add": _add,
        "remove": _remove,
        "replace": _replace,
        "move": _move,
        "copy": _copy,
        "test": _test,
    }
)


def strategic_merge(current: Json, patch: Json) -> Json:
    """A merge in which known lists are merged entry by entry."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    merged = dict(current)
    if _RETAIN in patch:
        merged = {key: value for key, value in merged.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key.startswith(_DELETE_VALUES):
            name = key.removeprefix(_DELETE_VALUES)
            merged[name] = [item for item in merged.get(name) or () if item not in value]
        elif not key.startswith("$"):
            _merge_field(merged, key, value, patch.get(_ORDER + key))
    return merged


def _merge_field(merged: Json, key: str, value: Any, order: list[Any] | None) -> None:
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict):
        if value.get(_DIRECTIVE) == "delete":
            merged.pop(key, None)
            return
        current = merged.get(key)
        merged[key] = strategic_merge(current if isinstance(current, dict) else {}, value)
    elif isinstance(value, list) and key in MERGE_KEYS:
        merged[key] = _merge_entries(merged.get(key) or [], value, MERGE_KEYS[key], order)
    elif isinstance(value, list) and key in MERGED_SETS:
        current = merged.get(key) or []
        joined = [*current, *(item for item in value if item not in current)]
        merged[key] = _ordered(joined, order, lambda item: item)
    else:
        merged[key] = value


def _merge_entries(
    current: list[Json], patch: list[Json], name: str, order: list[Any] | None
) -> list[Json]:
    if any(entry.get(_DIRECTIVE) == "replace" for entry in patch):
        return [entry for entry in patch if _DIRECTIVE not in entry]
    merged = {entry.get(name): entry for entry in current}
    for entry in patch:
        key = entry.get(name)
        if entry.get(_DIRECTIVE) == "delete":
            merged.pop(key, None)
        else:
            merged[key] = strategic_merge(merged.get(key) or {}, entry)
    wanted = None if order is None else [entry.get(name) for entry in order]
    return _ordered(list(merged.values()), wanted, lambda entry: entry.get(name))


def _ordered(items: list[Any], order: list[Any] | None, key: Callable[[Any], Any]) -> list[Any]:
    """The items in the order that the patch asks for; others keep their place behind."""
    if order is None:
        return items
    rank = {value: index for index, value in enumerate(order)}
    return sorted(items, key=lambda item: rank.get(key(item), len(rank)))
