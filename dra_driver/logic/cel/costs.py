"""What a call costs beside the one for itself and its sizes: as much as it has to look at.

A list may hold itself many times over, and so be far larger than its number of items tells.
Source of the kinds of cost: cel-go `interpreter/runtimecost.go`, `ext/sets.go`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.logic.cel import maps, patterns, values

_CHARACTERS_PER_COST = 10
_PATTERN_PER_COST = 4
_BACKWARDS_PER_COST = 10_000
"""Pairs of characters that a search from the end may have to compare."""


def of(function: str, operands: Sequence[Any], most: int) -> int:
    """The cost; nothing is looked at any further once it is more than `most`.

    Raises:
        values.CallError: an operand is a pattern that is none.
    """
    rule = _RULES.get(function)
    return rule(operands, most) if rule is not None else 0


def _depth(value: Any, most: int) -> int:
    """How many values there are in a container, and in what it holds; none in any other value."""
    count, rest = 0, [value]
    while rest and count <= most:
        match rest.pop():
            case list(items):
                count += len(items)
                rest += items
            case maps.Map() as entries:
                count += len(entries)
                rest += entries.values()
            case values.Optional(items=items):
                count += len(items)
                rest += items
            case str(text):
                count += len(text) // _CHARACTERS_PER_COST
    return count


def _equality(operands: Sequence[Any], most: int) -> int:
    left, right = operands
    if not (_is_container(left) and _is_container(right)):
        return 0
    return min(_depth(left, most), _depth(right, most))


def _membership(operands: Sequence[Any], most: int) -> int:
    return _depth(operands[1], most) if isinstance(operands[1], list) else 0


def _receiver(operands: Sequence[Any], most: int) -> int:
    return _depth(operands[0], most) if isinstance(operands[0], list) else 0


def _pairs(operands: Sequence[Any], most: int) -> int:
    """Each item of the last operand may have to be compared with each of the first."""
    first, last = operands[0], operands[-1]
    if not (isinstance(first, list) and isinstance(last, list)):
        return 0
    return max(len(last) * _depth(first, most), len(first) * _depth(last, most))


def _backwards(operands: Sequence[Any], most: int) -> int:
    match operands:
        case [str(text), str(part), *_]:
            return len(text) * len(part) // _BACKWARDS_PER_COST
    return _receiver(operands, most)


def _pattern(operands: Sequence[Any], _: int) -> int:
    match operands:
        case [str(text), str(pattern), *_]:
            size = int(patterns.compile(pattern).programsize)
            return size + len(text) // _CHARACTERS_PER_COST * (len(pattern) // _PATTERN_PER_COST)
    return 0


def _is_container(value: Any) -> bool:
    return isinstance(value, list | maps.Map | values.Optional)


_RULES: Mapping[str, Callable[[Sequence[Any], int], int]] = {
    "_==_": _equality,
    "_!=_": _equality,
    "@in": _membership,
    "indexOf": _receiver,
    "lastIndexOf": _backwards,
    "flatten": _receiver,
    "distinct": _pairs,
    "sum": _receiver,
    "sets.contains": _pairs,
    "sets.equivalent": _pairs,
    "sets.intersects": _pairs,
    "format": lambda operands, most: _depth(operands[1], most),
    "matches": _pattern,
    "find": _pattern,
    "findAll": _pattern,
}
