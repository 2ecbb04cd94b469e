"""Functions on lists, lists as sets, and optionals.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library/lists.go`; cel-go
`ext/lists.go` (version 3), `ext/sets.go`, `cel/library.go` (optional types).
"""

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.logic.cel import comparing, operators, strings, values

_MOST_VALUES = 48
"""Of an attribute; Kubernetes 1.36 `ResourceSliceMaxAttributeValuesPerDevice`."""


def sorted_by(items: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
    """The items in the order of their keys, which must be of one type."""
    kinds = {values.type_name(key) for key in keys}
    if len(kinds) > 1:
        raise values.CallError("list elements must have the same type")
    if keys and not comparing.is_ordered(keys[0]):
        raise TypeError
    order = sorted(range(len(keys)), key=lambda position: keys[position])
    return [items[position] for position in order]


def _sort(items: list[Any]) -> list[Any]:
    return sorted_by(values.items(items), items)


def _is_sorted(items: list[Any]) -> bool:
    # An item without an order is an error only if it is reached before two are out of order.
    _ordered(items[:1])
    return all(_step(left, *_ordered([right])) != 1 for left, right in itertools.pairwise(items))


def _ordered(items: list[Any]) -> list[Any]:
    """The list, of whose items each has an order; TypeError if not."""
    if not all(map(comparing.is_ordered, values.items(items))):
        raise TypeError
    return items


def _step(left: Any, right: Any) -> int | None:
    """How two items compare; None, which is neither, where they do not."""
    try:
        return comparing.compare(left, right)
    except (TypeError, values.CallError):
        return None


def _sum(items: list[Any]) -> Any:
    if items and not (values.is_number(items[0]) or isinstance(items[0], dt.timedelta)):
        raise TypeError
    rest = iter(values.items(items))
    return functools.reduce(operators.OPERATORS["_+_"], rest, next(rest, 0))


def _extreme(name: str, better: int) -> Callable[[list[Any]], Any]:
    def find(items: list[Any]) -> Any:
        if not values.items(items):
            raise values.CallError(f"{name} called on empty list")
        return functools.reduce(
            lambda best, item: item if _step(best, item) == better else best, _ordered(items)
        )

    return find


def _index_of(container: Any, item: Any, *offset: int) -> int:
    if not isinstance(container, list):
        return strings.index_of(container, item, *offset)
    return next((n for n, found in enumerate(container) if comparing.same(found, item) is True), -1)


def _last_index_of(container: Any, item: Any, *offset: int) -> int:
    if not isinstance(container, list):
        return strings.last_index_of(container, item, *offset)
    found = _index_of(container[::-1], item)
    return len(container) - 1 - found if found >= 0 else -1


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= values.integer(start) <= values.integer(end) <= len(values.items(items)):
        raise values.CallError(f"cannot slice({start}, {end}) of a list of {len(items)}")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if values.integer(depth) < 0:
        raise values.CallError("level must be non-negative")
    flat: list[Any] = []
    for item in values.items(items):
        flat.extend(_flatten(item, depth - 1) if isinstance(item, list) and depth else [item])
    return flat


def _range(count: int) -> list[int]:
    values.afford(values.integer(count))
    return list(range(count))


def _contains(whole: list[Any], part: list[Any]) -> bool:
    return all(operators.contains(item, values.items(whole)) for item in values.items(part))


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(operators.contains(item, values.items(right)) for item in values.items(left))


def _includes(target: Any, item: Any) -> bool:
    if not isinstance(target, list):
        return comparing.same(target, item) is True
    if any(comparing.same(element, item) is True for element in target[:_MOST_VALUES]):
        return True
    if len(target) > _MOST_VALUES:
        raise values.CallError(
            f"'includes' function cannot be applied to lists longer than {_MOST_VALUES} values"
        )
    return False


def _of_non_zero(value: Any) -> values.Optional:
    zero = value is None or (
        isinstance(value, bool | int | float | str | bytes | list | Mapping | dt.timedelta)
        and not value
    )
    return values.Optional(() if zero else (value,))


def _optional(value: Any) -> values.Optional:
    if not isinstance(value, values.Optional):
        raise TypeError
    return value


def _unwrapped(optionals: list[Any]) -> list[Any]:
    for item in values.items(optionals):
        if not isinstance(item, values.Optional):
            raise values.CallError(f"value {item} is not optional")
    return [value for item in optionals for value in item.items]


def _value(optional: Any) -> Any:
    if not _optional(optional).items:
        raise values.CallError("optional.none() dereference")
    return optional.items[0]


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "lists.range": _range,
    "sets.contains": _contains,
    "sets.equivalent": lambda left, right: _contains(left, right) and _contains(right, left),
    "sets.intersects": _intersects,
    "optional.of": lambda value: values.Optional((value,)),
    "optional.none": values.Optional,
    "optional.unwrap": _unwrapped,
    "optional.ofNonZeroValue": _of_non_zero,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "isSorted": _is_sorted,
    "sum": _sum,
    "min": _extreme("min", 1),
    "max": _extreme("max", -1),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "slice": _slice,
    "flatten": _flatten,
    "sort": _sort,
    "reverse": lambda items: values.items(items)[::-1],
    "distinct": lambda items: comparing.distinct(values.items(items)),
    "first": lambda items: values.Optional(tuple(values.items(items)[:1])),
    "last": lambda items: values.Optional(tuple(values.items(items)[-1:])),
    "unwrapOpt": _unwrapped,
    "includes": _includes,
    "hasValue": lambda optional: bool(_optional(optional).items),
    "value": _value,
}
