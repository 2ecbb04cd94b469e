"""Lists of custom resources that are sets or maps: their items are told apart.

Source: Kubernetes 1.36, `apiextensions-apiserver/pkg/apiserver/schema/listtype/validation.go`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.sim.api.kinds import custom_fitting, fields

Json = dict[str, Any]

TYPE = "x-kubernetes-list-type"
KEYS = "x-kubernetes-list-map-keys"


def key_of(schema: Json, item: Any) -> str | None:
    """What tells an item of a list apart from others; None if items are not told apart."""
    if schema.get(TYPE) != "map" or not isinstance(item, dict):
        return None
    return _json({key: item[key] for key in schema.get(KEYS) or () if key in item})


def correlated(schema: Json, old: Any) -> Mapping[str | None, Any]:
    """The items that were there, by what tells them apart; nothing where nothing does."""
    if not isinstance(old, list):
        return {}
    keyed = {key_of(schema, item): item for item in old}
    keyed.pop(None, None)
    return keyed


def check(schema: Json, value: Any, path: str = "") -> fields.Errors:
    """Which items of sets and maps are there twice, at any depth."""
    return [*_checked(schema, value, path)]


def _checked(schema: Json, value: Any, path: str) -> Iterator[fields.FieldError]:
    if isinstance(value, dict):
        for key, item in value.items():
            if (known := custom_fitting.below(schema, key)) is not None:
                yield from _checked(known, item, f"{path}.{key}" if path else key)
    if not isinstance(value, list):
        return
    if schema.get(TYPE) == "set":
        yield from _twice(value, path)
    elif schema.get(TYPE) == "map":
        yield from _twice([_keys(schema, item) for item in value], path)
    for index, item in enumerate(value):
        yield from _checked(schema.get("items") or {}, item, f"{path}[{index}]")


def _keys(schema: Json, item: Any) -> Any:
    owner = item if isinstance(item, dict) else {}
    return {key: owner[key] for key in schema.get(KEYS) or () if key in owner}


def _twice(keys: list[Any], path: str) -> Iterator[fields.FieldError]:
    seen: dict[str, int] = {}
    for index, key in enumerate(keys):
        text = _json(key)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:  # Told once, however often it is there.
            yield fields.duplicate(f"{path}[{index}]", key)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
