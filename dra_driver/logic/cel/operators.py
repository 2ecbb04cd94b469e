"""Operators, on any values: arithmetic with overflow, order, membership, indexing.

A function raises `values.CallError` for a value that it refuses, and TypeError for types that it
has no overload for.
"""

import datetime as dt
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import comparing, maps, values

_JOINED = (str, bytes, list)


def contains(item: Any, container: Any) -> bool:
    """The operator `in`."""
    if isinstance(container, list):
        return comparing.is_in(item, container)
    if isinstance(container, Mapping):
        return item in container
    raise TypeError


def index(container: Any, key: Any) -> Any:
    """`container[key]`; into an optional, the result is one."""
    if isinstance(container, values.Optional):
        return optional_index(container, key)
    if isinstance(container, Mapping):
        if found := maps.lookup(container, _key(key)).items:
            return found[0]
        raise values.CallError(f"no such key: {key}")
    position = _position(key)
    if not 0 <= position < len(values.items(container)):
        raise values.CallError(f"index out of bounds: {key}")
    return container[position]


def optional_index(container: Any, key: Any) -> values.Optional:
    """`container[?key]`."""
    if isinstance(container, values.Optional):
        return optional_index(container.items[0], key) if container.items else container
    if isinstance(container, Mapping):
        return maps.lookup(container, _key(key))
    position = _position(key)
    inside = 0 <= position < len(values.items(container))
    return values.Optional((container[position],) if inside else ())


def _key(key: Any) -> Any:
    if not values.is_number(key) and not isinstance(key, bool | str):
        raise values.CallError(f"a value of type {values.type_name(key)} is no key")
    return key


def _position(key: Any) -> int:
    if not values.is_number(key) or not math.isfinite(key) or key != int(key):
        raise TypeError
    return int(key)


def _negate(number: Any) -> Any:
    if isinstance(number, float | dt.timedelta):
        return -number
    return values.int64(-values.integer(number))


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, _JOINED) and type(left) is type(right):
        values.afford(len(left) + len(right))
        return operator.add(left, right)
    if isinstance(left, dt.timedelta) and isinstance(right, dt.datetime):
        left, right = right, left
    return _time(operator.add, left, right)


def _subtract(left: Any, right: Any) -> Any:
    return _time(operator.sub, left, right)


def _time(calculate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    moments = isinstance(left, dt.datetime), isinstance(right, dt.datetime)
    spans = isinstance(left, dt.timedelta), isinstance(right, dt.timedelta)
    if not (moments[0] or spans[0]) or not (moments[1] or spans[1]):
        return _number(calculate, left, right)
    try:
        return calculate(left, right)
    except OverflowError as error:
        raise values.CallError("timestamp or duration overflow") from error


def _number(calculate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if type(left) is not type(right) or not values.is_number(left):
        raise TypeError
    if isinstance(left, float):
        return calculate(left, right)
    result = calculate(int(left), int(right))
    return values.uint64(result) if isinstance(left, values.Uint) else values.int64(result)


def _multiply(left: Any, right: Any) -> Any:
    return _number(operator.mul, left, right)


def _divide(left: Any, right: Any) -> Any:
    return _number(_quotient, left, right)


def _quotient(left: Any, right: Any) -> Any:
    if not isinstance(left, float):
        if right == 0:
            raise values.CallError("division by zero")
        return _truncated(left, right)
    if right:
        return left / right
    if math.isnan(left) or left == 0:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _truncated(left: int, right: int) -> int:
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        raise TypeError
    return _number(_remainder, left, right)


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise values.CallError("modulus by zero")
    return left - right * _truncated(left, right)


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return not value


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "!_": _not,
    "-_": _negate,
    "_==_": comparing.equals,
    "_!=_": lambda left, right: comparing.equal(left, right) is not True,
    "_<_": comparing.ordering(operator.lt),
    "_<=_": comparing.ordering(operator.le),
    "_>_": comparing.ordering(operator.gt),
    "_>=_": comparing.ordering(operator.ge),
    "_+_": _add,
    "_-_": _subtract,
    "_*_": _multiply,
    "_/_": _divide,
    "_%_": _modulo,
    "@in": contains,
    "_[_]": index,
    "_[?_]": optional_index,
}
"""By the names that cel-go gives them."""
