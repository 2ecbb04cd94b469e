"""Regular expressions as cel-go has them: RE2, so no look-around and no back-references."""

import functools
from typing import Any

import re2

from dra_driver.logic.cel import values


@functools.lru_cache(maxsize=256)
def compile(pattern: str) -> Any:  # noqa: A001 - as `re.compile`
    """The compiled pattern.

    Raises:
        values.CallError: it is none that RE2 knows.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise values.CallError(f"error parsing regexp {pattern!r}: {text}") from error


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern occurs anywhere in the text."""
    return compile(values.text(pattern)).search(values.text(text)) is not None


def find(text: str, pattern: str) -> str:
    """The first occurrence; empty if there is none."""
    found = compile(values.text(pattern)).search(values.text(text))
    return found[0] if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Up to `limit` occurrences that do not overlap; all if it is negative.

    As in Go, one that is empty and touches the one before does not count.
    """
    found: list[str] = []
    end = -1
    for match in compile(values.text(pattern)).finditer(values.text(text)):
        if match.end() > end or not found:
            found.append(match[0])
        end = match.end()
    return found if values.integer(limit) < 0 else found[:limit]
