"""Texts that somebody else has chosen parts of: how much of them is told, and what is shown instead
of characters that steer a terminal.

Users of the cluster choose names, selectors and configs; what is said of them goes into events,
logs and statuses of others, again with every retry.
"""

import json
import unicodedata
from collections.abc import Sequence

MOST_BYTES = 4096
"""Bytes of UTF-8 of one text: in an answer to the kubelet, in a field of a log line, in a message
of the webhook."""
MOST_PROBLEMS = 10
"""Problems in one text; the others are counted."""
_MOST_JOINED = MOST_BYTES - 512
"""Bytes of problems that are joined: there is room for what is said of them before and after."""
_LONGEST_CHARACTER = 6
"""Bytes: half a character is written as `\\ud800`."""
_PLAIN = "\n\t"
_STEERING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""General categories (Unicode, chapter 4.5): controls; formats, among them those that turn the
direction of writing, and those without width; halves of characters; separators of lines."""


def capped(text: str, most: int = MOST_BYTES) -> str:
    """The text in at most `most` bytes: of a longer one the beginning, and how much is left out."""
    if len(text) <= most // _LONGEST_CHARACTER or len(_encoded(text)) <= most:
        return text
    room = most - len(_encoded(_left_out(len(text))))
    shown = _encoded(text[:room])[: max(room, 0)].decode("utf-8", "ignore")
    return shown + _left_out(len(text) - len(shown))


def told(text: str, most: int = MOST_BYTES) -> str:
    """The text as it may leave the driver: printable, and capped."""
    return capped(printable(text), most)


def joined(texts: Sequence[str], *, more: int = 0, most: int = MOST_PROBLEMS) -> str:
    """Problems in one text, `a; b; and 3 more problems`, which leaves room for a head of 512 bytes.

    It is printable. `more` problems have been left out before.
    """
    parts: list[str] = []
    room = _MOST_JOINED
    for text in texts[:most]:
        shown = told(text, _MOST_JOINED // 2)
        room -= len(_encoded(shown))
        if room < 0:
            break
        parts.append(shown)
    left = len(texts) - len(parts) + more
    return "; ".join([*parts, *([f"and {_counted(left)}"] if left else [])])


def quoted(value: object, most: int = 100) -> str:
    """A value as `repr` has it, of a long one the beginning: for what a message refuses."""
    if isinstance(value, str) and len(value) > most:
        return repr(value[:most]) + _left_out(len(value) - most)
    return capped(repr(value), 2 * most)


def printable(text: str) -> str:
    r"""The text for a terminal: what would steer it is written as JSON writes it, `\u001b`.

    Lines and tabs stay. What was JSON before still is, with the same meaning.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)


class _Shown(dict[int, str]):
    """What is shown for a character, by its number; found out when one is met."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        steers = unicodedata.category(character) in _STEERING and character not in _PLAIN
        shown = self[number] = json.dumps(character)[1:-1] if steers else character
        return shown


_SHOWN = _Shown()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _left_out(count: int) -> str:
    return f"… ({count} more characters)"


def _counted(count: int) -> str:
    return "1 more problem" if count == 1 else f"{count} more problems"
