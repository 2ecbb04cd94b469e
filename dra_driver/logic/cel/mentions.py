"""Which attributes and capacities an expression names, whatever comes of it."""

import dataclasses
from collections.abc import Iterator, Mapping

from dra_driver.logic.cel import syntax

_TABLES = frozenset({"attributes", "capacity"})


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """A name in a domain of `attributes` or `capacity`. Without a `name` the domain alone."""

    table: str
    domain: str
    name: str = ""


def of(tree: syntax.Node) -> tuple[Mention, ...]:
    """Each once, in the order of the text. Names that are worked out are not known here."""
    return tuple(dict.fromkeys(_mentions(tree, {})))


def _mentions(node: syntax.Node, aliases: Mapping[str, Mention]) -> Iterator[Mention]:
    match node:
        case syntax.Macro(kind="bind", operand=operand, variables=(name,), bodies=(body,)) if (
            bound := _domain(operand, aliases)
        ):
            yield bound
            yield from _mentions(body, {**aliases, name: bound})
            return
    if (named := _name(node, aliases)) or (named := _domain(node, aliases)):
        yield named
    for child in syntax.children(node):
        yield from _mentions(child, aliases)


def _name(node: syntax.Node, aliases: Mapping[str, Mention]) -> Mention | None:
    """The name in a domain that a part of an expression reads, or asks for."""
    match node:
        case syntax.Select(owner=owner, field=str(key)):
            pass
        case syntax.Call(
            function="_[_]" | "_[?_]", arguments=(owner, syntax.Constant(value=str(key)))
        ):
            pass
        case syntax.Call(function="@in", arguments=(syntax.Constant(value=str(key)), owner)):
            pass
        case _:
            return None
    found = _domain(owner, aliases)
    return dataclasses.replace(found, name=key) if found is not None else None


def _domain(node: syntax.Node, aliases: Mapping[str, Mention]) -> Mention | None:
    """The domain of a table that a part of an expression is; None if it is none."""
    match node:
        case syntax.Name(name=name):
            return aliases.get(name)
        case syntax.Call(
            function="_[_]" | "_[?_]", arguments=(table, syntax.Constant(value=str(domain)))
        ):
            pass
        case syntax.Select(owner=table, field=domain, test=False):
            pass
        case _:
            return None
    match table:
        case syntax.Select(owner=syntax.Name(name="device"), field=field) if field in _TABLES:
            return Mention(field, domain)
    return None
