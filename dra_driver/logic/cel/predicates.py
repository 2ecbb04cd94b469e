"""Expressions about values of declared types, such as rules in the schemas of custom resources.

The environment is that of selectors of devices; so is the limit on what an expression may cost.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.cel import checking, engine, folding, frames, kinds, syntax
from dra_driver.model import texts

Failure = frames.Failure
Records = checking.Records

_LONGEST_PROBLEM = 1024


class CompileError(errors.Rejected):
    """The expression is wrong as it stands. The text tells what, and where."""


class Predicate:
    """A compiled expression. Safe to share between threads."""

    def __init__(
        self,
        expression: str,
        variables: Mapping[str, kinds.Type],
        records: Records,
        result: kinds.Type = kinds.BOOL,
    ) -> None:
        """An expression about `variables`, which gives a value of the type `result`.

        `records` has the fields of types that have fields, by the name of the type.

        Raises:
            CompileError: a syntax error, an unknown name, an operand or a result of the wrong type.
        """
        self.expression = expression
        self._names = tuple(variables)
        try:
            tree = syntax.parse(expression)
            _expect(result, checking.kind_of(tree, variables, records), tree)
            folding.check(tree, dict.fromkeys(variables))
            self._run, self._cost, self._size = engine.compile_about(self._names, tree)
        except syntax.Problem as problem:
            raise CompileError(_placed(expression, problem)) from problem
        except RecursionError as error:
            raise CompileError("nested too deeply") from error
        self.names = frozenset(_names(tree))
        """The variables that the expression has."""

    def evaluate(self, values: Mapping[str, Any]) -> Any | Failure:
        """What it gives for these values of its variables, or why it gives nothing."""
        given = [values.get(name) for name in self._names]
        return engine.run_about(self._run, given, cost=self._cost, size=self._size)


def _expect(wanted: kinds.Type, found: kinds.Type, tree: syntax.Node) -> None:
    if found != wanted:
        raise syntax.Problem(f"must evaluate to {wanted}, not {found}", tree.start)


def _names(node: syntax.Node) -> Iterator[str]:
    if isinstance(node, syntax.Name):
        yield node.name
    for child in syntax.children(node):
        yield from _names(child)


def _placed(expression: str, problem: syntax.Problem) -> str:
    text = texts.capped(problem.text, _LONGEST_PROBLEM)
    if problem.position is None:
        return text
    before = expression[: problem.position]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"line {line}, column {column}: {text}"
