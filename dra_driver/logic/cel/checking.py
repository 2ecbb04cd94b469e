"""Names and literals of a parsed expression, checked before it ever runs.

Works on the tree of celpy's grammar after `engine` has collapsed it. Types are not checked: celpy
has no type checker.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import device, library

MACROS = {"all": 2, "exists": 2, "exists_one": 2, "filter": 2, "map": 3}
"""Macros and the most arguments that they take; all take a variable and an expression."""

_DATE_PARTS = (
    "Date DayOfMonth DayOfWeek DayOfYear FullYear Month Hours Milliseconds Minutes Seconds"
)
_METHODS = {"size", "matches", *(f"get{part}" for part in _DATE_PARTS.split())}
_GLOBALS = {"size", "matches", "has", "dyn", "bytes", "duration", "timestamp"}
_ESCAPE = re.compile(
    r"""\\(?:[abfnrtv"'\\]|[0-3][0-7]{2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|(.?))"""
)


class Problem(Exception):  # noqa: N818 - selection makes the error of it
    """An expression that does not compile; line and column count from 1, None if unknown."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.column = column


def check(node: Any, scope: frozenset[str] = frozenset({"device"})) -> None:
    """Refuse what Kubernetes' compiler refuses by name; `scope` has the variables.

    Raises:
        Problem: with the position.
    """
    visit = _VISITORS.get(node.data)
    inside = visit(node, scope) if visit is not None else None
    if inside is None:
        for child in node.children:
            if _is_tree(child):
                check(child, scope)
        return
    check(node.children[0], scope)
    for body in node.children[2].children[1:]:
        check(body, inside)


def identifier(node: Any) -> str | None:
    """The name, if the node is nothing but an identifier."""
    if node.data == "primary" and node.children[0].data == "ident":
        return str(node.children[0].children[0])
    return None


def _is_tree(node: Any) -> bool:
    return hasattr(node, "data")


def _ident(node: Any, scope: frozenset[str]) -> None:
    (name,) = node.children
    if name not in scope:
        raise _problem(name, f"undeclared reference to {str(name)!r}")


def _literal(node: Any, _: frozenset[str]) -> None:
    (token,) = node.children
    if "STRING" not in token.type or token[:1] in "rR":
        return
    for escape in _ESCAPE.finditer(token):
        if escape[1] is not None:
            raise _problem(
                token, f"unknown escape {escape[0]!r}: write r'...' or double the backslash"
            )


def _global_call(node: Any, _: frozenset[str]) -> None:
    name, arguments = node.children[0], _arguments(node, 1)
    if name == "has" and (len(arguments) != 1 or arguments[0].data != "member_dot"):
        raise _problem(name, "has() takes one field selection, for example has(a.b)")
    if name not in _GLOBALS:
        _check_call(name, len(arguments), library.GLOBALS)


def _field(node: Any, scope: frozenset[str]) -> None:
    owner, field = node.children
    if identifier(owner) == "device" and "device" in scope and field not in device.FIELDS:
        known = ", ".join(sorted(device.FIELDS))
        raise _problem(field, f"undefined field {str(field)!r}: device has {known}")


def _message(node: Any, _: frozenset[str]) -> None:
    raise _problem(node.meta, "message literals are not supported by this engine")


def _method_call(node: Any, _scope: frozenset[str]) -> frozenset[str] | None:
    owner, name, arguments = node.children[0], node.children[1], _arguments(node, 2)
    if (qualified := f"{identifier(owner)}.{name}") in library.NOT_OFFERED:
        raise _problem(name, f"{qualified} is not supported by this engine")
    if name not in MACROS:
        if name not in _METHODS:
            _check_call(name, len(arguments) + 1, library.METHODS)
        return None
    if not 2 <= len(arguments) <= MACROS[name]:
        raise _problem(
            name, f"{name!s}() with {len(arguments)} arguments is not supported by this engine"
        )
    variable = identifier(arguments[0])
    if variable is None:
        raise _problem(name, f"the first argument of {name!s}() must be a variable name")
    return _scope | {variable}


def _check_call(name: Any, count: int, known: Mapping[str, Callable[..., Any]]) -> None:
    if name in library.NOT_OFFERED:
        raise _problem(name, f"{name!s}() is not supported by this engine")
    if name not in known:
        raise _problem(name, f"undeclared reference to {str(name)!r}")
    try:
        inspect.signature(known[name]).bind(*[None] * count)
    except TypeError as error:
        raise _problem(name, f"no overload of {name!s}() takes so many arguments") from error


def _arguments(node: Any, index: int) -> list[Any]:
    return list(node.children[index].children) if len(node.children) > index else []


def _problem(place: Any, text: str) -> Problem:
    return Problem(text, getattr(place, "line", None), getattr(place, "column", None))


_VISITORS: Mapping[str, Callable[[Any, frozenset[str]], frozenset[str] | None]] = {
    "ident": _ident,
    "dot_ident": _ident,
    "literal": _literal,
    "ident_arg": _global_call,
    "dot_ident_arg": _message,
    "member_dot": _field,
    "member_object": _message,
    "member_dot_arg": _method_call,
}
