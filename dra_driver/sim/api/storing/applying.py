"""Server-side apply: a merge that remembers which manager set which fields.

Ownership is simple: a field belongs to all managers that applied it, and the last one's value
counts; there are no conflicts. A field that its last owner no longer applies is removed.
Source of the format of `managedFields`: `sigs.k8s.io/structured-merge-diff`, package fieldpath.
"""

import json
from collections.abc import Iterable
from typing import Any

from dra_driver.sim.api.storing import patching

Json = dict[str, Any]

_KEYS: dict[str, tuple[str, ...]] = {
    name: (key,) for name, key in patching.MERGE_KEYS.items() if name != "ports"
} | {
    "ports": ("containerPort", "protocol"),
    "claims": ("name",),
    # Of the status of a claim; the devices of a slice are no map, and have no `driver`.
    "devices": ("driver", "device", "pool", "shareID"),
}
_NOT_OWNED = {"apiVersion": None, "kind": None}
_NOT_OWNED_METADATA = ("name", "namespace", "uid", "resourceVersion", "managedFields")


def apply(live: Json, applied: Json, *, manager: str, subresource: str, now: str) -> Json:
    """The object after `manager` has applied `applied` (its whole intent) to `live`."""
    applied_metadata = dict(applied.get("metadata") or {})
    applied_metadata.pop("managedFields", None)
    applied = applied | {"metadata": applied_metadata}
    entries = list((live.get("metadata") or {}).get("managedFields") or ())
    mine = next((entry for entry in entries if _is_of(entry, manager, subresource)), None)
    others = [entry for entry in entries if entry is not mine]
    owned = field_set(_owned_part(applied))
    merged: Json = live
    if mine is not None:
        gone = _minus(mine["fieldsV1"], owned)
        for entry in others:
            gone = _minus(gone, entry["fieldsV1"])
        merged = _without(live, gone)
    merged = _merged(merged, applied)
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": applied["apiVersion"],
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
    }
    if subresource:
        entry["subresource"] = subresource
    if mine is not None and mine["fieldsV1"] == owned:
        entry = mine
    managed = sorted([*others, entry], key=lambda item: (item["manager"], item["operation"]))
    return merged | {"metadata": merged["metadata"] | {"managedFields": managed}}


def field_set(value: Any, name: str = "") -> Json:
    """The fields that are set in `value`, in the format of `fieldsV1`."""
    if isinstance(value, dict):
        return {f"f:{key}": field_set(item, key) for key, item in value.items()}
    keys = _list_keys(name, value)
    if keys:
        return {_entry_key(entry, keys): {".": {}} | field_set(entry) for entry in value}
    if name in patching.MERGED_SETS and isinstance(value, list):
        return {f"v:{json.dumps(item)}": {} for item in value}
    return {}


def _owned_part(applied: Json) -> Json:
    part = {key: value for key, value in applied.items() if key not in _NOT_OWNED}
    part["metadata"] = {
        key: value for key, value in applied["metadata"].items() if key not in _NOT_OWNED_METADATA
    }
    if not part["metadata"]:
        del part["metadata"]
    return part


def _is_of(entry: Json, manager: str, subresource: str) -> bool:
    return bool(
        entry["manager"] == manager
        and entry["operation"] == "Apply"
        and entry.get("subresource", "") == subresource
    )


def _list_keys(name: str, value: Any) -> tuple[str, ...]:
    keys = _KEYS.get(name, ())
    if not keys or not isinstance(value, list):
        return ()
    named = all(isinstance(entry, dict) and keys[0] in entry for entry in value)
    return keys if named else ()


def _entry_key(entry: Json, keys: Iterable[str]) -> str:
    named = {key: entry[key] for key in keys if key in entry}
    return "k:" + json.dumps(named, separators=(",", ":"), sort_keys=True)


def _minus(fields: Json, taken: Json) -> Json:
    """The leaves of `fields` that are not in `taken`."""
    left = {}
    for key, below in fields.items():
        if key not in taken:
            left[key] = below
        elif below and (rest := _minus(below, taken[key])):
            left[key] = rest
    return left


def _without(value: Any, gone: Json) -> Any:
    """`value` without the fields in `gone`; what is left empty by that stays."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            below = gone.get(f"f:{key}")
            if below is None:
                kept[key] = item
            elif below:
                kept[key] = (
                    _without_list(item, below, key)
                    if isinstance(item, list)
                    else (_without(item, below))
                )
        return kept
    return value


def _without_list(items: list[Any], gone: Json, name: str) -> list[Any]:
    keys = _list_keys(name, items)
    kept = []
    for item in items:
        key = _entry_key(item, keys) if keys else f"v:{json.dumps(item)}"
        below = gone.get(key)
        if below is None:
            kept.append(item)
        elif below and "." not in below:
            kept.append(_without(item, below))
    return kept


def _merged(live: Any, applied: Any, name: str = "") -> Any:
    if isinstance(live, dict) and isinstance(applied, dict):
        merged = dict(live)
        for key, value in applied.items():
            merged[key] = _merged(live[key], value, key) if key in live else value
        return merged
    keys = _list_keys(name, applied)
    if isinstance(live, list) and keys and _list_keys(name, live):
        entries = {_entry_key(entry, keys): entry for entry in live}
        for entry in applied:
            key = _entry_key(entry, keys)
            entries[key] = _merged(entries[key], entry) if key in entries else entry
        return list(entries.values())
    if isinstance(live, list) and name in patching.MERGED_SETS:
        return [*live, *(item for item in applied if item not in live)]
    return applied
