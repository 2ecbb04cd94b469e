"""Types of expressions: how they are written, and which fits which.

A type is written as cel-go writes it: `int`, `list(string)`, `map(string, dyn)`. One capital letter
is a type parameter. `dyn` fits everything and everything fits it.
"""

import dataclasses
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"[A-Za-z]+|[(),]")


@dataclasses.dataclass(frozen=True, slots=True)
class Type:
    """A type with its parameters."""

    name: str
    arguments: tuple["Type", ...] = ()

    def __str__(self) -> str:
        """As messages have it."""
        inside = f"({', '.join(map(str, self.arguments))})" if self.arguments else ""
        return self.name + inside

    @property
    def is_parameter(self) -> bool:
        """Whether it stands for a type."""
        return len(self.name) == 1


def parse(text: str) -> tuple[Type, ...]:
    """The types in a text, separated by commas."""
    return tuple(_types(iter(_TOKEN.findall(text))))


def _types(words: Iterator[str]) -> Iterator[Type]:
    pending = ""
    for word in words:
        if word == "(":
            yield Type(pending, tuple(_types(words)))
            pending = ""
        elif word == ")":
            break
        elif word == ",":
            if pending:
                yield Type(pending)
            pending = ""
        else:
            pending = word
    if pending:
        yield Type(pending)


DYN, BOOL, INT, UINT, DOUBLE = map(Type, ("dyn", "bool", "int", "uint", "double"))
STRING, BYTES, NULL, TYPE = map(Type, ("string", "bytes", "null", "type"))
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
ORDERED = frozenset({BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION})
"""Types whose values can be sorted."""


def list_of(item: Type) -> Type:
    """A list type."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """A map type."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """An optional type."""
    return Type("optional", (value,))


def fits(actual: Type, expected: Type, bound: dict[str, Type]) -> bool:
    """Whether a value of one type may stand where another is expected.

    `bound` has the types that parameters of `expected` stand for so far; it is added to.
    """
    if expected.is_parameter:
        known = bound.get(expected.name)
        if known is None or (not fits(actual, known, {}) and fits(known, actual, {})):
            bound[expected.name] = actual
            return True
        return fits(actual, known, {})
    if DYN in {actual, expected}:
        return True
    if actual == NULL and expected in {TIMESTAMP, DURATION}:
        return True
    return (
        actual.name == expected.name
        and len(actual.arguments) == len(expected.arguments)
        and all(map(lambda a, e: fits(a, e, bound), actual.arguments, expected.arguments))
    )


def substitute(kind: Type, bound: dict[str, Type]) -> Type:
    """The type with its parameters replaced; one that stands for nothing becomes `dyn`."""
    if kind.is_parameter:
        return bound.get(kind.name, DYN)
    return Type(kind.name, tuple(substitute(argument, bound) for argument in kind.arguments))


def common(kinds: list[Type]) -> Type:
    """The one type that all have, else `dyn`; `dyn` if there is none."""
    return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else DYN
