"""Changes of a text, collected before any is made."""

import bisect
import dataclasses
from typing import Any

from dra_driver.adapters.console import nodes, written

GONE = object()
"""What an anchor stands for whose place in the text is not there any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    start: int
    end: int
    text: str
    depth: int


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A value in the text, and what holds it.

    `column` is that of the key, or of the dash. `colon`: behind the colon of its key in block
    style; None in lists and in flow style. `depth`: values that it is in.
    """

    node: nodes.Node
    column: int
    depth: int
    colon: int | None = None
    is_in_flow: bool = False


class Draft:
    """A text and what is to change in it."""

    def __init__(self, text: nodes.Text, style: written.Style) -> None:
        self.text = text
        self.style = style
        self.notes: list[str] = []
        """What else was done, for who reads the text."""
        self.anchored: dict[int, Any] = {}
        """What anchors stand for that have changed, by the identity of their value."""
        self._changes: list[_Change] = []

    def replace(self, start: int, end: int, text: str) -> None:
        """Put other text there."""
        self._changes.append(_Change(start, end, text, 0))

    def insert(self, place: int, texts: list[str], depth: int) -> None:
        """Put lines before the one that begins at `place`.

        Of several at one place, what is deeper inside of others comes first.
        """
        lines = "".join(f"{line}\n" for line in texts)
        self._changes.append(_Change(place, place, lines, depth))

    def behind(self, end: int) -> int:
        """Where the next line begins, behind a value that ends at `end`."""
        if end and self.text.text[end - 1] == "\n":
            return end
        return self.text.line_end(end)

    def after(self, end: int, column: int) -> int:
        """Where lines go that begin in this column and come after a value that ends at `end`.

        That is behind comments further to the right: they are about the value.
        """
        place = found = self.behind(end)
        while place < len(self.text.text):
            line = self.text.text[place : self.text.line_end(place)]
            place = self.text.line_end(place)
            shown = line.strip()
            if shown.startswith("#") and len(line) - len(line.lstrip(" ")) > column:
                found = place
            elif shown:
                break
        return found

    def line_end_in(self, node: nodes.Node) -> str:
        """What its last line ends with, where a block scalar ends it: it is a part of that."""
        return "\n" if self.text.text[node.begin : node.end].endswith("\n") else ""

    def keep_comments(self, place: Place) -> None:
        """Put comments in lines of their own behind what takes the place of a block."""
        node = place.node
        if node.is_flow or node.kind not in (nodes.Kind.OBJECT, nodes.Kind.LIST):
            return
        end = self.behind(node.end)
        comments = self._comments(self.text.line_end(node.begin), end, [node])
        self.insert(end, written.indented(comments, place.column), place.depth)

    def remove_lines(self, start: int, end: int, parts: list[nodes.Node]) -> None:
        """Take away the lines with these values. Comments in lines of their own stay."""
        place = self.text.line_start(start)
        indent = " " * self.text.column(start)
        comments = self._comments(self.text.line_end(start), self.behind(end), parts)
        kept = "".join(f"{indent}{comment}\n" for comment in comments)
        self.replace(place, self.behind(end), kept)
        for part in parts:
            self.forget(part)

    def forget(self, node: nodes.Node) -> None:
        """Its anchors are there no more."""
        for part in node.all():
            if part.anchor:
                self.anchored[id(part)] = GONE

    def _comments(self, start: int, end: int, parts: list[nodes.Node]) -> list[str]:
        scalars = [part for each in parts for part in each.all() if part.kind is nodes.Kind.SCALAR]
        spans = sorted((part.begin, part.end) for part in scalars)
        found = []
        while start < end:
            line = self.text.text[start : self.text.line_end(start)].strip()
            before = bisect.bisect_left(spans, (start, 0)) - 1
            is_inside = before >= 0 and start < spans[before][1]
            if line.startswith("#") and not is_inside:
                found.append(line)
            start = self.text.line_end(start)
        return found

    def made(self, start: int = 0, end: int | None = None) -> str:
        """The text with the changes.

        Raises:
            nodes.Uneditable: two of them are in each other's way.
        """
        text = self.text.text
        kept: list[str] = []
        at = start
        for change in sorted(self._changes, key=lambda each: (each.start, each.end, -each.depth)):
            if change.start < at:
                raise nodes.Uneditable(
                    f"line {self.text.line(change.start)}: two changes are in one place"
                )
            kept += (text[at : change.start], change.text.replace("\n", self.text.newline))
            at = change.end
        return "".join((*kept, text[at:end]))
