"""What an MPS control daemon says, in a file of its own that does not grow without end."""

import os
import pathlib
import re
from typing import IO

_LAST_LINES = 3
_LAST_BYTES = 4096
_LONGEST = 400
_TIME = re.compile(r"^\[\d{4}-[^\]]*\]\s*")
"""What the program puts before each line: the time, its part, its pid."""


class Log:
    """The log of one daemon, which appends to it."""

    def __init__(self, path: pathlib.Path) -> None:
        """Its directory must exist; the file need not."""
        self._path = path
        self._begun = 0

    def open(self) -> IO[bytes]:
        """For a daemon that is started now; what it says is told from that of earlier ones.

        Raises:
            OSError: the file cannot be written.
        """
        output = self._path.open("ab")
        self._begun = output.tell()
        return output

    def last_words(self) -> str:
        """The end of what the daemon said that was started last, on one line, for a message."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begun = self._begun if self._begun <= size else 0
                file.seek(max(begun, size - _LAST_BYTES))
                text = file.read(_LAST_BYTES).decode(errors="replace")
        except OSError as error:
            return f"its log cannot be read: {error}"
        return f"its log ends with: {last_lines(text) or 'nothing'}"


def last_lines(text: str) -> str:
    """The last lines of a text as one, without their times, and with nothing that is no text."""
    lines = [_TIME.sub("", line).strip() for line in text.splitlines()]
    shown = " | ".join([line for line in lines if line][-_LAST_LINES:])
    printable = "".join(letter if letter.isprintable() else "?" for letter in shown)
    return printable if len(printable) <= _LONGEST else f"…{printable[1 - _LONGEST :]}"
