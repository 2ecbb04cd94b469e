"""Functions on strings. They count characters, not bytes.

Source: cel-go `ext/strings.go`, version 2.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import formatting, patterns, values

# What Go's unicode.IsSpace knows; Python's str.strip() would take the ASCII separators as well.
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_text = values.text


def _char_at(text: str, index: int) -> str:
    return _text(text)[_position(index, text) :][:1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    """Where `part` first occurs at or after `offset`; -1 if it does not."""
    return _text(text).find(_text(part), _position(offset, text))


def last_index_of(text: str, part: str, offset: int | None = None) -> int:
    """Where `part` last occurs at or before `offset`; -1 if it does not."""
    end = len(_text(text)) if offset is None else _position(offset, text)
    return text.rfind(_text(part), 0, end + len(part))


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    limit = max(values.integer(limit), -1)
    count = _text(text).count(_text(old))
    values.afford(len(text) + len(_text(new)) * (count if limit < 0 else min(count, limit)))
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if values.integer(limit) == 0:
        return []
    if _text(separator):
        return _text(text).split(separator, max(limit - 1, -1))
    pieces = list(_text(text))
    return pieces if limit < 0 else [*pieces[: limit - 1], "".join(pieces[limit - 1 :])][:limit]


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(_text(text)) if end is None else _position(end, text)
    if _position(start, text) > stop:
        raise values.CallError(f"invalid substring range: start {start}, end {stop}")
    return text[start:stop]


def _join(items: list[str], separator: str = "") -> str:
    texts = [_text(item) for item in values.items(items)]
    values.afford(sum(map(len, texts)) + len(texts) * len(_text(separator)))
    return separator.join(texts)


def _position(index: int, text: str) -> int:
    if not 0 <= values.integer(index) <= len(text):
        raise values.CallError(f"index out of range: {index}")
    return index


GLOBALS: Mapping[str, Callable[..., Any]] = {"strings.quote": formatting.quote}
METHODS: Mapping[str, Callable[..., Any]] = {
    "matches": patterns.matches,
    "find": patterns.find,
    "findAll": patterns.find_all,
    "contains": lambda text, part: _text(part) in _text(text),
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "charAt": _char_at,
    "lowerAscii": lambda text: _text(text).translate(_LOWER),
    "upperAscii": lambda text: _text(text).translate(_UPPER),
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "trim": lambda text: _text(text).strip(_SPACE),
    "join": _join,
    "format": formatting.expand,
}
