"""What a definition says of each version of its kind, and the strategy that holds objects to it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.api.kinds import (
    custom_checks,
    custom_columns,
    custom_fitting,
    custom_lists,
    custom_rules,
    fields,
    printing,
    strategies,
)

Json = dict[str, Any]

_BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong"}
    | {"FieldValueTooMany", "FieldValueTypeInvalid"}
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A version of a kind. Without a schema objects are kept as they come."""

    columns: tuple[printing.Column, ...]
    schema: Json | None = None
    rules: custom_rules.Node | None = None


def place_of_schema(index: int) -> str:
    """Where in a definition the schema of a version is."""
    return f"spec.versions[{index}].schema.openAPIV3Schema"


def versions(listed: Sequence[Json]) -> dict[str, Version]:
    """What the served versions of a definition say, which has been checked, by their names."""
    return {
        item["name"]: _version(item, place_of_schema(index))
        for index, item in enumerate(listed)
        if item.get("served")
    }


def _version(written: Json, place: str) -> Version:
    schema = (written.get("schema") or {}).get("openAPIV3Schema")
    made = custom_columns.columns(written)
    if not schema:
        return Version(made)
    rules, _ = custom_rules.compile(schema, place)
    return Version(made, schema, rules)


def strategy(about: Version) -> strategies.Strategy:
    """What objects of a version are held to when they are written."""
    if about.schema is None:
        return strategies.PLAIN
    return strategies.Strategy(validate=lambda write: _validate(about, about.schema or {}, write))


def _validate(about: Version, schema: Json, write: strategies.Write) -> fields.Errors:
    old = custom_checks.NOTHING if write.old is None else write.old
    found = custom_checks.check(schema, write.new, old)
    found += _embedded(schema, write.new, "")
    if write.old is None or not custom_lists.check(schema, write.old):
        found += custom_lists.check(schema, write.new)
    if about.rules is None:
        return found
    if any(error.reason in _BLOCKING for error in found):
        return [*found, fields.invalid("<nil>", None, _UNCHECKED)]
    return found + custom_rules.check(about.rules, write.new, old)


def _embedded(schema: Json, value: Any, path: str) -> fields.Errors:
    """What is wrong with objects within the object."""
    found: fields.Errors = []
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += _embedded(schema.get("items") or {}, item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return found
    if schema.get(custom_fitting.EMBEDDED):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                found.append(fields.required(f"{path}.{name}", "must not be empty"))
            elif not isinstance(value[name], str):
                found.append(fields.invalid(f"{path}.{name}", value[name], "must be a string"))
    for key, item in value.items():
        if (known := custom_fitting.below(schema, key)) is not None:
            found += _embedded(known, item, f"{path}.{key}" if path else key)
    return found
