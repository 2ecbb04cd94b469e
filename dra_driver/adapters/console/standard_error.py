"""The one door to standard error for what is no line of the log: a person may be reading it.

It loads nothing: it tells of what kept everything else from being loaded.
"""

import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator

from dra_driver.model import texts

_MOST_BYTES = 4 * texts.MOST_BYTES
"""Of one message: it may have the ends of several logs in it."""
_MOST_LINE = 1024
_MOST_LINES = 200
"""Bytes of a line of a trace, and lines: the last one says what happened."""


def say(text: str) -> None:
    """Print a line, or several."""
    _print(texts.told(text, _MOST_BYTES))


def trace(error: BaseException) -> None:
    """Print where an exception came from."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    _print("\n".join(texts.told(line, _MOST_LINE) for line in lines[-_MOST_LINES:]))


@contextlib.contextmanager
def of_threads() -> Iterator[None]:
    """In the block exceptions that end a thread are told here, too."""
    before, threading.excepthook = threading.excepthook, _ended
    try:
        yield
    finally:
        threading.excepthook = before


def _print(text: str) -> None:
    # A terminal that has gone hears nothing, and is no second error.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _ended(caught: threading.ExceptHookArgs) -> None:
    if caught.exc_value is not None and not issubclass(caught.exc_type, SystemExit):
        say(f"in thread {caught.thread.name if caught.thread else 'that has ended'}:")
        trace(caught.exc_value)
