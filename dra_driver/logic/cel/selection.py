"""Device selectors: compile a CEL expression, match devices with it, say why one does not match.

The one seam to CEL: callers see expressions, devices and `SelectorError`, never an engine.
"""

import functools
import re

from dra_driver import errors
from dra_driver.logic.cel import device, engine, explaining, frames, memo, mentions, syntax
from dra_driver.model import slices, texts

MAX_LENGTH = 10 * 1024
"""Bytes of an expression; Kubernetes 1.36 `resource/v1.CELSelectorExpressionMaxLength`."""

_SHOWN = 160
_LONGEST_PROBLEM = 1024
_NO_SUCH_KEY = re.compile(r"no such key: (.+)", re.DOTALL)

Conjunct = explaining.Conjunct
Mention = mentions.Mention


class SelectorError(errors.Rejected):
    """An expression that cannot be used.

    `expression` is its text, `problem` what is wrong; `line` and `column` count from 1, None where
    there is no one place.
    """

    def __init__(self, expression: str, problem: str, position: int | None = None) -> None:
        """With the offset of the place in the expression, if there is one."""
        # An expression can be made of one name, or of one text, that is wrong.
        self.problem = texts.capped(problem, _LONGEST_PROBLEM)
        super().__init__(f"CEL expression {shorten(expression)!r}: {self.problem}")
        self.expression = expression
        self.line, self.column = _place(expression, position)


class CompileError(SelectorError):
    """The expression is wrong as it stands; the problem names the place."""

    def __init__(self, expression: str, problem: str, position: int | None = None) -> None:
        """With the offset of the place in the expression, if there is one."""
        line, column = _place(expression, position)
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(expression, where + problem, position)


class EvaluationError(SelectorError):
    """The expression met a device that it has no answer for."""

    @property
    def missing(self) -> str | None:
        """The name that the device lacks, if that is what is wrong."""
        match = _NO_SUCH_KEY.fullmatch(self.problem)
        return match[1] if match else None

    @property
    def guarded(self) -> str | None:
        """The expression to write instead, if an attribute or a capacity is missing."""
        return guarded(self.expression, self.missing) if self.missing is not None else None


class Selector:
    """A compiled expression. Safe to share between threads."""

    def __init__(self, expression: str, program: engine.Program) -> None:
        self.expression = expression
        self._program = program
        self._memo: memo.Memo[engine.Outcome] = memo.Memo()

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
        if isinstance(outcome, frames.Failure):
            raise EvaluationError(self.expression, outcome.text, outcome.position)
        return outcome

    def explain(self, candidate: slices.Device, driver: str) -> tuple[Conjunct, ...]:
        """What each operand of the outermost `&&` gives for a device, and what it read."""
        return self._parts.explain(device.Facts(candidate, driver))

    def check(self, *, lists: bool) -> None:
        """Check it once more for a cluster where attributes are no lists.

        Raises:
            CompileError: it needs lists.
        """
        try:
            self._program.check(lists=lists)
        except syntax.Problem as problem:
            raise CompileError(self.expression, problem.text, problem.position) from problem

    @functools.cached_property
    def _parts(self) -> explaining.Parts:
        return explaining.Parts(self.expression, self._program.tree)

    @functools.cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """The attributes and capacities that the expression names, each once."""
        return mentions.of(self._program.tree)

    def _evaluate(self, facts: device.Facts) -> engine.Outcome:
        outcome, answers = self._program.evaluate(facts)
        self._memo.learn(answers, outcome)
        return outcome


def is_too_long(expression: str) -> bool:
    """Whether the API server takes no expression of this length, in bytes."""
    return len(expression.encode(errors="replace")) > MAX_LENGTH


@functools.lru_cache(maxsize=512)
def compile(expression: str) -> Selector:  # noqa: A001 - reads as `selection.compile`
    """The selector for an expression.

    Raises:
        CompileError: too long, a syntax error, an unknown name, an operand of the wrong type.
    """
    if is_too_long(expression):
        raise CompileError(expression, f"longer than the {MAX_LENGTH} bytes that are allowed")
    try:
        program = engine.Program(expression)
    except syntax.Problem as problem:
        raise CompileError(expression, problem.text, problem.position) from problem
    return Selector(expression, program)


def check(expression: str, *, lists: bool = True) -> str | None:
    """What is wrong with an expression as it stands; None if it compiles.

    `lists`: whether attributes may be lists (feature gate DRAListTypeAttributes).
    """
    try:
        compile(expression).check(lists=lists)
    except CompileError as error:
        return error.problem
    return None


def guarded(expression: str, missing: str) -> str | None:
    """The expression that asks for an attribute or a capacity before it reads it.

    `missing` is the name in the error `no such key: NAME`. None if the expression, which must
    compile, does not read that name by a domain that is written out.
    """
    return explaining.guarded(expression, missing)


def shorten(expression: str) -> str:
    """The expression for a message: on one line, the end cut off if it is long."""
    text = " ".join(expression.split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _place(expression: str, position: int | None) -> tuple[int | None, int | None]:
    if position is None:
        return None, None
    before = expression[:position]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
