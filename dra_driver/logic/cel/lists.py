"""Functions on lists, lists as sets, and optionals.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library/lists.go`; cel-go
`ext/lists.go` (version 3), `ext/sets.go`, `cel/library.go` (optional types).
"""

import datetime as dt
import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.logic.cel import operators, strings, values

_less = values.ordering(operator.lt)


def sorted_by(items: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
    """The items in the order of their keys, which must be of one type."""
    kinds = {values.type_name(key) for key in keys}
    if len(kinds) > 1:
        raise values.CallError("list elements must have the same type")
    if keys:
        _less(keys[0], keys[0])
    order = sorted(range(len(keys)), key=lambda position: keys[position])
    return [items[position] for position in order]


def _sort(items: list[Any]) -> list[Any]:
    return sorted_by(values.items(items), items)


def _is_sorted(items: list[Any]) -> bool:
    return all(not _less(right, left) for left, right in itertools.pairwise(values.items(items)))


def _sum(items: list[Any]) -> Any:
    rest = iter(values.items(items))
    return functools.reduce(operators.OPERATORS["_+_"], rest, next(rest, 0))


def _extreme(name: str, better: Callable[[Any, Any], bool]) -> Callable[[list[Any]], Any]:
    def find(items: list[Any]) -> Any:
        if not values.items(items):
            raise values.CallError(f"{name} called on empty list")
        return functools.reduce(lambda best, item: item if better(item, best) else best, items)

    return find


def _index_of(container: Any, item: Any, *offset: int) -> int:
    if not isinstance(container, list):
        return strings.index_of(container, item, *offset)
    return next((n for n, found in enumerate(container) if values.equal(found, item)), -1)


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
    "optional.ofNonZeroValue": _of_non_zero,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "isSorted": _is_sorted,
    "sum": _sum,
    "min": _extreme("min", values.ordering(operator.lt)),
    "max": _extreme("max", values.ordering(operator.gt)),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "slice": _slice,
    "flatten": _flatten,
    "sort": _sort,
    "reverse": lambda items: values.items(items)[::-1],
    "distinct": lambda items: values.distinct(values.items(items)),
    "first": lambda items: values.Optional(tuple(values.items(items)[:1])),
    "last": lambda items: values.Optional(tuple(values.items(items)[-1:])),
    "hasValue": lambda optional: bool(_optional(optional).items),
    "value": _value,
}
