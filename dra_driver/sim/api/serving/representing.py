"""In which form an object or a list is answered: itself, its metadata alone, or a table."""

import datetime as dt
import enum
from collections.abc import Sequence
from typing import Any

from dra_driver.sim.api.kinds import kinds, printing
from dra_driver.sim.api.storing import codecs

Json = dict[str, Any]

JSON = "application/json"
_META = "meta.k8s.io/v1"


class Form(enum.Enum):
    """The forms; the value is the `as` parameter of the media type."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


_CONTENT_TYPES = {Form.OBJECT: JSON} | {
    form: f"{JSON};as={form.value};v=v1;g=meta.k8s.io" for form in Form if form is not Form.OBJECT
}


def negotiate(accept: str) -> Form:
    """The first form in the Accept header that is served; the object itself if there is none."""
    for offer in accept.split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media not in (JSON, "*/*", "application/*", ""):
            continue
        if "as" not in wanted:
            return Form.OBJECT
        known = wanted["as"] in Form._value2member_map_
        if known and wanted.get("v") == "v1" and wanted.get("g") == "meta.k8s.io":
            return Form(wanted["as"])
    return Form.OBJECT


def content_type(form: Form) -> str:
    """The media type of an answer in that form."""
    return _CONTENT_TYPES[form]


def represent(
    form: Form, kind: kinds.Kind, version: str, body: Json, *, include: str = "", heads: bool = True
) -> Json:
    """One object in that form.

    Args:
        form: The form.
        kind: Of which kind the object is.
        version: The version that was asked for.
        body: The object in its stored form.
        include: What a row of a table carries of its object: `None`, `Object` or the metadata.
        heads: Whether a table begins with its column definitions.
    """
    if form is Form.OBJECT:
        return codecs.encode(kind, version, body)
    if form is Form.TABLE:
        metadata = {"resourceVersion": body["metadata"].get("resourceVersion", "")}
        return _table(kind, version, [body], metadata, include=include, heads=heads)
    return _partial(body)


def represent_list(
    form: Form,
    kind: kinds.Kind,
    version: str,
    items: Sequence[Json],
    metadata: Json,
    *,
    include: str = "",
) -> Json:
    """A list in that form; `metadata` is that of the list."""
    if form is Form.TABLE:
        return _table(kind, version, items, metadata, include=include, heads=True)
    if form is Form.OBJECT:
        return {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version(version),
            "metadata": metadata,
            "items": [codecs.encode(kind, version, body) for body in items],
        }
    return {
        "kind": Form.METADATA_LIST.value,
        "apiVersion": _META,
        "metadata": metadata,
        "items": [_partial(body) for body in items],
    }


def _partial(body: Json) -> Json:
    return {"kind": Form.METADATA.value, "apiVersion": _META, "metadata": body["metadata"]}


def _table(
    kind: kinds.Kind,
    version: str,
    items: Sequence[Json],
    metadata: Json,
    *,
    include: str,
    heads: bool,
) -> Json:
    now = dt.datetime.now(dt.UTC)
    columns = kind.columns_in(version)
    definitions = [_definition(column) for column in columns] if heads else []
    rows = []
    for body in items:
        row: Json = {"cells": [column.cell(body, now) for column in columns]}
        if include == "Object":
            row["object"] = codecs.encode(kind, version, body)
        elif include != "None":
            row["object"] = _partial(body)
        rows.append(row)
    return {
        "kind": Form.TABLE.value,
        "apiVersion": _META,
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _definition(column: printing.Column) -> Json:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": 1 if column.wide else 0,
    }
