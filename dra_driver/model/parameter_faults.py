"""What is wrong with a field of a parameter object: which one, its value, and what is allowed."""

import typing
from collections.abc import Mapping
from typing import Any

import pydantic

from dra_driver.model import parameters, texts

LARGE = 2**64
"""Numbers from here on are in no JSON of an API server; YAML has them."""
_LONGEST_VALUE = 60


def of(model: type[pydantic.BaseModel], error: Any) -> parameters.Fault:
    """What pydantic found wrong with a `spec`; `model` is that of the whole."""
    path, kind = tuple(error["loc"]), error["type"]
    holder, field = _descend(model, path)
    where = _path(path)
    if kind == "extra_forbidden":
        # The words of Go's strict decoder, which users and scripts look for.
        known = ", ".join(str(each.alias) for each in holder.model_fields.values())
        text = f'strict decoding error: unknown field "{where}": allowed are {known}'
        return parameters.Fault(where, text)
    allowed = f"write {field.description}" if field and field.description else "write an object"
    if kind == "value_error":
        allowed = str(error["ctx"]["error"])
        if isinstance(error["input"], Mapping):
            return parameters.Fault(where, f"{where}: {allowed}")
    if kind in {"too_long", "too_short"}:
        allowed = f"write 1 to {parameters.MOST_PARTS} selectors"
    if kind == "missing":
        return bad(where, None, allowed)
    return bad(where, error["input"], allowed)


def _descend(
    model: type[pydantic.BaseModel], path: tuple[str | int, ...]
) -> tuple[type[pydantic.BaseModel], pydantic.fields.FieldInfo | None]:
    """The model that has the last name on a path, and the field of that name."""
    field = None
    for name in path:
        if isinstance(name, int):
            continue
        inner = _model(field.annotation) if field else model
        model = inner or model
        field = {str(each.alias): each for each in model.model_fields.values()}.get(str(name))
    if path and isinstance(path[-1], int):
        return model, None
    return model, field


def _model(annotation: Any) -> type[pydantic.BaseModel] | None:
    """The first model in an annotation, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    found = map(_model, typing.get_args(annotation))
    return next((each for each in found if each is not None), None)


def _path(path: tuple[str | int, ...]) -> str:
    """`spec.a[0].b`, of names that somebody made up."""
    text = "spec"
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_cut(texts.printable(part))}"
    return text


def bad(where: str, value: object, allowed: str) -> parameters.Fault:
    """A value that is not allowed at a place; None is one that is missing."""
    if value is None:
        return parameters.Fault(where, f"{where}: missing: {allowed}")
    return parameters.Fault(where, f"{where}: {_shown(value)} is not allowed: {allowed}")


def _shown(value: object) -> str:
    """What holds other values is only named: it may be large."""
    if isinstance(value, pydantic.BaseModel | Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= LARGE:
        # Python writes none of some thousand digits.
        return "a number of more than 64 bits"
    return texts.quoted(value, _LONGEST_VALUE)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
