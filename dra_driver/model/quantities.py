"""Kubernetes quantities: parse, compare, format.

Source: `k8s.io/apimachinery/pkg/api/resource`, the serialization format in its package comment.
"""

import dataclasses
import enum
import functools
import re
from fractions import Fraction

from dra_driver import errors
from dra_driver.model import texts

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SYNTAX = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))"
    r"(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?|[eE][+-]?\d{1,3})",
    re.ASCII,
)
_LONGEST = 64
"""Characters, and digits of an exponent above: computing with longer numbers takes long."""
_LARGEST_BINARY = Fraction(2**63 - 1)

Amount = int | Fraction
"""An exact amount, as int where it is whole: that computes many times faster."""


class Format(enum.Enum):
    """How a quantity is written: 1Gi, 1G or 1e9."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@functools.total_ordering
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount and the way it is written. Equal amounts are equal: `1Gi == 1024Mi`."""

    amount: Fraction
    format: Format = Format.DECIMAL_SI

    def __eq__(self, other: object) -> bool:
        """Whether both are the same amount."""
        return isinstance(other, Quantity) and self.amount == other.amount

    def __lt__(self, other: "Quantity") -> bool:
        """Whether this is the smaller amount."""
        return self.amount < other.amount

    def __hash__(self) -> int:
        """Equal amounts hash alike."""
        return hash(self.amount)

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that allows it."""
        return _format(self)

    @property
    def exact(self) -> Amount:
        """The amount to compute with."""
        return self.amount.numerator if self.amount.denominator == 1 else self.amount

    @property
    def value(self) -> int:
        """The amount as an integer, rounded away from zero (Go: `Quantity.Value()`)."""
        return _away_from_zero(self.amount)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """The quantity that `text` stands for, for example `80Gi`, `500m`, `1e3`.

    As in Go, what is finer than nano is rounded away from zero, and a binary amount is capped at
    2^63 - 1.

    Raises:
        errors.Rejected: the text is no quantity.
    """
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise errors.Rejected(
            f"quantity {texts.quoted(text)} is not a number with an optional suffix: "
            "write for example 16Gi, 500m, 2 or 1e3"
        )
    number, suffix = Fraction(match["number"]), match["suffix"]
    if suffix in _BINARY:
        amount = _nano(number * 1024 ** _BINARY[suffix])
        capped = max(-_LARGEST_BINARY, min(amount, _LARGEST_BINARY))
        return Quantity(capped, Format.BINARY_SI)
    if suffix in _DECIMAL:
        return Quantity(_nano(number * Fraction(1000) ** _DECIMAL[suffix]), Format.DECIMAL_SI)
    return Quantity(_nano(number * Fraction(10) ** int(suffix[1:])), Format.DECIMAL_EXPONENT)


def of_bytes(count: int) -> Quantity:
    """A number of bytes, written with binary suffixes."""
    return Quantity(Fraction(count), Format.BINARY_SI)


def of_amount(amount: Amount, written: Format) -> Quantity:
    """An amount that was computed, to be written like another quantity."""
    return Quantity(Fraction(amount), written)


def _format(quantity: Quantity) -> str:
    amount = quantity.amount
    if amount == 0:
        return "0"
    # Amounts below one, or with a fraction, have no binary form (Go switches to DecimalSI as well).
    if quantity.format is Format.BINARY_SI and amount.denominator == 1 and abs(amount) >= 1024:
        whole, power = amount.numerator, 0
        while whole % 1024 == 0 and power < 6:
            whole, power = whole // 1024, power + 1
        return f"{whole}{_suffix(_BINARY, power) if power else ''}"
    power, scaled = _thousands(amount)
    if quantity.format is Format.DECIMAL_EXPONENT or power > _DECIMAL["E"]:
        return f"{scaled}e{3 * power}" if power else str(scaled)
    return f"{scaled}{_suffix(_DECIMAL, power)}"


def _thousands(amount: Fraction) -> tuple[int, int]:
    """The largest power of 1000 that leaves a whole number; nano is the finest."""
    power, scaled = -3, _away_from_zero(amount * 1000**3)
    while scaled % 1000 == 0:
        power, scaled = power + 1, scaled // 1000
    return power, scaled


def _nano(amount: Fraction) -> Fraction:
    return Fraction(_away_from_zero(amount * 1000**3), 1000**3)


def _away_from_zero(amount: Fraction) -> int:
    whole = -(-abs(amount.numerator) // amount.denominator)
    return whole if amount > 0 else -whole


def _suffix(table: dict[str, int], power: int) -> str:
    return next(suffix for suffix, value in table.items() if value == power)
