"""Reads the few objects that `kubectl create KIND` sends as protobuf; everything else is JSON.

Sources: `k8s.io/apimachinery/pkg/runtime/serializer/protobuf` for the envelope, `generated.proto`
of `k8s.io/api/core/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1` for the field numbers.
"""

import base64
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dra_driver.sim.api.kinds import problems

Json = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _MalformedError(ValueError):
    """The bytes are no protobuf message."""


def _text(data: Any) -> str:
    return _data(data).decode()


def _encoded(data: Any) -> str:
    return base64.b64encode(_data(data)).decode()


def _data(data: Any) -> bytes:
    if not isinstance(data, bytes):
        raise _MalformedError("a number stands where a text belongs")
    return data


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: its name in JSON and how its value is read."""

    name: str
    read: Callable[[Any], Any] = _text
    repeated: bool = False
    entries: bool = False
    """A map: a repeated message of key and value."""


Message = Mapping[int, _Field]


def _message(fields: Message) -> Callable[[Any], Any]:
    return lambda data: _read(fields, _data(data))


def _map(name: str, read: Callable[[Any], Any] = _text) -> _Field:
    return _Field(name, _message({1: _Field("key"), 2: _Field("value", read)}), entries=True)


_REFERENCE = {
    5: _Field("apiVersion"),
    1: _Field("kind"),
    3: _Field("name"),
    4: _Field("uid"),
    6: _Field("controller", bool),
    7: _Field("blockOwnerDeletion", bool),
}
_METADATA = {
    1: _Field("name"),
    2: _Field("generateName"),
    3: _Field("namespace"),
    5: _Field("uid"),
    6: _Field("resourceVersion"),
    11: _map("labels"),
    12: _map("annotations"),
    13: _Field("ownerReferences", _message(_REFERENCE), repeated=True),
    14: _Field("finalizers", repeated=True),
}
_OBJECT = {1: _Field("metadata", _message(_METADATA))}
_KINDS: Mapping[tuple[str, str], Message] = {
    ("v1", "Namespace"): _OBJECT,
    ("v1", "ConfigMap"): _OBJECT
    | {2: _map("data"), 3: _map("binaryData", _encoded), 4: _Field("immutable", bool)},
    ("v1", "Secret"): _OBJECT
    | {
        2: _map("data", _encoded),
        3: _Field("type"),
        4: _map("stringData"),
        5: _Field("immutable", bool),
    },
    ("v1", "ServiceAccount"): _OBJECT | {4: _Field("automountServiceAccountToken", bool)},
}
_TYPE = {1: _Field("apiVersion"), 2: _Field("kind")}
_ENVELOPE = {1: _Field("type", _message(_TYPE)), 2: _Field("raw", _data)}


def loads(data: bytes) -> Json:
    """The object in an envelope, as it would be in JSON.

    Raises:
        problems.ApiError: 400, these are no such bytes; 415, the kind is not read in this form.
    """
    if not data.startswith(_MAGIC):
        raise problems.bad_request("the body does not begin as a Kubernetes protobuf message")
    try:
        envelope = _read(_ENVELOPE, data[len(_MAGIC) :])
        kind = envelope.get("type", {})
        fields = _KINDS.get((kind.get("apiVersion", ""), kind.get("kind", "")))
        if fields is None:
            raise problems.only_as_json(kind.get("kind", "object"), tuple(k for _, k in _KINDS))
        body: Json = kind | _read(fields, envelope.get("raw", b""))
    except (_MalformedError, UnicodeDecodeError) as error:
        raise problems.bad_request(f"the body is not a protobuf message: {error}") from error
    return body


def _read(fields: Message, data: bytes) -> Json:
    body: Json = {}
    for number, value in _values(data):
        field = fields.get(number)
        if field is None:
            continue
        item = field.read(value)
        if field.entries:
            body.setdefault(field.name, {})[item.get("key", "")] = item.get("value", "")
        elif field.repeated:
            body.setdefault(field.name, []).append(item)
        elif item != "":  # Go writes texts that are not set as well.
            body[field.name] = item
    return body


def _values(data: bytes) -> Iterator[tuple[int, Any]]:
    """The field numbers and values of a message, in their order."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, form = tag >> 3, tag & 7
        if form == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if form == _BYTES:
            size, position = _varint(data, position)
        elif form in (_FIXED32, _FIXED64):
            size = 4 if form == _FIXED32 else 8
        else:
            raise _MalformedError(f"field {number} has the unknown form {form}")
        if position + size > len(data):
            raise _MalformedError(f"field {number} is longer than the message")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _MalformedError("a number does not end")
