"""Values of JSON as text of YAML or JSON, in the style of what stands beside them."""

import dataclasses
import json
import re
from typing import Any

from dra_driver.adapters.console import yaml_scalars

_INDICATORS = frozenset("-?:,[]{}#&*!|>'\"%@`=<~")
"""What a scalar without quotes does not begin with here."""
_DATE_LIKE = re.compile(r"[-+.0-9][-+.:0-9_eETZ ]*")
"""Others read some of these as dates, times or numbers."""
_PRINTED = r"\x20-\x7e\xa1-\u2027\u202a-\ud7ff\ue000-\ufefe\U00010000-\U0010ffff"
"""What YAML takes as it is: without controls, separators of lines and marks of byte order."""
_UNSAFE = re.compile(rf": |:$| #|^\s|\s$|[^{_PRINTED}]")
_FLOW_UNSAFE = re.compile(r"[,\[\]{}]|:(?=\S)")
_PRINTABLE = re.compile(rf"[{_PRINTED}\n]*")
_LONG = 60
"""Characters: a text with quotes that is longer is easier to read in a block of its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How a document is written. `step`, `dash`: spaces before what is in an object, and before the
    dashes of a list in it. `is_json`: all texts in quotes, and no blocks.
    """

    step: int = 2
    dash: int = 0
    is_json: bool = False
    unit: str = ""
    """Of JSON: what one more level is indented by; empty: it is all in one line."""
    colon: str = ": "
    comma: str = ", "


def lines(value: Any, style: Style) -> list[str]:
    """An object or a list that is not empty, in block style."""
    if isinstance(value, dict):
        return [line for key, inner in value.items() for line in entry(key, inner, style)]
    return [line for inner in value for line in item(inner, style)]


def entry(key: str, value: Any, style: Style) -> list[str]:
    """A key and its value, in block style."""
    head = f"{scalar(key)}:"
    if _is_block(value):
        indent = style.step if isinstance(value, dict) else style.dash
        return [head, *indented(lines(value, style), indent)]
    first, *rest = _inline(value)
    return [f"{head} {first}", *indented(rest, style.step)]


def item(value: Any, style: Style, gap: int = 1) -> list[str]:
    """A dash and its value, in block style; `gap`: spaces behind the dash."""
    first, *rest = lines(value, style) if _is_block(value) else _inline(value)
    return [f"-{' ' * gap}{first}", *indented(rest, gap + 1)]


def indented(texts: list[str], columns: int) -> list[str]:
    """Lines further to the right; empty ones stay empty."""
    return [" " * columns + text if text else text for text in texts]


def flow(value: Any, style: Style, level: str = "") -> str:
    """A value in flow style; with a `unit` in several lines, of which those behind the first are
    indented by `level`.
    """
    if isinstance(value, dict | list) and value:
        inner = level + style.unit
        parts = (
            [
                f"{_flow_scalar(key, style)}{style.colon}{flow(part, style, inner)}"
                for key, part in value.items()
            ]
            if isinstance(value, dict)
            else [flow(part, style, inner) for part in value]
        )
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        if not style.unit:
            return f"{opening}{style.comma.join(parts)}{closing}"
        joined = f",\n{inner}".join(parts)
        return f"{opening}\n{inner}{joined}\n{level}{closing}"
    return _flow_scalar(value, style)


def scalar_or_flow(value: Any) -> str:
    """A value in one line, as it may stand behind a key in block style."""
    if isinstance(value, dict | list):
        return flow(value, Style())
    return scalar(value)


def scalar(value: Any) -> str:
    """A text, number, truth value or null in one line, as YAML in block style."""
    if not isinstance(value, str):
        return json.dumps(value)
    if is_plain(value):
        return value
    if "'" not in value and value.isprintable() and ('"' in value or "\\" in value):
        return f"'{value}'" if _PRINTABLE.fullmatch(value) else _quoted(value)
    return _quoted(value)


def is_plain(text: str) -> bool:
    """Whether a text may be written in block style without quotes."""
    if not text or text[0] in _INDICATORS or _UNSAFE.search(text) or text.startswith("..."):
        return False
    if _DATE_LIKE.fullmatch(text):
        return False
    try:
        return yaml_scalars.plain(text) == text
    except yaml_scalars.Unknown:
        return False


def _flow_scalar(value: Any, style: Style) -> str:
    if not isinstance(value, str) or style.is_json:
        return json.dumps(value, ensure_ascii=False) if _is_clean(value) else json.dumps(value)
    return value if is_plain(value) and not _FLOW_UNSAFE.search(value) else _quoted(value)


def _is_clean(value: Any) -> bool:
    return not isinstance(value, str) or bool(_PRINTABLE.fullmatch(value))


def _quoted(text: str) -> str:
    """In double quotes; what YAML does not take as it is, is escaped as JSON does it."""
    return json.dumps(text, ensure_ascii=not _PRINTABLE.fullmatch(text))


def _is_block(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _inline(value: Any) -> list[str]:
    """A scalar, or an empty object or list; a text of several lines as a block."""
    if isinstance(value, str) and not is_plain(value) and _fits_block(value):
        chomp = "" if value.endswith("\n") else "-"
        return [f"|{chomp}", *value.removesuffix("\n").split("\n")]
    return [json.dumps(value) if isinstance(value, dict | list) else scalar(value)]


def _fits_block(text: str) -> bool:
    if not _PRINTABLE.fullmatch(text):
        return False
    several = "\n" in text.strip("\n")
    if not several and not (len(text) > _LONG and ("'" in text or '"' in text)):
        return False
    inner = text.removesuffix("\n").split("\n")
    return bool(inner[0].strip() and inner[-1].strip()) and not text.startswith((" ", "\t"))
