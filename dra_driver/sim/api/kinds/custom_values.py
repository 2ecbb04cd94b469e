"""Values of custom resources as rules of their schemas see them, and the types of these.

Source: Kubernetes 1.36, `apiserver/pkg/cel` (`common/schemas.go`: types, `escaping.go`: names),
`apiextensions-apiserver/pkg/apiserver/schema/cel` (values).
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import kinds, times, values
from dra_driver.sim.api.kinds import custom_checks, custom_fitting

Json = dict[str, Any]
Records = dict[str, Mapping[str, kinds.Type]]

_NAME = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)
_SPECIAL = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIALS = re.compile(r"__|[./-]")
_WORDS = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_SCALARS = {"string": kinds.STRING, "integer": kinds.INT, "boolean": kinds.BOOL}
_SCALARS["number"] = kinds.DOUBLE
_FORMATS = {
    "byte": kinds.BYTES,
    "date": kinds.TIMESTAMP,
    "date-time": kinds.TIMESTAMP,
    "duration": kinds.DURATION,
}
_METADATA = {"type": "object", "properties": {}}
_METADATA["properties"] = {name: {"type": "string"} for name in ("name", "generateName")}
_OF_ALL_OBJECTS = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


def with_metadata(schema: Json) -> Json:
    """The schema of a whole object with what rules see of each: its type and its names."""
    known = schema.get("properties") or {}
    return {**schema, "properties": {**known, **_OF_ALL_OBJECTS, "metadata": _METADATA}}


def type_of(schema: Json, name: str, records: Records) -> kinds.Type:
    """The type of a value; those of objects are added to `records`, with names after `name`."""
    if schema.get(custom_checks.INT_OR_STRING):
        return kinds.DYN
    match schema.get("type"):
        case "array":
            return kinds.list_of(type_of(schema.get("items") or {}, f"{name}.@items", records))
        case "object":
            return _type_of_object(schema, name, records)
        case "string":
            return _FORMATS.get(schema.get("format", ""), kinds.STRING)
    return _SCALARS.get(schema.get("type", ""), kinds.DYN)


def _type_of_object(schema: Json, name: str, records: Records) -> kinds.Type:
    entries = schema.get("additionalProperties")
    if isinstance(entries, dict):
        return kinds.map_of(kinds.STRING, type_of(entries, f"{name}.@values", records))
    if entries is True:
        return kinds.map_of(kinds.STRING, kinds.DYN)
    records[name] = {
        escaped: type_of(inner, f"{name}.{escaped}", records)
        for escaped, (_, inner) in _fields(schema).items()
    }
    return kinds.Type(name)


def value_of(schema: Json, value: Any) -> Any:
    """A value as rules see it."""
    if isinstance(value, dict):
        return _value_of_object(schema, value)
    if isinstance(value, list):
        return [value_of(schema.get("items") or {}, item) for item in value]
    match schema.get("type"), value:
        case "number", int() if not isinstance(value, bool):
            return float(value)
        case "integer", float() if value.is_integer():
            return int(value)
        case "string", str() if schema.get("format") in _FORMATS:
            return _read(value, schema["format"])
    return value


def _value_of_object(schema: Json, value: Json) -> Json:
    entries = schema.get("additionalProperties")
    if isinstance(entries, dict):
        return {key: value_of(entries, item) for key, item in value.items()}
    if entries is True or schema.get("type") != "object":
        return value
    return {
        escaped: value_of(inner, value[key])
        for escaped, (key, inner) in _fields(schema).items()
        if key in value
    }


def _fields(schema: Json) -> dict[str, tuple[str, Json]]:
    """The fields that rules can name: by the name there, the name here and the schema."""
    if schema.get(custom_fitting.EMBEDDED):
        schema = with_metadata(schema)
    known = schema.get("properties") or {}
    named = {inside: name for name in known if (inside := escape(name)) is not None}
    # As a field `namespace` is no reserved word, and definitions do write it so.
    named |= {name: name for name in known if name in _WORDS}
    return {inside: (name, known[name]) for inside, name in named.items()}


def escape(name: str) -> str | None:
    """The name of a field as rules write it; None if they cannot."""
    if name in _WORDS:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return _SPECIALS.sub(lambda found: _SPECIAL[found[0]], name)


def _read(text: str, form: str) -> Any:
    """What a text of a format stands for; itself if it is not of it, which has been told."""
    try:
        return _READERS[form](text)
    except (values.CallError, binascii.Error, ValueError):
        return text


def _date(text: str) -> Any:
    return times.timestamp(f"{text}T00:00:00Z")


_READERS: Mapping[str, Callable[[str], Any]] = {
    "byte": lambda text: base64.b64decode(text, validate=True),
    "date": _date,
    "date-time": times.timestamp,
    "duration": times.duration,
}
