"""Quantities and semantic versions.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library`, `quantity.go` and
`semverlib.go`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from dra_driver import errors
from dra_driver.logic.cel import values
from dra_driver.model import quantities, versions


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Computed(quantities.Quantity):
    """What a sum or a difference gives; for the library it is not quite a quantity."""


Comparable = TypeVar("Comparable", quantities.Quantity, versions.Semver)


def _quantity(text: str) -> quantities.Quantity:
    try:
        return quantities.parse(values.text(text))
    except errors.Rejected as error:
        raise values.CallError(str(error)) from error


def _semver(text: str, normalize: bool = False) -> versions.Semver:  # noqa: FBT002 - positional in CEL
    try:
        forgiving = normalize and values.text(text) == text.strip()
        return versions.parse(versions.normalize(text) if forgiving else values.text(text))
    except errors.Rejected as error:
        raise values.CallError(str(error)) from error


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT002 - positional in CEL
    return values.succeeds(lambda candidate: _semver(candidate, normalize), text)


def _sign(value: quantities.Quantity) -> int:
    return _compare(value, quantities.Quantity(Fraction(0)))


def _as_integer(value: quantities.Quantity) -> int:
    if not _is_integer(value):
        raise values.CallError(f"cannot convert value to integer: {value}")
    return value.amount.numerator


def _is_integer(value: quantities.Quantity) -> bool:
    amount = _amount(value)
    return amount.denominator == 1 and -(2**63) <= amount.numerator < 2**63


def _add(left: quantities.Quantity, right: quantities.Quantity | int) -> quantities.Quantity:
    return Computed(_amount(left) + _amount_or_int(right), left.format)


def _sub(left: quantities.Quantity, right: quantities.Quantity | int) -> quantities.Quantity:
    return Computed(_amount(left) - _amount_or_int(right), left.format)


def _compare(left: Comparable, right: Comparable) -> int:
    kind = versions.Semver if isinstance(left, versions.Semver) else quantities.Quantity
    if not isinstance(left, kind) or not isinstance(right, kind):
        raise TypeError
    return (left > right) - (left < right)


def _version(value: Any) -> versions.Semver:
    if not isinstance(value, versions.Semver):
        raise TypeError
    return value


def _amount(value: Any) -> Fraction:
    if not isinstance(value, quantities.Quantity):
        raise TypeError
    return value.amount


def _amount_or_int(value: Any) -> Fraction:
    return Fraction(value) if type(value) is int else _amount(value)


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "quantity": _quantity,
    "isQuantity": lambda text: values.succeeds(_quantity, text),
    "sign": _sign,
    "semver": _semver,
    "isSemver": _is_semver,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "add": _add,
    "sub": _sub,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "compareTo": _compare,
    "major": lambda version: _version(version).major,
    "minor": lambda version: _version(version).minor,
    "patch": lambda version: _version(version).patch,
}
