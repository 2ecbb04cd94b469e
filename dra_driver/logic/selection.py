"""Device selectors: compile a CEL expression, match devices with it.

The one seam to CEL: callers see expressions, devices and `SelectorError`, never an engine.
"""

import functools

from dra_driver import errors
from dra_driver.logic.cel import checking, device, engine, memo
from dra_driver.model import slices

MAX_LENGTH = 10 * 1024
"""Bytes of an expression; Kubernetes 1.36 `resource/v1.CELSelectorExpressionMaxLength`."""

_SHOWN = 160


class SelectorError(errors.Rejected):
    """An expression that cannot be used; `expression` is its text, `problem` what is wrong."""

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(f"CEL expression {shorten(expression)!r}: {problem}")
        self.expression = expression
        self.problem = problem


class CompileError(SelectorError):
    """The expression is wrong as it stands; `line` and `column` count from 1, if known."""

    def __init__(
        self, expression: str, problem: str, line: int | None = None, column: int | None = None
    ) -> None:
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(expression, where + problem)
        self.line = line
        self.column = column


class EvaluationError(SelectorError):
    """The expression met a device that it has no answer for."""


class Selector:
    """A compiled expression. Safe to share between threads."""

    def __init__(self, expression: str, program: engine.Program) -> None:
        self.expression = expression
        self._program = program
        self._memo: memo.Memo[bool | str] = memo.Memo()

    @property
    def evaluations(self) -> int:
        """How many outcomes had to be worked out; every other device reused one of them."""
        return len(self._memo)

    def matches(self, candidate: slices.Device, driver: str) -> bool:
        """Whether the expression holds for the device that `driver` publishes.

        Raises:
            EvaluationError: a missing attribute, a value of another type, a result that is no bool.
        """
        facts = device.Facts(candidate, driver)
        known = self._memo.find(facts)
        outcome = known[0] if known else self._evaluate(facts)
        if isinstance(outcome, str):
            raise EvaluationError(self.expression, outcome)
        return outcome

    def _evaluate(self, facts: device.Facts) -> bool | str:
        outcome, answers = self._program.evaluate(facts)
        self._memo.learn(answers, outcome)
        return outcome


@functools.lru_cache(maxsize=512)
def compile(expression: str) -> Selector:  # noqa: A001 - reads as `selection.compile`
    """The selector for an expression.

    Raises:
        CompileError: too long, a syntax error, an unknown name, something that the engine lacks.
    """
    if len(expression.encode()) > MAX_LENGTH:
        raise CompileError(expression, f"longer than the {MAX_LENGTH} bytes that are allowed")
    try:
        program = engine.Program(expression)
    except checking.Problem as problem:
        raise CompileError(
            expression, problem.text, line=problem.line, column=problem.column
        ) from problem
    return Selector(expression, program)


def check(expression: str) -> str | None:
    """What is wrong with an expression as it stands; None if it compiles."""
    try:
        compile(expression)
    except CompileError as error:
        return error.problem
    return None


def shorten(expression: str) -> str:
    """The expression for a message: on one line, the end cut off if it is long."""
    text = " ".join(expression.split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
