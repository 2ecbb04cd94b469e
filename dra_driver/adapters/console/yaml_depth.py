"""YAML without what is nested too deeply: that is null, and the rest can be read by libyaml.

libyaml gives up a file in which more than a thousand objects and lists are inside each other
(0.2.5, `MAX_NESTING_LEVEL`), and a scanner without such a limit takes a time that grows with the
square of the depth. Here a scanner goes ahead as deep as is allowed, the end of what is deeper is
looked for in the text, and the scanner goes on behind it: each part of a file is read once.
"""

import dataclasses
import enum
import io
import re
from collections.abc import Callable, Iterator

_IN_BRACKETS = re.compile(
    r"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)  # a scalar in quotes
    | '[^']*+(?:'|\Z)
    | \#[^\n]*+                            # a comment
    | [\[\]{}]
    | [\s,:?]                              # a scalar may begin behind it
    | [^\s,\[\]{}]++                       # one without quotes, an anchor, a tag
    """,
    re.DOTALL | re.VERBOSE,
)


class Kind(enum.Enum):
    """What a scanner meets: objects and lists by indentation, and in brackets.

    BEYOND: more in brackets than it can take. It looks ahead, and may not have told of the first of
    these brackets: then it is behind the place of this step.
    """

    INDENTED, DEDENTED, OPENED, CLOSED, BEYOND = range(5)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Where it meets it: the character since it began, and the column in its line, from 0."""

    kind: Kind
    index: int
    column: int


Scan = Callable[[io.StringIO], Iterator[Step]]
"""What a scanner meets from where a text stands, until it is no YAML any more. A block has ended
at the first token that is not of it."""


def shallow(text: str, most: int, scan: Scan) -> str:
    """The same YAML with null for what is inside more than `most` objects or lists.

    Those by indentation and those in brackets are counted apart. Lines keep their numbers. What is
    no YAML stays as it is from there on.
    """
    kept: list[str] = []
    start = 0
    for begin, end in _Cutter(text, most, scan).cuts():
        kept += (text[start:begin], " null ", "\n" * text.count("\n", begin, end))
        start = end
    return "".join((*kept, text[start:]))


class _Cutter:
    """Finds what is too deep in a text: where it begins, and where it has ended."""

    def __init__(self, text: str, most: int, scan: Scan) -> None:
        self._text = text
        # Without a translation of line ends: it is counted in characters of the text.
        self._stream = io.StringIO(text, newline="")
        self._most = most
        self._scan = scan
        self._columns: list[int] = []
        """Of the blocks that the scanner is in."""
        self._at = 0

    def cuts(self) -> Iterator[tuple[int, int]]:
        """One after the other."""
        while self._at < len(self._text):
            yield from self._next()

    def _next(self) -> Iterator[tuple[int, int]]:
        """Those of the next block, or of the next pair of brackets, that is too deep."""
        start, self._at = self._at, len(self._text)
        self._stream.seek(start)
        brackets = outermost = 0
        for step in self._scan(self._stream):
            kind, place, column = step.kind, start + step.index, step.column
            if kind is Kind.INDENTED:
                self._leave(column)
                if len(self._columns) == self._most:
                    self._at = self._dedent(place, column)
                    yield place, self._at
                    return
                self._columns.append(column)
            elif kind is Kind.DEDENTED:
                self._leave(column + 1)
            elif kind is Kind.OPENED:
                outermost = outermost if brackets else place
                brackets += 1
            elif kind is Kind.CLOSED:
                brackets -= 1
            if brackets > self._most or kind is Kind.BEYOND:
                yield from self._in_brackets(outermost if brackets else place)
                return

    def _leave(self, column: int) -> None:
        """No block goes on that does not begin before a column."""
        while self._columns and self._columns[-1] >= column:
            self._columns.pop()

    def _dedent(self, begin: int, column: int) -> int:
        """The first line behind a block: it has something before its column, and no comment."""
        found = re.compile(rf"\n {{0,{column - 1}}}[^ \t\r\n#]").search(self._text, begin)
        return found.start() + 1 if found else len(self._text)

    def _in_brackets(self, start: int) -> Iterator[tuple[int, int]]:
        """All that are in the first pair; the scanner goes on in the line behind it."""
        depth = begin = 0
        for token in _IN_BRACKETS.finditer(self._text, start):
            if token[0] in {"[", "{"}:
                depth += 1
                if depth == self._most + 1:
                    begin = token.start()
            elif token[0] in {"]", "}"}:
                if depth == self._most + 1:
                    yield begin, token.end()
                depth -= 1
                if not depth:
                    line = self._text.find("\n", token.end())
                    self._at = line if line >= 0 else len(self._text)
                    return
