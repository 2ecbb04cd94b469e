"""The values that literals of an expression stand for.

Source: https://github.com/google/cel-spec/blob/master/doc/langdef.md#string-and-bytes-values
"""

import re
from typing import Any

from dra_driver.logic.cel import values

_PREFIXED = re.compile(
    r"(?P<prefix>[rRbB]*)(?P<quote>\"\"\"|'''|[\"'])(?P<body>.*)(?P=quote)", re.DOTALL
)
_ESCAPE = re.compile(
    r"""\\(?:(?P<plain>[abfnrtv"'`\\?])|(?P<octal>[0-3][0-7]{2})|[xX](?P<hex>[0-9a-fA-F]{2})"""
    r"""|(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))|(?P<wrong>.?))""",
    re.DOTALL,
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LiteralError(ValueError):
    """A literal that stands for no value; `position` is an offset into the expression."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text)
        self.position = position


def value(kind: str, text: str, position: int) -> Any:
    """The value of a token of celpy's grammar: its type, its text, where it starts.

    Raises:
        LiteralError: a number out of range, an escape that does not exist.
    """
    try:
        match kind:
            case "INT_LIT":
                return values.int64(_integer(text))
            case "UINT_LIT":
                # Nothing unsigned is negated, not even 0.
                return values.uint64(-1 if text.startswith("-") else _integer(text[:-1]))
            case "FLOAT_LIT":
                return float(text)
            case _:
                return _string(text, position)
    except values.CallError as error:
        raise LiteralError(f"invalid literal {text}: {error}", position) from error


def _integer(text: str) -> int:
    try:
        return int(text, 16 if "x" in text else 10)
    except ValueError as error:
        # Python reads no more than some thousand decimal digits.
        raise values.CallError("integer overflow") from error


def _string(text: str, position: int) -> str | bytes:
    found = _PREFIXED.fullmatch(text)
    if found is None:
        raise LiteralError(f"invalid literal {text}", position)
    prefix, body = found["prefix"].lower(), found["body"]
    raw, quote = "r" in prefix, found["quote"]
    if not raw and body.endswith("\\") and (len(body) - len(body.rstrip("\\"))) % 2:
        raise LiteralError(f"the string is not closed: its last {quote} is escaped", position)
    if "b" in prefix:
        return body.encode() if raw else _bytes(body, position)
    return body if raw else _ESCAPE.sub(lambda escape: _character(escape, position), body)


def _character(escape: re.Match[str], position: int) -> str:
    if escape["plain"]:
        return _PLAIN.get(escape["plain"], escape["plain"])
    code = _code(escape, position)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise LiteralError(f"{escape[0]} is no character", position)
    return chr(code)


def _bytes(body: str, position: int) -> bytes:
    pieces, end = [], 0
    for escape in _ESCAPE.finditer(body):
        pieces.append(body[end : escape.start()].encode())
        wide = escape["plain"] or escape["short"] or escape["long"]
        character = _character(escape, position).encode() if wide else None
        pieces.append(character or bytes([_code(escape, position)]))
        end = escape.end()
    return b"".join([*pieces, body[end:].encode()])


def _code(escape: re.Match[str], position: int) -> int:
    if escape["wrong"] is not None:
        raise LiteralError(
            f"unknown escape {escape[0]!r}: write r'...' or double the backslash", position
        )
    if escape["octal"]:
        return int(escape["octal"], 8)
    return int(escape["hex"] or escape["short"] or escape["long"], 16)
