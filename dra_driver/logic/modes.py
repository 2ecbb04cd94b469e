"""Which MIG mode the settings have for a GPU."""

import dataclasses
from collections.abc import Iterable

from dra_driver import errors
from dra_driver.logic import attributes, selection
from dra_driver.model import devices, mig


@dataclasses.dataclass(frozen=True, slots=True)
class Modes:
    """Rules in order, and the mode of GPUs that none of them matches."""

    driver_name: str
    default: mig.Mode
    rules: tuple[tuple[selection.Selector, mig.Mode], ...] = ()

    def of(self, gpu: devices.Gpu) -> mig.Mode:
        """The mode of the first rule that matches the GPU as a whole.

        Raises:
            errors.Rejected: a rule has no answer for the GPU, so nobody knows what is meant for it.
        """
        device = attributes.device(gpu)
        for number, (selector, mode) in enumerate(self.rules):
            try:
                if selector.matches(device, self.driver_name):
                    return mode
            except selection.EvaluationError as error:
                remedy = f"; write {error.guarded}" if error.guarded else ""
                raise errors.Rejected(
                    f"setting gpus[{number}].selector: {error} for device {device.name!r}{remedy}"
                ) from error
        return self.default


def compiled(driver_name: str, default: mig.Mode, rules: Iterable[tuple[str, mig.Mode]]) -> Modes:
    """The rules, each a CEL expression and a mode.

    Raises:
        errors.Fatal: an expression is wrong.
    """
    found = []
    for number, (expression, mode) in enumerate(rules):
        try:
            found.append((selection.compile(expression), mode))
        except selection.CompileError as error:
            raise errors.Fatal(f"setting gpus[{number}].selector: {error}") from error
    return Modes(driver_name, default, tuple(found))
