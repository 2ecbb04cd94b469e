"""The shape of objects: which fields there are, of which type, and in which form they are kept.

A schema serves three purposes: to refuse or drop fields that do not exist, to bring values into
the one form in which Go writes them, and to explain the fields to `kubectl explain`.

What null and nothing come to is as in `encoding/json`: null leaves a field as if it were not
there, and is the zero value of an entry of a list or a map.
"""

import dataclasses
import datetime as dt
import enum
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dra_driver import errors
from dra_driver.model import quantities

Json = dict[str, Any]

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d(:\d\d){2}(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


class Written(enum.Enum):
    """When Go writes a field: its type and its JSON tag decide."""

    IF_GIVEN = "given"
    """`omitempty` of a pointer: whatever its value is. A list or a map has to have entries."""
    IF_NOT_ZERO = "not zero"
    """`omitempty` of a value."""
    ALWAYS = "always"
    """A value without `omitempty`: as its zero value if it is not there."""
    AS_NULL = "as null"
    """A pointer, list or map without `omitempty`: as null if it is not there, or empty."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """The type of a value."""

    type: str = ""
    """OpenAPI type; empty: anything."""
    format: str = ""
    """`quantity`, `date-time`, `micro-time`, or as in OpenAPI."""
    description: str = ""
    fields: Mapping[str, "Schema"] | None = None
    """Of a record."""
    open: bool = False
    """A record that may have other fields, which are kept as they are."""
    values: "Schema | None" = None
    """Of a map."""
    items: "Schema | None" = None
    """Of a list."""
    required: tuple[str, ...] = ()
    written: Written = Written.IF_GIVEN
    """As a field of a record."""
    minors: range = range(1000)
    """As a field of a record: the minor versions of Kubernetes that have it."""


ANY = Schema()
STRING = Schema("string")
INTEGER = Schema("integer", format="int64")
BOOLEAN = Schema("boolean")
QUANTITY = Schema("string", format="quantity")
TIME = Schema("string", format="date-time")
MICRO_TIME = Schema("string", format="micro-time")
OBJECT = Schema("object", open=True)


def record(description: str = "", /, **fields: Schema) -> Schema:
    """An object with named fields."""
    return Schema("object", description=description, fields=MappingProxyType(fields))


def open_record(description: str = "", /, **fields: Schema) -> Schema:
    """An object that may have more than the named fields."""
    return dataclasses.replace(record(description, **fields), open=True)


def list_of(items: Schema, description: str = "") -> Schema:
    """A list."""
    return Schema("array", items=items, description=description)


def map_of(values: Schema, description: str = "") -> Schema:
    """An object with keys of the user's choice."""
    return Schema("object", values=values, description=description)


def described(schema: Schema, description: str) -> Schema:
    """The same type with other words."""
    return dataclasses.replace(schema, description=description)


def always(schema: Schema) -> Schema:
    """As a field that Go writes always, if need be as its zero value."""
    return dataclasses.replace(schema, written=Written.ALWAYS)


def or_null(schema: Schema) -> Schema:
    """As a field that Go writes always, if need be as null."""
    return dataclasses.replace(schema, written=Written.AS_NULL)


def if_not_zero(schema: Schema) -> Schema:
    """As a field that Go writes if it is not its zero value."""
    return dataclasses.replace(schema, written=Written.IF_NOT_ZERO)


def since(minor: int, schema: Schema) -> Schema:
    """As a field that Kubernetes has from 1.`minor` on."""
    return dataclasses.replace(schema, minors=range(minor, schema.minors.stop))


def before(minor: int, schema: Schema) -> Schema:
    """As a field that Kubernetes 1.`minor` has no more."""
    return dataclasses.replace(schema, minors=range(schema.minors.start, minor))


class MisfitError(errors.Rejected):
    """A value has another type than its field."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fitted:
    """A value brought into form, and the paths of fields that had to go: the first of them."""

    value: Any
    unknown: tuple[str, ...]


_MOST_UNKNOWN = 100
"""As many are told of; see `saveStrictError` in `sigs.k8s.io/json`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    """One value that is being fitted, for Kubernetes 1.`minor`."""

    minor: int
    unknown: list[str] = dataclasses.field(default_factory=list)


def fit(schema: Schema, value: Any, minor: int) -> Fitted:
    """The value as Go decodes it: without unknown fields and nulls, scalars in the form of Go.

    What is unknown is decided for Kubernetes 1.`minor`.

    Raises:
        MisfitError: a value has the wrong type.
    """
    reading = _Reading(minor)
    fitted = _fit(schema, value, "", reading)
    return Fitted(fitted, tuple(reading.unknown[:_MOST_UNKNOWN]))


def _fit(schema: Schema, value: Any, path: str, reading: _Reading) -> Any:
    if schema.fields is not None:
        return _fit_record(schema, _checked(value, dict, path, "object"), path, reading)
    if schema.values is not None:
        entries = _checked(value, dict, path, "object").items()
        below = schema.values
        return {key: _fit_entry(below, item, f"{path}.{key}", reading) for key, item in entries}
    if schema.items is not None:
        below = schema.items
        items = _checked(value, list, path, "array")
        return [_fit_entry(below, item, f"{path}[{i}]", reading) for i, item in enumerate(items)]
    return _fit_scalar(schema, value, path)


def _fit_entry(schema: Schema, value: Any, path: str, reading: _Reading) -> Any:
    return _zero(schema) if value is None else _fit(schema, value, path, reading)


def _zero(schema: Schema) -> Any:
    """What Go makes of a value that it is told nothing about."""
    if schema.format == "quantity":
        return "0"
    return {"string": "", "integer": 0, "boolean": False, "object": {}, "array": []}.get(
        schema.type
    )


def _fit_record(schema: Schema, value: Json, path: str, reading: _Reading) -> Json:
    fields = schema.fields or {}
    fitted = {}
    for key, item in value.items():
        below = fields.get(key)
        if below is not None and reading.minor not in below.minors:
            below = None
        place = f"{path}.{key}" if path else key
        if below is None and not schema.open:
            reading.unknown.append(place)
        elif item is not None:
            fitted[key] = item if below is None else _fit(below, item, place, reading)
    return fitted


def _fit_scalar(schema: Schema, value: Any, path: str) -> Any:
    if schema.format == "quantity":
        return _quantity(value, path)
    if schema.format in ("date-time", "micro-time"):
        return _time(_checked(value, str, path, "Time"), schema.format, path)
    if schema.type == "integer" and (isinstance(value, bool) or not _is_int64(value)):
        raise _misfit(value, path, "int64")
    wanted = _SCALARS.get(schema.type)
    return value if wanted is None else _checked(value, wanted[0], path, wanted[1])


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


_SCALARS: Mapping[str, tuple[type, str]] = MappingProxyType(
    {
        "string": (str, "string"),
        "boolean": (bool, "bool"),
        "integer": (int, "int64"),
        "object": (dict, "object"),
    }
)


def _checked(value: Any, wanted: type, path: str, word: str) -> Any:
    if not isinstance(value, wanted):
        raise _misfit(value, path, word)
    return value


def _misfit(value: Any, path: str, wanted: str) -> MisfitError:
    words = {str: "string", bool: "bool", int: "number", float: "number", dict: "object"}
    found = words.get(type(value), "array" if isinstance(value, list) else "null")
    return MisfitError(
        f"json: cannot unmarshal {found} into Go struct field {path} of type {wanted}"
    )


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _misfit(value, path, "resource.Quantity")
    try:
        return str(quantities.parse(str(value).strip()))
    except errors.Rejected as error:
        raise MisfitError(
            f"{path}: quantities must match the regular expression "
            f"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$': {error}"
        ) from error


def _time(text: str, form: str, path: str) -> str:
    if not _RFC3339.fullmatch(text):
        raise MisfitError(f"{path}: parsing time {text!r}: it is not as 2006-01-02T15:04:05Z07:00")
    try:
        moment = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise MisfitError(f"{path}: parsing time {text!r}: {error}") from error
    pattern = "%Y-%m-%dT%H:%M:%S.%fZ" if form == "micro-time" else "%Y-%m-%dT%H:%M:%SZ"
    return moment.strftime(pattern)


def as_written(schema: Schema, value: Any) -> Any:
    """The value with the fields that Go writes, and without those that it does not write."""
    if schema.fields is not None and isinstance(value, dict):
        return _record_as_written(schema.fields, value)
    if schema.items is not None and isinstance(value, list):
        below = schema.items
        return [as_written(below, item) for item in value]
    if schema.values is not None and isinstance(value, dict):
        below = schema.values
        return {key: as_written(below, item) for key, item in value.items()}
    return value


def _record_as_written(fields: Mapping[str, Schema], value: Json) -> Json:
    kept = {}
    for key, item in value.items():
        below = fields.get(key, ANY)
        if item is not None and not _is_left_out(below, item):
            kept[key] = as_written(below, item)
    for key, below in fields.items():
        if key in kept:
            continue
        if below.written is Written.ALWAYS:
            kept[key] = as_written(below, _zero(below))
        elif below.written is Written.AS_NULL:
            kept[key] = None
    return kept


def _is_left_out(schema: Schema, item: Any) -> bool:
    collection = schema.items is not None or schema.values is not None
    return (collection or schema.written is Written.IF_NOT_ZERO) and not item


def to_openapi(schema: Schema, minor: int) -> Json:
    """The schema in OpenAPI v3, as Kubernetes 1.`minor` has it."""
    body: Json = {}
    if schema.description:
        body["description"] = schema.description
    if schema.type:
        body["type"] = schema.type
    if schema.format and schema.format not in ("quantity", "micro-time"):
        body["format"] = schema.format
    if schema.fields is not None:
        body["properties"] = {
            key: to_openapi(below, minor)
            for key, below in schema.fields.items()
            if minor in below.minors
        }
    if schema.values is not None:
        body["additionalProperties"] = to_openapi(schema.values, minor)
    if schema.items is not None:
        body["items"] = to_openapi(schema.items, minor)
    if schema.open or not schema.type:
        body["x-kubernetes-preserve-unknown-fields"] = True
    if schema.required:
        body["required"] = list(schema.required)
    return body
