"""What the settings have for some of the GPUs, picked by CEL: a MIG mode, or shares."""

import dataclasses
from collections.abc import Iterable
from typing import Generic, TypeVar

from dra_driver import errors
from dra_driver.logic.cel import selection
from dra_driver.logic.offering import attributes
from dra_driver.model import devices

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class GpuRules(Generic[T]):
    """Rules in order, and what GPUs have that none of them matches.

    A rule with None says nothing of this matter.
    """

    driver_name: str
    default: T
    rules: tuple[tuple[selection.Selector, T | None], ...] = ()

    def of(self, gpu: devices.Gpu) -> T:
        """What the first rule has that matches the GPU as a whole and says something.

        Raises:
            errors.Rejected: a rule has no answer for the GPU, so nobody knows what is meant for it.
        """
        device = attributes.device(gpu)
        for number, (selector, value) in enumerate(self.rules):
            if value is None:
                continue
            try:
                if selector.matches(device, self.driver_name):
                    return value
            except selection.EvaluationError as error:
                remedy = f"; write {error.guarded}" if error.guarded else ""
                raise errors.Rejected(
                    f"setting gpus[{number}].selector: {error} for device {device.name!r}{remedy}"
                ) from error
        return self.default


def compiled(driver_name: str, default: T, rules: Iterable[tuple[str, T | None]]) -> GpuRules[T]:
    """The rules, each a CEL expression and what it stands for.

    Raises:
        errors.Fatal: an expression is wrong.
    """
    found = []
    for number, (expression, value) in enumerate(rules):
        try:
            found.append((selection.compile(expression), value))
        except selection.CompileError as error:
            raise errors.Fatal(f"setting gpus[{number}].selector: {error}") from error
    return GpuRules(driver_name, default, tuple(found))
