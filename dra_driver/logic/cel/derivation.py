"""Derived attributes: what a CEL expression makes of a device, for constraints to compare.

Source: Kubernetes 1.37, KEP-6080 and `resource/v1.DeviceDerivedAttribute` (gate
DRADerivedAttributes). What is counted of all of a claim's expressions together has no limit here.
"""

import functools
from typing import Any

from dra_driver.logic.cel import device, engine, frames, memo, selection, syntax, values
from dra_driver.model import slices, versions

_Outcome = slices.AttributeValue | frames.Failure
_SCALARS = (bool, int, str, versions.Semver)


class DerivationError(selection.EvaluationError):
    """The expression met a device that it has no value for."""

    @property
    def guarded(self) -> str | None:
        """None: what guards a selector would make a bool of the value."""
        return None


class Derivation:
    """A compiled expression. Safe to share between threads."""

    def __init__(self, expression: str, program: engine.Program) -> None:
        self.expression = expression
        self._program = program
        self._memo: memo.Memo[_Outcome] = memo.Memo()

    def value(self, candidate: slices.Device, driver: str) -> slices.AttributeValue:
        """The value for the device that `driver` publishes.

        Raises:
            DerivationError: a missing attribute, a value of another type, a result that no
                attribute can have.
        """
        facts = device.Facts(candidate, driver)
        known = self._memo.find(facts)
        outcome = known[0] if known else self._evaluate(facts)
        if isinstance(outcome, frames.Failure):
            raise DerivationError(self.expression, outcome.text, outcome.position)
        return outcome

    def check(self, *, lists: bool) -> None:
        """Check it once more for a cluster where attributes are no lists.

        Raises:
            selection.CompileError: it needs lists.
        """
        try:
            self._program.check(lists=lists)
        except syntax.Problem as problem:
            raise selection.CompileError(
                self.expression, problem.text, problem.position
            ) from problem

    def _evaluate(self, facts: device.Facts) -> _Outcome:
        found, answers = self._program.evaluate_value(facts)
        outcome = found if isinstance(found, frames.Failure) else _as_attribute(found)
        self._memo.learn(answers, outcome)
        return outcome


@functools.lru_cache(maxsize=512)
def compile(expression: str) -> Derivation:  # noqa: A001 - reads as `derivation.compile`
    """The derivation for an expression.

    Raises:
        selection.CompileError: too long, a syntax error, an unknown name, an operand or a result of
            the wrong type.
    """
    if selection.is_too_long(expression):
        raise selection.CompileError(
            expression, f"longer than the {selection.MAX_LENGTH} bytes that are allowed"
        )
    try:
        program = engine.Program(expression, selects=False)
    except syntax.Problem as problem:
        raise selection.CompileError(expression, problem.text, problem.position) from problem
    return Derivation(expression, program)


def check(expression: str, *, lists: bool = True) -> str | None:
    """What is wrong with an expression as it stands; None if it compiles.

    `lists`: whether attributes may be lists (feature gate DRAListTypeAttributes).
    """
    try:
        compile(expression).check(lists=lists)
    except selection.CompileError as error:
        return error.problem
    return None


def _as_attribute(value: Any) -> _Outcome:
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        if len(kinds) == 1 and kinds <= set(_SCALARS):
            return tuple(_scalar(item) for item in value)
        return frames.Failure("the result must be a list of int, bool, string or semver, not empty")
    if type(value) in _SCALARS:
        return _scalar(value)
    return frames.Failure(
        f"the result must be int, bool, string or semver, not {values.type_name(value)}"
    )


def _scalar(value: Any) -> slices.Scalar:
    scalar: slices.Scalar = value
    return slices.Version(str(value)) if isinstance(value, versions.Semver) else scalar
