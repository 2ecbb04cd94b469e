"""Which part of an expression fails, on what values, and how to guard it."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from dra_driver.logic.cel import device, engine, frames, memo, syntax
from dra_driver.model import slices

_Memo = memo.Memo["Conjunct"]
_TABLES = frozenset({"attributes", "capacity"})


@dataclasses.dataclass(frozen=True, slots=True)
class Conjunct:
    """One operand of the outermost `&&`; the whole expression if it has none.

    `source` is its text; `outcome` true, false or the text of a run-time error; `reads` the path
    and the value of everything that it looked at, `(none)` for what the device lacks.
    """

    source: str
    outcome: bool | str
    reads: tuple[tuple[str, str], ...]


class Parts:
    """The operands of the outermost `&&` of an expression, compiled once."""

    def __init__(self, expression: str, tree: syntax.Node) -> None:
        """The expression compiles."""
        self._parts = [
            (expression[part.start : part.end], engine.compile(whole), _Memo())
            for part, whole in _conjuncts(tree)
        ]

    def explain(self, facts: device.Facts) -> tuple[Conjunct, ...]:
        """Every conjunct on its own, in order, whatever the others give."""
        explained: list[Conjunct] = []
        for source, (evaluate, cost, size), known in self._parts:
            if not (found := known.find(facts)):
                outcome, answers = engine.run(evaluate, facts, cost=cost, size=size)
                shown = outcome.text if isinstance(outcome, frames.Failure) else outcome
                found = (Conjunct(source, shown, tuple(_reads(answers))),)
                known.learn(answers, found[0])
            explained += found
        return tuple(explained)


def guarded(expression: str, missing: str) -> str | None:
    """The expression that asks for an attribute or a capacity before it reads it.

    Args:
        expression: one that compiles.
        missing: the name in the error `no such key: NAME`.

    Returns:
        The expression to write instead; None if it reads nothing of that name by its domain.
    """
    pieces, position = [], 0
    for insertion in _insertions(syntax.parse(expression), _Context(missing)):
        start, end = insertion.part.start, insertion.part.end
        text = expression[start:end]
        if isinstance(insertion.part, syntax.Choice):
            text = f"({text})"
        guards = [f"{json.dumps(missing)} in {path}" for path in insertion.paths]
        text = " && ".join([*guards, text])
        pieces += [expression[position:start], f"({text})" if insertion.inside_or else text]
        position = end
    return "".join([*pieces, expression[position:]]) if pieces else None


def _conjuncts(node: syntax.Node) -> Iterator[tuple[syntax.Node, syntax.Node]]:
    """The operands of the outermost `&&`, each with what it needs around it to be evaluated."""
    match node:
        case syntax.Logic(operator="&&", operands=operands):
            for operand in operands:
                yield from _conjuncts(operand)
        case syntax.Macro(kind="bind", bodies=(body,)):
            for part, whole in _conjuncts(body):
                yield part, dataclasses.replace(node, bodies=(whole,))
        case _:
            yield node, node


def _reads(answers: engine.Answers) -> Iterator[tuple[str, str]]:
    for question, answer in answers.items():
        match question:
            case ("value", table, domain, name):
                value = "(none)" if answer is None else _shown(answer[1])
                yield f"device.{table}[{json.dumps(domain)}].{name}", value
            case ("names", table, domain):
                yield f"device.{table}[{json.dumps(domain)}]", f"{{{', '.join(answer)}}}"
            case ("domains", table):
                yield f"device.{table}", f"{{{', '.join(answer)}}}"
            case (field,):
                yield f"device.{field}", _shown(answer)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, slices.Version):
        return value.text
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class _Context:
    """Where in an expression a part stands."""

    missing: str
    aliases: frozenset[str] = frozenset()
    """Variables of `cel.bind` that stand for a domain."""
    guarded: frozenset[str] = frozenset()
    """Paths of domains that were asked for the name before."""
    inside_or: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Insertion:
    part: syntax.Node
    paths: tuple[str, ...]
    inside_or: bool


def _insertions(node: syntax.Node, context: _Context) -> Iterator[_Insertion]:
    """The smallest operands that read the name unguarded."""
    match node:
        case syntax.Logic(operator=operator, operands=operands):
            inner = dataclasses.replace(context, inside_or=operator == "||")
            for operand in operands:
                asked = _asked(operand, context, negated=operator == "||")
                for insertion in _insertions(operand, inner):
                    yield insertion
                    if insertion.part is operand and operator == "&&":
                        asked |= frozenset(insertion.paths)
                inner = dataclasses.replace(inner, guarded=inner.guarded | asked)
        case syntax.Macro(kind="bind", operand=operand, variables=(name,), bodies=(body,)) if (
            _domain(operand, context)
        ):
            aliases = context.aliases | {name}
            yield from _insertions(body, dataclasses.replace(context, aliases=aliases))
        case _:
            paths = dict.fromkeys(_accesses(node, context))
            if wanted := [path for path in paths if path not in context.guarded]:
                yield _Insertion(node, tuple(wanted), context.inside_or)


def _accesses(node: syntax.Node, context: _Context) -> Iterator[str]:
    """The paths of the domains from which a part reads the name."""
    match node:
        case syntax.Select(owner=owner, field=field, optional=False, test=False):
            if field == context.missing and (path := _domain(owner, context)):
                yield path
        case syntax.Call(function="_[_]", arguments=(owner, syntax.Constant(value=key))):
            if key == context.missing and (path := _domain(owner, context)):
                yield path
    for child in syntax.children(node):
        yield from _accesses(child, context)


def _asked(node: syntax.Node, context: _Context, *, negated: bool) -> frozenset[str]:
    """The domain that a part asks for the name; with `negated`, a part that holds without it."""
    if negated:
        if not isinstance(node, syntax.Call) or node.function != "!_":
            return frozenset()
        (node,) = node.arguments
    match node:
        case syntax.Call(function="@in", arguments=(syntax.Constant(value=key), owner)):
            path = _domain(owner, context) if key == context.missing else None
        case syntax.Select(owner=owner, field=field, test=True):
            path = _domain(owner, context) if field == context.missing else None
        case _:
            path = None
    return frozenset({path} if path else ())


def _domain(node: syntax.Node, context: _Context) -> str | None:
    """The path of a domain of attributes or capacities, if the node is one."""
    match node:
        case syntax.Name(name=name):
            return name if name in context.aliases else None
        case syntax.Call(function="_[_]", arguments=(table, syntax.Constant(value=str(domain)))):
            pass
        case syntax.Select(owner=table, field=domain, test=False, optional=False):
            pass
        case _:
            return None
    match table:
        case syntax.Select(owner=syntax.Name(name="device"), field=field) if field in _TABLES:
            return f"device.{field}[{json.dumps(domain)}]"
    return None
