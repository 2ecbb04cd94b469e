"""Types of expressions, and how they are written.

A type is written as cel-go writes it: `int`, `list(string)`, `map(string, dyn)`. One capital letter
is a type parameter, a number a variable that stands for a type. `dyn` fits everything and
everything fits it.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping

_TOKEN = re.compile(r"[A-Za-z]+|[(),]")
_NEVER_NULL = frozenset(
    ["any", "bool", "bytes", "double", "dyn", "int", "list", "map", "string", "type", "uint"]
)


@dataclasses.dataclass(frozen=True, slots=True)
class Type:
    """A type with its parameters."""

    name: str
    arguments: tuple["Type", ...] = ()
    size: int = dataclasses.field(init=False, compare=False, repr=False)
    """Of how many types it is made, itself included."""

    def __post_init__(self) -> None:
        """Count."""
        object.__setattr__(self, "size", 1 + sum(inside.size for inside in self.arguments))

    def __str__(self) -> str:
        """As messages have it."""
        inside = f"({', '.join(map(str, self.arguments))})" if self.arguments else ""
        return self.name + inside

    @property
    def is_variable(self) -> bool:
        """Whether it stands for a type that is still open."""
        return self.name.isdecimal()

    @property
    def is_nullable(self) -> bool:
        """Whether null is taken for a value of it: times, and what libraries define."""
        return self.name not in _NEVER_NULL

    def replaced(self, known: Mapping[str, "Type"]) -> "Type":
        """With others for some names, at any depth."""
        if self.name in known:
            return known[self.name]
        return Type(self.name, tuple(argument.replaced(known) for argument in self.arguments))


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
ANY = Type("any")
"""A value of any type that is no list: fits everything, and nobody goes over it."""
DYNAMIC = frozenset({DYN, ANY})
STRING, BYTES, NULL = map(Type, ("string", "bytes", "null"))
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


def type_of(value: Type) -> Type:
    """The type of a name that stands for a type."""
    return Type("type", (value,))
