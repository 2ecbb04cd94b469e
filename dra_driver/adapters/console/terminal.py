"""What a person reads: tables, blocks and progress. Colours on a terminal, plain text in a pipe."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence

import rich.box
import rich.console
import rich.status
import rich.table
import rich.text

from dra_driver.model import texts

PIPE_WIDTH = 120
"""Columns where there is no terminal to ask."""

_PLAIN = rich.box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""A line under the heads, and nothing else."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spans:
    """Text whose parts have styles of their own: (text, style) each."""

    parts: tuple[tuple[str, str], ...]


Cell = str | tuple[str, str] | Spans
"""Text, text and a style such as `green`, or several of these."""


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table with a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Sequence[Cell], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A title, with lines below it that are never broken: what they hold can be copied."""

    title: tuple[Cell, ...]
    lines: tuple[str, ...]


class Terminal:
    """Results go to standard output, progress to standard error."""

    def __init__(self) -> None:
        self._out = _console(sys.stdout.isatty(), stderr=False)
        self._err = _console(sys.stderr.isatty(), stderr=True)

    @property
    def width(self) -> int:
        """Columns of a line of the result."""
        return self._out.width

    def table(self, table: Table) -> None:
        """Print a table."""
        drawn = rich.table.Table(
            box=rich.box.SIMPLE_HEAD if self._out.is_terminal else _PLAIN,
            show_edge=False,
            pad_edge=False,
        )
        for column in table.columns:
            drawn.add_column(_text(column), overflow="fold")
        for row in table.rows:
            drawn.add_row(*(_text(cell) for cell in row))
        with self._out.capture() as captured:
            self._out.print(drawn)
        self._line(_text((table.title, "bold")))
        for line in captured.get().splitlines():
            # Columns are filled up with spaces: a pipe gets none at the end of a line.
            self._line(rich.text.Text.from_ansi(line.rstrip()))
        self._line(rich.text.Text())

    def block(self, block: Block) -> None:
        """Print a block."""
        self._line(rich.text.Text.assemble(*(_text(cell) for cell in block.title)))
        for line in block.lines:
            self._line(_text(f"  {line}"))

    def say(self, text: str) -> None:
        """Print a line of the result."""
        self._line(_text(text))

    def document(self, text: str) -> None:
        """Print JSON: all of it, whatever its length."""
        self._line(rich.text.Text(texts.printable(text)))

    def raw(self, text: str) -> None:
        """Print a file: in a pipe byte for byte."""
        if self._out.is_terminal:
            self.document(text.removesuffix("\n"))
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()

    def step(self, text: str) -> None:
        """Print a line of progress that stays."""
        self._err.print(_text((text, "dim")), soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, text: str) -> Iterator["Progress"]:
        """Show what is being waited for; on a terminal the line changes in place."""
        if self._err.is_terminal:
            with self._err.status(_text(text)) as status:
                yield Progress(status)
        else:
            self.step(text)
            yield Progress(None)

    def _line(self, text: rich.text.Text) -> None:
        self._out.print(text, soft_wrap=True)


class Progress:
    """A line of progress that changes."""

    def __init__(self, status: rich.status.Status | None) -> None:
        self._status = status

    def update(self, text: str) -> None:
        """Say how far it is."""
        if self._status is not None:
            self._status.update(_text(text))


def _console(is_terminal: bool, *, stderr: bool) -> rich.console.Console:
    return rich.console.Console(
        stderr=stderr,
        highlight=False,
        width=None if is_terminal else PIPE_WIDTH,
    )


def _text(cell: Cell) -> rich.text.Text:
    # Never a plain string: rich would take what looks like markup or an emoji's name for one.
    if isinstance(cell, Spans):
        return rich.text.Text.assemble(*map(_text, cell.parts))
    text, style = cell if isinstance(cell, tuple) else (cell, "")
    # Users choose parts of what others read.
    return rich.text.Text(texts.told(text), style=style)
