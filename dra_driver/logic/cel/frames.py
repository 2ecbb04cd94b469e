"""What all parts of a running expression share: the frame, errors, the budget.

A frame is a list: what may still be spent, the device, then the variables of macros by number.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from dra_driver.logic.cel import values

BUDGET, DEVICE, FIRST_VARIABLE = 0, 1, 2
Frame = list[Any]
Run = Callable[[Frame], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A run-time error: what is wrong, and at which character of the expression, if known."""

    text: str
    position: int | None = None


class Error(Exception):
    """A run-time error on its way up; `&&`, `||`, `all` and `exists` may absorb it."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.failure = Failure(text, position)


def spend(frame: Frame, cost: int) -> None:
    """Take a cost from the budget.

    Raises:
        values.CostError: nothing is left.
    """
    frame[BUDGET] -= cost
    if frame[BUDGET] < 0:
        raise values.CostError


def no_overload(name: str, value: Any, place: int) -> Error:
    """A value of a type that a function or an operator does not take."""
    return Error(f"no such overload of {name} for ({values.type_name(value)})", place)
