"""What a person reads: tables and progress. Colours on a terminal, plain text in a pipe."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence

import rich.box
import rich.console
import rich.markup
import rich.status
import rich.table

PIPE_WIDTH = 180
"""Columns where there is no terminal to ask."""

_PLAIN = rich.box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""A line under the heads, and nothing else."""

Cell = str | tuple[str, str]
"""Text, or text and a style such as `green`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """A table with a title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Sequence[Cell], ...]


class Terminal:
    """Results go to standard output, progress to standard error."""

    def __init__(self) -> None:
        self._out = _console(sys.stdout.isatty(), stderr=False)
        self._err = _console(sys.stderr.isatty(), stderr=True)

    def table(self, table: Table) -> None:
        """Print a table."""
        drawn = rich.table.Table(
            title=table.title,
            title_justify="left",
            title_style="bold",
            box=rich.box.SIMPLE_HEAD if self._out.is_terminal else _PLAIN,
            pad_edge=False,
        )
        for column in table.columns:
            drawn.add_column(column, overflow="fold")
        for row in table.rows:
            drawn.add_row(*(_text(cell) for cell in row))
        self._out.print(drawn)

    def say(self, text: str) -> None:
        """Print a line of the result."""
        self._out.print(rich.markup.escape(text), soft_wrap=True)

    def step(self, text: str) -> None:
        """Print a line of progress that stays."""
        self._err.print(rich.markup.escape(text), soft_wrap=True, style="dim")

    @contextlib.contextmanager
    def progress(self, text: str) -> Iterator["Progress"]:
        """Show what is being waited for; on a terminal the line changes in place."""
        if self._err.is_terminal:
            with self._err.status(rich.markup.escape(text)) as status:
                yield Progress(status)
        else:
            self.step(text)
            yield Progress(None)


class Progress:
    """A line of progress that changes."""

    def __init__(self, status: rich.status.Status | None) -> None:
        self._status = status

    def update(self, text: str) -> None:
        """Say how far it is."""
        if self._status is not None:
            self._status.update(rich.markup.escape(text))


def _console(is_terminal: bool, *, stderr: bool) -> rich.console.Console:
    return rich.console.Console(
        stderr=stderr, highlight=False, width=None if is_terminal else PIPE_WIDTH
    )


def _text(cell: Cell) -> str:
    if isinstance(cell, tuple):
        text, style = cell
        return f"[{style}]{rich.markup.escape(text)}[/{style}]"
    return rich.markup.escape(cell)
