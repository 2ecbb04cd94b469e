"""Equality and order of any two values, with the answers that cel-go gives.

Values of Kubernetes' own libraries have no equality with values of another type: that is no answer
(None here), which `==` makes an error of, `!=` true, and a list or a map no difference.

Sources: cel-go 0.26 `common/types` (`util.go`, `compare.go`, `list.go`, `map.go`, `optional.go`);
Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel`, each type's Equal.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dra_driver.logic.cel import addresses, amounts, formats, maps, urls, values
from dra_driver.model import quantities, versions

_FOREIGN = (
    quantities.Quantity, versions.Semver, addresses.Ip, addresses.Cidr, urls.Url, formats.Format,
)  # fmt: skip
_MAKES = {
    quantities.Quantity: "quantity", versions.Semver: "semver", addresses.Ip: "ip",
    addresses.Cidr: "cidr", urls.Url: "url",
}  # fmt: skip
"""What makes a value of a type from a text."""
_ORDERED = (str, bytes, bool, dt.datetime, dt.timedelta)


def equals(left: Any, right: Any) -> bool:
    """The operator `==`; TypeError if there is no answer."""
    answer = equal(left, right)
    if answer is None:
        raise TypeError
    return answer


def equal(left: Any, right: Any) -> bool | None:
    """Whether two values are equal, null with null only; None if there is no answer."""
    if left is None or right is None:
        return left is right
    return same(left, right)


def same(left: Any, right: Any) -> bool | None:
    """What the left value says of the right one: numbers across types, containers by content."""
    answer: bool | None
    if values.is_number(left):
        answer = values.is_number(right) and _equal_numbers(left, right)
    elif isinstance(left, _FOREIGN):
        answer = _same_foreign(left, right)
    elif isinstance(left, list):
        answer = isinstance(right, list) and _same_items(left, right)
    elif isinstance(left, Mapping):
        answer = isinstance(right, Mapping) and _same_entries(left, right)
    elif isinstance(left, values.Optional) and isinstance(right, values.Optional):
        both = bool(left.items) and bool(right.items)
        answer = same(left.items[0], right.items[0]) if both else left.items == right.items
    else:
        answer = type(left) is type(right) and bool(left == right)
    return answer


def is_in(item: Any, items: list[Any]) -> bool:
    """Whether a list has the item, as the item sees it."""
    return any(same(item, element) is True for element in items)


def distinct(candidates: Iterable[Any]) -> list[Any]:
    """The values without repetition, in the order in which they first appear."""
    found: list[Any] = []
    for item in candidates:
        if not is_in(item, found):
            found.append(item)
    return found


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; TypeError if there is no order of such values.

    Raises:
        values.CallError: one is no number.
    """
    if values.is_number(left) and values.is_number(right):
        if math.isnan(left) or math.isnan(right):
            raise values.CallError("NaN values cannot be ordered")
        left, right = _alike(left, right)
    elif type(left) is not type(right) or not isinstance(left, _ORDERED):
        raise TypeError
    return int(left > right) - int(left < right)


def comparable(left: Any, right: Any) -> str | None:
    """How to write the text on the right so that it can be compared with the left value."""
    makes = _MAKES.get(type(left))
    return f"{makes}('{right}')" if makes and isinstance(right, str) else None


def is_ordered(value: Any) -> bool:
    """Whether there is an order of values of its type."""
    return values.is_number(value) or isinstance(value, _ORDERED)


def ordering(decide: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    """`<` and its like, given how the comparison compares with 0."""
    return lambda left, right: decide(compare(left, right), 0)


def _equal_numbers(left: Any, right: Any) -> bool:
    left, right = _alike(left, right)
    return bool(left == right)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Whole numbers of 64 bits as doubles where the other is one, as far as those reach."""
    if isinstance(left, float) != isinstance(right, float):
        number, whole = (left, right) if isinstance(left, float) else (right, left)
        lowest, highest = (0, 2**64) if isinstance(whole, values.Uint) else (-(2**63), 2**63)
        if math.isfinite(number) and lowest <= number <= highest:
            return float(left), float(right)
    return left, right


def _same_foreign(left: Any, right: Any) -> bool | None:
    # Arithmetic of quantities gives a pointer, which what compares does not take on its right.
    if isinstance(right, amounts.Computed):
        return None
    kind = quantities.Quantity if isinstance(left, amounts.Computed) else type(left)
    return bool(left == right) if isinstance(right, kind) else None


def _same_items(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and not any(
        answer is False for answer in map(equal, left, right)
    )


def _same_entries(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    for key in left:
        found = maps.lookup(right, key)
        if not found.items or equal(left[key], found.items[0]) is False:
            return False
    return True
