"""What stands in a line of the log, and where lines go.

What a line tells may have been chosen by a user of the cluster, and comes again with each retry:
how much of it there is is limited here, whoever logs it.
"""

import contextlib
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

from dra_driver.model import texts

TRACE = "exception"
"""The field with the trace of an exception."""
_MOST_ITEMS = 100
"""Of a list in a field, and lines of a trace."""
_MOST_LINE = 1024
"""Bytes of a line of a trace."""


def capped(
    _logger: Any, _method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The fields with all texts cut to their length; see `texts.capped`."""
    return {
        name: _trace(value) if name == TRACE and isinstance(value, str) else _short(value)
        for name, value in fields.items()
    }


def printable(
    _logger: Any, _method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The fields for a terminal; what is no text is quoted by who writes it."""
    return {
        texts.printable(name): texts.printable(value) if isinstance(value, str) else value
        for name, value in fields.items()
    }


class Stream:
    """Where lines are written.

    A full disk, or a reader that has gone, is no reason to give up what a line would tell of: half
    a prepare, or a daemon's clients. The line is lost.
    """

    def __init__(self, stream: TextIO) -> None:
        """Lines go to this stream."""
        self._stream = stream

    def write(self, text: str) -> None:
        """One line."""
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Have it written now."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def _short(value: Any) -> Any:
    match value:
        case str():
            return texts.capped(value)
        case list() | tuple():
            left = len(value) - _MOST_ITEMS
            more = [f"and {left} more"] if left > 0 else []
            return [*map(_short, value[:_MOST_ITEMS]), *more]
        case Mapping():
            return {name: _short(inner) for name, inner in value.items()}
    return value


def _trace(text: str) -> str:
    """Its last lines: the very last one says what happened."""
    return "\n".join(texts.capped(line, _MOST_LINE) for line in text.splitlines()[-_MOST_ITEMS:])
