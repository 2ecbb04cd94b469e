"""What of an expression is worked out before it runs, and what that changes.

A conversion of a constant that fails makes the expression useless as a whole. Whether a value is in
a list that is written out is looked up by hash: a value that has none fails, beyond what `||`
absorbs, and nothing is in an empty list, not even what cannot be worked out.

Source: cel-go 0.26 `interpreter/decorators.go`, which Kubernetes switches on.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from dra_driver.logic.cel import library, maps, syntax, values

_CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
_HASHED = (bool, int, float, str)
_INDEXES = frozenset({"_[_]", "_[?_]"})

Scope = Mapping[str, object]
"""The variables that there are: they hide names of types."""
Known = tuple[Any, ...]
"""The one value that a node always has, or nothing."""


def check(node: syntax.Node, scope: Scope) -> None:
    """Work out what can be.

    Raises:
        syntax.Problem: a conversion of a constant fails.
    """
    if isinstance(node, syntax.Macro):
        check(node.operand, scope)
        inner = {**scope, **dict.fromkeys(node.variables)}
        for body in node.bodies:
            check(body, inner)
        return
    for child in syntax.children(node):
        check(child, scope)
    if isinstance(node, syntax.Call | syntax.MapOf):
        constant(node, scope)
    if isinstance(node, syntax.Call) and node.function in _INDEXES:
        _check_key(node.arguments[1], scope)


def _check_key(key: syntax.Node, scope: Scope) -> None:
    """What is always the same must be of a type that keys and positions are of."""
    for value in constant(key, scope):
        if not isinstance(value, _HASHED):
            text = f"a value of type {values.type_name(value)} is no key and no position"
            raise syntax.Problem(text, key.start)


def constant(node: syntax.Node, scope: Scope) -> Known:
    """The value of a node that is worked out before it is needed.

    Raises:
        syntax.Problem: a conversion of a constant fails.
    """
    match node:
        case syntax.Constant(value=value):
            return (value,)
        case syntax.Name(name=name) if name not in scope:
            return (values.TypeOf(name),)
        case syntax.ListOf(items=items, optional=optional) if not optional:
            return _listed([constant(item, scope) for item in items])
        case syntax.MapOf(entries=entries, optional=optional) if not optional:
            return _mapped([(constant(k, scope), constant(v, scope)) for k, v in entries], node)
        case syntax.Call(function=name, arguments=(argument,), method=False):
            if name in _CONVERSIONS:
                return tuple(_converted(node, value) for value in constant(argument, scope))
    return ()


def members(container: syntax.Node, scope: Scope) -> frozenset[Hashable] | None:
    """What stands for the items of a list that is written out, if they are looked up by hash.

    Each number in all types that have it; a whole one also as the double that is nearest to it.
    """
    if not isinstance(container, syntax.ListOf):
        return None
    known = constant(container, scope)
    if not known or not all(isinstance(item, _HASHED) for item in known[0]):
        return None
    return frozenset(key for item in known[0] for key in _keys(item))


def _listed(items: list[Known]) -> Known:
    return ([item[0] for item in items],) if all(items) else ()


def _mapped(entries: list[tuple[Known, Known]], node: syntax.Node) -> Known:
    made = maps.Map()
    try:
        for key, value in entries:
            if not key or not value:
                return ()
            made.put(key[0], value[0])
    except values.HashError as error:
        raise syntax.Problem(f"a key of type {error} has no hash", node.start) from error
    return (made,)


def _converted(node: syntax.Call, value: Any) -> Any:
    try:
        return library.GLOBALS[node.function](value)
    except values.CallError as error:
        raise syntax.Problem(str(error), node.place) from error
    except TypeError as error:
        text = f"no such overload of {node.function} for ({values.type_name(value)})"
        raise syntax.Problem(text, node.place) from error


def _keys(item: Any) -> Iterator[Hashable]:
    yield maps.hashed(item)
    if not values.is_number(item) or (isinstance(item, float) and not item.is_integer()):
        return
    yield float, float(item)
    for kind, convert in ((int, values.int64), (values.Uint, values.uint64)):
        try:
            yield kind, convert(int(item))
        except values.CallError:
            continue
