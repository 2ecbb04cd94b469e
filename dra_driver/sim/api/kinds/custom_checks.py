"""What is wrong with the values of a custom resource, by the schema of its definition.

Source of what is checked, and of the words: Kubernetes 1.36, `kube-openapi/pkg/validation/validate`
and `apiextensions-apiserver/pkg/apiserver/validation` (with `ratcheting.go`: what was wrong before
and has not changed is let pass).
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dra_driver.logic.cel import patterns
from dra_driver.sim.api.kinds import custom_fitting, custom_formats, custom_lists, fields

Json = dict[str, Any]

NOTHING = object()
"""There was no value before, or none that is known to be this one's."""
INT_OR_STRING = "x-kubernetes-int-or-string"


def check(schema: Json, value: Any, old: Any = NOTHING, path: str = "") -> fields.Errors:
    """What is wrong with a value at `path`; `old` is what it was, in an update."""
    found = [*_checked(schema, value, old, path)]
    return [] if found and old is not NOTHING and same(value, old) else found


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 is not true."""
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _checked(schema: Json, value: Any, old: Any, path: str) -> Iterator[fields.FieldError]:
    yield from _type_errors(schema, value, path)
    if value is not None:
        yield from _combined(schema, value, path)
    match value:
        case str():
            yield from _text_errors(schema, value, path)
        case bool():
            pass
        case int() | float():
            yield from _number_errors(schema, value, path)
        case list():
            yield from _list_errors(schema, value, old, path)
    yield from _enum_errors(schema, value, path)
    if isinstance(value, dict):
        yield from _object_errors(schema, value, old, path)


def _types(schema: Json) -> list[str]:
    if schema.get(INT_OR_STRING):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _type_errors(schema: Json, value: Any, path: str) -> Iterator[fields.FieldError]:
    wanted, found = _types(schema), type_name(value)
    if not wanted or found in wanted or (value is None and schema.get("nullable")):
        return
    is_whole = isinstance(value, float) and value.is_integer()
    if ("integer" in wanted and is_whole) or ("number" in wanted and found == "integer"):
        return
    words = f'must be of type {",".join(wanted)}: "{found}"'
    yield _type_invalid(path, found, f"{_named(path)} in body {words}")


def type_name(value: Any) -> str:
    """The type of a value, as schemas have it."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object"}
    return names.get(type(value), "array" if isinstance(value, list) else "null")


def _text_errors(schema: Json, value: str, path: str) -> Iterator[fields.FieldError]:
    name, size = f"{_named(path)} in body", len(value)
    if size > schema.get("maxLength", size):
        yield fields.too_long(_place(path), schema["maxLength"])
    elif size < schema.get("minLength", 0):
        least = schema["minLength"]
        yield _invalid(path, value, f"{name} should be at least {least} chars long")
    elif (pattern := schema.get("pattern")) and not patterns.matches(value, pattern):
        yield _invalid(path, value, f"{name} should match '{pattern}'")
    form = schema.get("format", "")
    if form and not custom_formats.meets(value, form):
        yield _type_invalid(path, value, f'{name} must be of type {form}: "{value}"')


def _number_errors(schema: Json, value: float, path: str) -> Iterator[fields.FieldError]:
    kind, form, name = schema.get("type"), schema.get("format"), f"{_named(path)} in body"
    bits = 31 if form == "int32" else 63
    if kind == "integer" and not -(2**bits) <= value < 2**bits:
        told = f"with format {form}" if form in ("int32", "int64") else "(default format)"
        yield _nowhere("", f"Checked value must be of type integer {told} in {path}")
    factor = schema.get("multipleOf")
    if factor and value % factor:
        yield _invalid(path, value, f"{name} should be a multiple of {_number(factor)}")
    most, least = schema.get("maximum"), schema.get("minimum")
    if most is not None and (value >= most if schema.get("exclusiveMaximum") else value > most):
        words = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield _invalid(path, value, f"{name} should be {words} {_number(most)}")
    if least is not None and (value <= least if schema.get("exclusiveMinimum") else value < least):
        words = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield _invalid(path, value, f"{name} should be {words} {_number(least)}")


def _list_errors(
    schema: Json, value: list[Any], old: Any, path: str
) -> Iterator[fields.FieldError]:
    size, items = len(value), schema.get("items")
    if items is not None:
        before = custom_lists.correlated(schema, old)
        for index, item in enumerate(value):
            was = before.get(custom_lists.key_of(schema, item), NOTHING)
            yield from check(items, item, was, f"{path}[{index}]")
    if size < schema.get("minItems", 0):
        words = f"should have at least {schema['minItems']} items"
        yield _invalid(path, size, f"{_named(path)} in body {words}")
    if size > schema.get("maxItems", size):
        yield fields.too_many(_place(path), size, schema["maxItems"])


def _object_errors(schema: Json, value: Json, old: Any, path: str) -> Iterator[fields.FieldError]:
    size, name = len(value), f"{_named(path)} in body"
    if size < schema.get("minProperties", 0):
        words = f"should have at least {schema['minProperties']} properties"
        yield _invalid(path, size, f"{name} {words}")
    if size > schema.get("maxProperties", size):
        yield fields.too_many(_place(path), size, schema["maxProperties"])
    known = schema.get("properties") or {}
    for key in value:
        if key not in known and schema.get("additionalProperties") is False:
            yield _invalid(path, key, f"{_named(path)}.{key} in body is a forbidden property")
    for key in value:
        if (inner := custom_fitting.below(schema, key)) is not None:
            was = old.get(key, NOTHING) if isinstance(old, dict) else NOTHING
            yield from check(inner, value[key], was, f"{path}.{key}" if path else key)
    for key in schema.get("required") or ():
        if key not in value:
            yield fields.required(f"{path}.{key}" if path else key)


def _enum_errors(schema: Json, value: Any, path: str) -> Iterator[fields.FieldError]:
    allowed = schema.get("enum")
    if not allowed or any(same(value, one) for one in allowed):
        return
    words = ", ".join(json.dumps(one if isinstance(one, str) else _json(one)) for one in allowed)
    text = f"Unsupported value: {_json(value)}: supported values: {words}"
    yield fields.FieldError("FieldValueNotSupported", _place(path), text)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tried:
    """What is wrong by each of some schemas."""

    errors: Sequence[fields.Errors]

    @property
    def met(self) -> int:
        return sum(not found for found in self.errors)

    @property
    def nearest(self) -> fields.Errors:
        return min(self.errors, key=len)


def _combined(schema: Json, value: Any, path: str) -> Iterator[fields.FieldError]:
    """`anyOf`, `oneOf`, `allOf`, `not`. Of alternatives the one that is nearest is told."""
    if any_of := schema.get("anyOf"):
        tried = _try(any_of, value, path)
        if not tried.met:
            yield _nowhere("", f'"{path}" must validate at least one schema (anyOf)')
            yield from tried.nearest
    if one_of := schema.get("oneOf"):
        tried = _try(one_of, value, path)
        if tried.met != 1:
            more = f"Found {tried.met} valid alternatives" if tried.met else "Found none valid"
            yield _nowhere("", f'"{path}" must validate one and only one schema (oneOf). {more}')
            yield from tried.nearest
    if all_of := schema.get("allOf"):
        tried = _try(all_of, value, path)
        if tried.met != len(all_of):
            more = "" if tried.met else ". None validated"
            yield _nowhere("", f'"{path}" must validate all the schemas (allOf){more}')
            yield from (error for found in tried.errors for error in found)
    if (other := schema.get("not")) is not None and not check(other, value, path=path):
        yield _nowhere("", f'"{path}" must not validate the schema (not)')


def _try(schemas: Iterable[Json], value: Any, path: str) -> _Tried:
    return _Tried([check(one, value, path=path) for one in schemas])


def _invalid(path: str, value: Any, detail: str) -> fields.FieldError:
    return fields.invalid(_place(path), value, detail)


def _type_invalid(path: str, value: Any, detail: str) -> fields.FieldError:
    text = f"Invalid value: {_json(value)}: {detail}"
    return fields.FieldError("FieldValueTypeInvalid", _place(path), text)


def _nowhere(value: Any, detail: str) -> fields.FieldError:
    """What Kubernetes tells of no field."""
    return fields.invalid("<nil>", value, detail)


def _place(path: str) -> str:
    return path or "<nil>"


def _named(path: str) -> str:
    return path


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
