"""Where the values of a YAML or JSON text stand in it, so that parts of the text can be changed.

Places are characters from the beginning of the text. What the values are is told by `documents`.
"""

import bisect
import dataclasses
import enum
import re
from collections.abc import Iterator


class Uneditable(ValueError):  # noqa: N818 - what it is, for who wants to edit it
    """The text cannot be changed without a risk for what is to stay; the message says why."""


class Kind(enum.Enum):
    """What a value is; ALIAS: what another one is that is named."""

    SCALAR, OBJECT, LIST, ALIAS = range(4)


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """A value: `text[start:end]`, with its anchor and tag, without comments behind it.

    `begin` is where it begins behind anchor and tag: of lists in block style at the first dash.
    """

    kind: Kind
    start: int
    end: int
    begin: int
    is_flow: bool = False
    is_block_scalar: bool = False
    anchor: str = ""
    target: "Node | None" = None
    """Of an alias: what it stands for."""
    entries: list["Entry"] = dataclasses.field(default_factory=list)
    items: list["Node"] = dataclasses.field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing: null of YAML that is not written."""
        return self.start == self.end

    @property
    def parts(self) -> list["Node"]:
        """The values right in it, with keys."""
        return [part for entry in self.entries for part in (entry.key, entry.value)] + self.items

    def all(self) -> Iterator["Node"]:
        """It, and all values in it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.parts)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A key of an object with its value; `name` is the key as text. `is_merge`: it is `<<`."""

    key: Node
    name: str
    value: Node
    is_merge: bool = False

    @property
    def start(self) -> int:
        """Where the key begins."""
        return self.key.start

    @property
    def end(self) -> int:
        """Where the value ends; where nothing is written, behind the key."""
        return max(self.key.end, self.value.end)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """One document. `start`: its `---`, or where the text begins. `body`: behind the `---`.

    `root` is None if it is empty. `end` is where the next one begins, or the text ends.
    """

    start: int
    body: int
    end: int
    root: Node | None
    is_marked: bool = False
    """Whether it begins with `---`."""
    has_directives: bool = False


class Text:
    """A text with its lines, and what is between values: space and comments."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._breaks = [found.start() for found in re.finditer("\n", text)]
        self.newline = "\r\n" if text[: self._first()].endswith("\r\n") else "\n"

    def _first(self) -> int:
        return self._breaks[0] + 1 if self._breaks else 0

    def line(self, place: int) -> int:
        """The number of the line, from 1."""
        return bisect.bisect_left(self._breaks, place) + 1

    def line_start(self, place: int) -> int:
        """Where the line begins that `place` is in."""
        index = bisect.bisect_left(self._breaks, place)
        return self._breaks[index - 1] + 1 if index else 0

    def line_end(self, place: int) -> int:
        """Where the next line begins, behind the one that `place` is in."""
        index = bisect.bisect_left(self._breaks, place)
        return self._breaks[index] + 1 if index < len(self._breaks) else len(self.text)

    def column(self, place: int) -> int:
        """Characters before it in its line."""
        return place - self.line_start(place)

    def is_first(self, place: int) -> bool:
        """Whether there is only space before it in its line."""
        return not self.text[self.line_start(place) : place].strip()

    def significant(self, place: int) -> int:
        """The next character from `place` on that is neither space nor in a comment."""
        while place < len(self.text):
            if self.text[place] == "#" and (not place or self.text[place - 1].isspace()):
                place = self.line_end(place)
            elif self.text[place].isspace():
                place += 1
            else:
                break
        return place
