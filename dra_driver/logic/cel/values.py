"""Values of an expression, and what is true of all of them: equality, order, keys, names of types.

bool, int, float, str, bytes, None and list are Python's own; a number of type uint is a `Uint`;
timestamps and durations are `datetime` and `timedelta` (to the microsecond). Python takes True for
1 and 1.0, so nothing here compares values of unknown type with `==`.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_LARGEST = 1_000_000
"""Characters or items; what costs more than the limit on the whole is at least as large."""


class CallError(ValueError):
    """A function refuses the value that it got: a run-time error of the expression."""


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


class Map(Mapping[Any, Any]):
    """A map literal, or what a macro makes. `1`, `1u` and `1.0` are one key; `true` is another."""

    def __init__(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Keys must be bool, int, uint or string.

        Raises:
            CallError: a key of another type, or one that comes twice.
        """
        self._entries: dict[Any, tuple[Any, Any]] = {}
        for key, value in entries:
            if type(key) not in {bool, int, Uint, str}:
                raise CallError(f"unsupported key type: {type_name(key)}")
            if _key(key) in self._entries:
                raise CallError(f"insert failed: key {key} already exists")
            self._entries[_key(key)] = (key, value)

    def __getitem__(self, key: Any) -> Any:
        """The value."""
        return self._entries[_key(key)][1]

    def __contains__(self, key: object) -> bool:
        """Whether there is such a key."""
        return _key(key) in self._entries

    def __iter__(self) -> Iterator[Any]:
        """The keys."""
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._entries)


def int64(number: int) -> int:
    """The number.

    Raises:
        CallError: it does not fit 64 bits.
    """
    if number not in _INT64:
        raise CallError("integer overflow")
    return number


def uint64(number: int) -> Uint:
    """The number, unsigned.

    Raises:
        CallError: it is negative or does not fit 64 bits.
    """
    if number not in _UINT64:
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


def succeeds(parse: Callable[[str], object], candidate: str) -> bool:
    """Whether the text can be parsed."""
    try:
        parse(candidate)
    except CallError:
        return False
    return True


def is_number(value: Any) -> bool:
    """Whether the value is of type int, uint or double."""
    return type(value) in {int, Uint, float}


def equal(left: Any, right: Any) -> bool:
    """`==`: numbers across types, containers by content, false for two other types."""
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return len(left) == len(right) and all(
            key in right and equal(left[key], right[key]) for key in left
        )
    if isinstance(left, Optional) and isinstance(right, Optional):
        return equal(list(left.items), list(right.items))
    return type(left) is type(right) and bool(left == right)


def distinct(candidates: Iterable[Any]) -> list[Any]:
    """The values without repetition, in the order in which they first appear."""
    found: list[Any] = []
    for item in candidates:
        if not any(equal(item, known) for known in found):
            found.append(item)
    return found


def type_name(value: Any) -> str:
    """The name of the value's type, as messages of cel-go have it."""
    if isinstance(value, Mapping):
        return "map"
    return _TYPE_NAMES.get(type(value), type(value).__name__.lower())


def ordering(decide: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """`<` and its like, from Python's own.

    The function raises TypeError: there is no order of such values.
    """

    def ordered(left: Any, right: Any) -> bool:
        numbers = is_number(left) and is_number(right)
        if not numbers and (type(left) is not type(right) or not isinstance(left, _ORDERED)):
            raise TypeError
        return decide(left, right)

    return ordered


def _key(key: Any) -> Any:
    return (key,) if isinstance(key, bool) else key


_ORDERED = (str, bytes, bool, dt.datetime, dt.timedelta)
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
