"""Every function of Kubernetes' CEL environment by its name, and the conversions between types.

A function gets and gives values as `values` describes them. It raises `values.CallError` for a
value that it refuses, and TypeError for one that it has no overload for.

Source of the conversions: cel-go `common/types`.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import (
    addresses,
    amounts,
    formats,
    formatting,
    lists,
    strings,
    times,
    urls,
    values,
)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"(?i)[+-]?(?:inf|infinity|nan)")
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


def _size(value: Any) -> int:
    if not isinstance(value, str | bytes | list | Mapping):
        raise TypeError
    return len(value)


def _to_string(value: Any) -> str:
    if value is None or isinstance(value, list | Mapping | values.TypeOf):
        raise TypeError
    if isinstance(value, addresses.Ip | addresses.Cidr):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise values.CallError("invalid UTF-8 in bytes, cannot convert to string") from error
    return formatting.text_of(value)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if values.text(value) not in _TRUE | _FALSE:
        raise values.CallError(f"cannot convert {value!r} to bool")
    return value in _TRUE


def _to_int(value: Any) -> int:
    return values.int64(_whole(value, "int"))


def _to_uint(value: Any) -> values.Uint:
    return values.uint64(_whole(value, "uint"))


def _whole(value: Any, kind: str) -> int:
    match value:
        case dt.datetime() if kind == "int":
            return times.seconds(value)
        case dt.timedelta() if kind == "int":
            return times.nanoseconds(value)
        case str():
            if not _INTEGER.fullmatch(value):
                raise values.CallError(f"cannot convert {value!r} to {kind}")
            return _number(value)
        case float() if not math.isfinite(value):
            raise values.CallError("integer overflow")
    if not values.is_number(value):
        raise TypeError
    return int(value)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        # Python reads no more than some thousand digits.
        raise values.CallError("integer overflow") from error


def _to_double(value: Any) -> float:
    if isinstance(value, str):
        if not (_DECIMAL.fullmatch(value) or _INFINITE.fullmatch(value)):
            raise values.CallError(f"cannot convert {value!r} to double")
        return float(value)
    if not values.is_number(value):
        raise TypeError
    return float(value)


def _to_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else values.text(value).encode()


def _same(value: Any) -> Any:
    return value


def _type(value: Any) -> values.TypeOf:
    return values.TypeOf("null_type" if value is None else values.type_name(value))


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "size": _size,
    "matches": strings.METHODS["matches"],
    "dyn": _same,
    "type": _type,
    "bool": _to_bool,
    "int": _to_int,
    "uint": _to_uint,
    "double": _to_double,
    "string": _to_string,
    "bytes": _to_bytes,
    "timestamp": times.timestamp,
    "duration": times.duration,
    **amounts.GLOBALS,
    **strings.GLOBALS,
    **lists.GLOBALS,
    **addresses.GLOBALS,
    **urls.GLOBALS,
    **formats.GLOBALS,
}
"""`name(arguments)`."""

METHODS: Mapping[str, Callable[..., Any]] = {
    "size": _size,
    **times.METHODS,
    **amounts.METHODS,
    **strings.METHODS,
    **lists.METHODS,
    **addresses.METHODS,
    **urls.METHODS,
    **formats.METHODS,
}
"""`receiver.name(arguments)`; the receiver is the first argument.

`or` and `orValue` are the engine's: they work out their argument only if it is needed.
"""
