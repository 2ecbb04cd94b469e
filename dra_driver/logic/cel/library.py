"""The functions of Kubernetes' CEL environment beyond the language itself, on plain Python values.

Nothing here knows which engine evaluates. A function gets and gives `bool`, `int`, `float`, `str`,
lists, `quantities.Quantity` and `versions.Semver`. It raises `CallError` for a value that it
refuses, and TypeError for one that it has no overload for.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library`; cel-go `ext/strings.go`.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from dra_driver import errors
from dra_driver.model import quantities, versions

Function = Callable[..., Any]
Comparable = TypeVar("Comparable", quantities.Quantity, versions.Semver)

_INT64 = range(-(2**63), 2**63)
# What Go's unicode.IsSpace knows; Python's str.strip() would take the ASCII separators as well.
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


class CallError(ValueError):
    """A function refuses the value that it got: a run-time error of the expression."""


def _quantity(text: str) -> quantities.Quantity:
    try:
        return quantities.parse(_text(text))
    except errors.Rejected as error:
        raise CallError(str(error)) from error


def _is_quantity(text: str) -> bool:
    return _succeeds(quantities.parse, _text(text))


def _semver(text: str, normalize: bool = False) -> versions.Semver:  # noqa: FBT002 - positional in CEL
    try:
        return versions.parse(versions.normalize(_text(text)) if normalize else _text(text))
    except errors.Rejected as error:
        raise CallError(str(error)) from error


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT002 - positional in CEL
    return _succeeds(versions.parse, versions.normalize(_text(text)) if normalize else _text(text))


def _sign(value: quantities.Quantity) -> int:
    return _compare(value, quantities.Quantity(Fraction(0)))


def _is_integer(value: quantities.Quantity) -> bool:
    amount = _amount(value)
    return amount.denominator == 1 and amount.numerator in _INT64


def _as_integer(value: quantities.Quantity) -> int:
    if not _is_integer(value):
        raise CallError(f"cannot convert value to integer: {value}")
    return value.amount.numerator


def _add(left: quantities.Quantity, right: quantities.Quantity | int) -> quantities.Quantity:
    return dataclasses.replace(left, amount=_amount(left) + _amount_or_int(right))


def _sub(left: quantities.Quantity, right: quantities.Quantity | int) -> quantities.Quantity:
    return dataclasses.replace(left, amount=_amount(left) - _amount_or_int(right))


def _compare(left: Comparable, right: Comparable) -> int:
    if type(left) is not type(right) or not isinstance(left, quantities.Quantity | versions.Semver):
        raise TypeError
    return (left > right) - (left < right)


def _char_at(text: str, index: int) -> str:
    return _text(text)[_position(index, text) :][:1]


def _index_of(container: str | list[Any], item: Any, offset: int = 0) -> int:
    if isinstance(container, list):
        return next((index for index, found in enumerate(container) if _same(found, item)), -1)
    return _text(container).find(_text(item), _position(offset, container))


def _last_index_of(container: str | list[Any], item: Any, offset: int | None = None) -> int:
    if isinstance(container, list):
        found = _index_of(container[::-1], item)
        return len(container) - 1 - found if found >= 0 else -1
    end = len(_text(container)) if offset is None else _position(offset, container)
    return container.rfind(_text(item), 0, end + len(item))


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return _text(text).replace(_text(old), _text(new), max(limit, -1))


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if _text(separator):
        return _text(text).split(separator, max(limit - 1, -1))
    pieces = list(_text(text))
    return pieces if limit < 0 else [*pieces[: limit - 1], "".join(pieces[limit - 1 :])][:limit]


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(_text(text)) if end is None else _position(end, text)
    if _position(start, text) > stop:
        raise CallError(f"invalid substring range: start {start}, end {stop}")
    return text[start:stop]


def _join(items: list[str], separator: str = "") -> str:
    if not isinstance(items, list):
        raise TypeError
    return _text(separator).join(map(_text, items))


def _is_sorted(items: list[Any]) -> bool:
    numbers = _alike(items)
    return all(not right < left for left, right in itertools.pairwise(numbers))


def _sum(items: list[Any]) -> Any:
    return sum(_alike(items), start=0)


def _min(items: list[Any]) -> Any:
    return min(_not_empty(items, "min"))


def _max(items: list[Any]) -> Any:
    return max(_not_empty(items, "max"))


def _contains(text: str, part: str) -> bool:
    return _text(part) in _text(text)


def _to_string(value: str | bool | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _text(value)


def _to_bool(value: str | bool) -> bool:
    if isinstance(value, bool):
        return value
    if _text(value) not in _TRUE | _FALSE:
        raise CallError(f"cannot convert {value!r} to bool")
    return value in _TRUE


def _to_int(value: str | float) -> int:
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise CallError(f"cannot convert {value!r} to int")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    if (isinstance(value, float) and not math.isfinite(value)) or int(value) not in _INT64:
        raise CallError(f"integer overflow: {value}")
    return int(value)


def _to_double(value: str | float) -> float:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        raise CallError(f"cannot convert {value!r} to double")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _amount(value: Any) -> Fraction:
    if not isinstance(value, quantities.Quantity):
        raise TypeError
    return value.amount


def _amount_or_int(value: Any) -> Fraction:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return Fraction(value) if is_int else _amount(value)


def _position(index: int, text: str) -> int:
    if not isinstance(index, int) or isinstance(index, bool):
        raise TypeError
    if not 0 <= index <= len(text):
        raise CallError(f"index out of range: {index}")
    return index


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and bool(left == right)


def _alike(items: list[Any]) -> list[Any]:
    if not isinstance(items, list) or len({type(item) for item in items}) > 1:
        raise TypeError
    return items


def _not_empty(items: list[Any], name: str) -> list[Any]:
    if not _alike(items):
        raise CallError(f"{name} called on empty list")
    return items


def _succeeds(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except errors.Rejected:
        return False
    return True


GLOBALS: Mapping[str, Function] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "semver": _semver,
    "isSemver": _is_semver,
    "sign": _sign,
    "string": _to_string,
    "int": _to_int,
    "double": _to_double,
    "bool": _to_bool,
}
"""`name(arguments)`."""

METHODS: Mapping[str, Function] = {
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "add": _add,
    "sub": _sub,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "compareTo": _compare,
    "major": lambda version: version.major,
    "minor": lambda version: version.minor,
    "patch": lambda version: version.patch,
    "contains": _contains,
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "lowerAscii": lambda text: _text(text).translate(_LOWER),
    "upperAscii": lambda text: _text(text).translate(_UPPER),
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "trim": lambda text: _text(text).strip(_SPACE),
    "join": _join,
    "isSorted": _is_sorted,
    "sum": _sum,
    "min": _min,
    "max": _max,
}
"""`receiver.name(arguments)`; the receiver is the first argument."""

NOT_OFFERED = frozenset(
    {"type", "uint", "cel.bind", "find", "findAll", "format", "includes", "strings.quote"}
    | {"slice", "flatten", "sort", "sortBy", "reverse", "distinct", "first", "last", "lists.range"}
    | {"sets.contains", "sets.equivalent", "sets.intersects"}
    | {"optional.of", "optional.none", "optional.ofNonZeroValue", "hasValue", "value", "or"}
    | {"orValue", "optMap", "optFlatMap"}
    | {"existsOne", "transformList", "transformMap", "transformMapEntry"}
    | {"ip", "isIP", "ip.isCanonical", "family", "isUnspecified", "isLoopback", "masked"}
    | {"isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "cidr", "isCIDR"}
    | {"containsIP", "containsCIDR", "prefixLength"}
    | {"url", "isURL", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"}
    | {"getQuery", "validate", "format.named", "format.dns1123Label", "format.dns1123Subdomain"}
    | {"format.dns1035Label", "format.qualifiedName", "format.labelValue", "format.uri"}
    | {"format.dns1123LabelPrefix", "format.dns1123SubdomainPrefix", "format.dns1035LabelPrefix"}
    | {"format.uuid", "format.byte", "format.date", "format.datetime"}
)
"""What Kubernetes' environment has and this one has not: named as such, not as unknown."""
