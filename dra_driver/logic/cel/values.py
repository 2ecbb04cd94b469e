"""Values of an expression, and what is true of all of them: names of types, ranges.

bool, int, float, str, bytes, None and list are Python's own; a number of type uint is a `Uint`;
timestamps and durations are `datetime` and `timedelta` (to the microsecond). Python takes True for
1 and 1.0, so nothing here compares values of unknown type with `==`.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)
_LARGEST = 1_000_000
"""Characters or items; what costs more than the limit on the whole is at least as large."""


Parse = Callable[[str], object]
"""Gives what a text stands for, or raises `CallError`."""


class CallError(ValueError):
    """A function refuses the value that it got: a run-time error of the expression."""


class HashError(Exception):
    """A value is looked up by hash and has none; nothing absorbs that. The text is its type."""


class CostError(Exception):
    """The expression costs too much; nothing absorbs that."""


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent: `items` is empty or has the one value."""

    items: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TypeOf:
    """The type of a value, as `type(x)` gives it."""

    name: str


def int64(number: int) -> int:
    """The number.

    Raises:
        CallError: it does not fit 64 bits.
    """
    if number not in INT64:
        raise CallError("integer overflow")
    return number


def uint64(number: int) -> Uint:
    """The number, unsigned.

    Raises:
        CallError: it is negative or does not fit 64 bits.
    """
    if number not in UINT64:
        raise CallError("unsigned integer overflow")
    return Uint(number)


def text(value: Any) -> str:
    """The value, which must be a string, else TypeError."""
    if not isinstance(value, str):
        raise TypeError
    return value


def integer(value: Any) -> int:
    """The value, which must be of type int, else TypeError."""
    if type(value) is not int:
        raise TypeError
    return value


def items(value: Any) -> list[Any]:
    """The value, which must be a list, else TypeError."""
    if not isinstance(value, list):
        raise TypeError
    return value


def afford(size: int) -> None:
    """Refuse to build a text or a list of such a size.

    Raises:
        CostError: it is too large.
    """
    if size > _LARGEST:
        raise CostError


def succeeds(parse: Parse, candidate: str) -> bool:
    """Whether the text can be parsed."""
    try:
        parse(candidate)
    except CallError:
        return False
    return True


def is_number(value: Any) -> bool:
    """Whether the value is of type int, uint or double."""
    return type(value) in {int, Uint, float}


def type_name(value: Any) -> str:
    """The name of the value's type, as messages of cel-go have it."""
    if isinstance(value, Mapping):
        return "map"
    return _TYPE_NAMES.get(type(value), type(value).__name__.lower())


_TYPE_NAMES: Mapping[type, str] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    type(None): "null",
    list: "list",
    Optional: "optional",
    TypeOf: "type",
    dt.datetime: "timestamp",
    dt.timedelta: "duration",
}
