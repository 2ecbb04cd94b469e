"""What is found while a pod is read: kept in order, for the conversion and its explanation."""

import json
from collections.abc import Iterable

from dra_driver.logic.converting import conversion
from dra_driver.model import texts

_MOST = 50
"""Problems, and warnings, of one pod: it is another's text, and nobody reads more."""
_LONGEST = 300
"""Characters of what was asked for in a line."""


class Notes:
    """Lines, warnings and problems, which are added one by one; each is there once."""

    def __init__(self) -> None:
        self.lines: dict[conversion.Line, None] = {}
        self.warnings: dict[conversion.Line, None] = {}
        self.problems: dict[conversion.Problem, None] = {}

    def tell(self, where: str, asked: str, becomes: str) -> None:
        """A thing that was translated."""
        self.lines[conversion.Line(where, texts.told(asked, _LONGEST), becomes)] = None

    def warn(self, where: str, asked: str, becomes: str) -> None:
        """A thing that somebody should look at."""
        if len(self.warnings) < _MOST:
            self.warnings[conversion.Line(where, texts.told(asked, _LONGEST), becomes)] = None

    def refuse(self, where: str, field: str, value: object, rule: str) -> None:
        """A thing that cannot be translated: nothing of the pod is."""
        if len(self.problems) < _MOST:
            shown = texts.told(_shown(value), _LONGEST)
            told = texts.told(field, _LONGEST)
            self.problems[conversion.Problem(where, told, shown, rule)] = None

    def add(
        self,
        lines: Iterable[conversion.Line],
        warnings: Iterable[conversion.Line],
        problems: Iterable[conversion.Problem],
    ) -> None:
        """What another module has found."""
        self.lines |= dict.fromkeys(lines)
        self.warnings |= dict.fromkeys(warnings)
        self.problems |= dict.fromkeys(problems)


def _shown(value: object) -> str:
    """A value in a message: of a list or an object, which may be of any depth, what it is."""
    match value:
        case int() if abs(value) >= 2**63:
            return "a number of more than 64 bits"
        case None | bool():
            return json.dumps(value)
        case int() | float() | str():
            return texts.quoted(value)
        case dict():
            return "an object"
        case _:
            return "a list"
