"""The columns of custom resources: `additionalPrinterColumns` of a definition.

Source: Kubernetes 1.36,
`apiextensions-apiserver/pkg/registry/customresource/tableconvertor/tableconvertor.go`.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.sim.api.kinds import fields, json_paths, printing

Json = dict[str, Any]

_TYPES = ("boolean", "date", "integer", "number", "string")


def columns(version: Json) -> tuple[printing.Column, ...]:
    """The columns of a version of a definition, which has been checked; the name and the age if it
    names none.
    """
    listed = version.get("additionalPrinterColumns") or ()
    return (printing.NAME, *map(_column, listed)) if listed else printing.DEFAULT


def check(listed: Any, path: str) -> fields.Errors:
    """What is wrong with the columns of a version."""
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        return [fields.invalid(path, listed, "must be a list of columns")]
    return [
        error for index, item in enumerate(listed) for error in _checked(item, f"{path}[{index}]")
    ]


def _checked(item: Json, path: str) -> Iterator[fields.FieldError]:
    for name in ("name", "type", "format", "jsonPath", "description"):
        if name in item and not isinstance(item[name], str):
            yield fields.invalid(f"{path}.{name}", item[name], "must be a string")
            return
    if not item.get("name"):
        yield fields.required(f"{path}.name")
    kind, allowed = item.get("type"), f"must be one of {','.join(_TYPES)}"
    if not kind:
        yield fields.required(f"{path}.type", allowed)
    elif kind not in _TYPES:
        yield fields.invalid(f"{path}.type", kind, allowed)
    if not isinstance(item.get("priority", 0), int):
        yield fields.invalid(f"{path}.priority", item["priority"], "must be a number")
    if not item.get("jsonPath"):
        yield fields.required(f"{path}.jsonPath")
        return
    try:
        json_paths.Path(item["jsonPath"])
    except errors.Rejected as error:
        yield fields.invalid(f"{path}.jsonPath", item["jsonPath"], str(error))


def _column(item: Json) -> printing.Column:
    path, written = json_paths.Path(item["jsonPath"]), item["jsonPath"]
    write = _WRITERS[item["type"]]

    def cell(body: Json, now: dt.datetime) -> Any:
        found = path.first(body)
        return write(found[0], now) if found and found[0] is not None else None

    default = f"Custom resource definition column (in JSONPath format): {written}"
    return printing.Column(
        item["name"],
        cell,
        wide=item.get("priority", 0) > 0,
        type=item["type"],
        format=item.get("format", ""),
        description=item.get("description") or default,
    )


def _text(value: Any, _now: dt.datetime) -> str:
    return json_paths.shown(value)


def _integer(value: Any, _now: dt.datetime) -> int | None:
    return int(value) if _is_number(value) else None


def _number(value: Any, _now: dt.datetime) -> float | None:
    return float(value) if _is_number(value) else None


def _boolean(value: Any, _now: dt.datetime) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any, now: dt.datetime) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return printing.age(value, now)
    except (ValueError, TypeError):
        return "<invalid>"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_WRITERS: Mapping[str, Callable[[Any, dt.datetime], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}
