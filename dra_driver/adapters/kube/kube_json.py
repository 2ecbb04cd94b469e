"""The JSON of an API server, whatever users have put into it.

`opaque.parameters` of a claim and `data` of its `status.devices` are kept as the bytes that came,
if Go's decoder takes them: nested up to 10000 deep, with bytes that are no UTF-8 and with halves of
surrogate pairs (sigs.k8s.io/json, `internal/golang/encoding/json`: `maxNestingDepth`, `unquote`).
Whoever may make a claim may have such bytes in every list of claims: they must keep nobody from
reading the rest.
"""

import json
import re
from typing import Any

DEEPEST = 100
"""How deep values are nested that are read whole; no object of the API comes near."""

# A text without an end goes to the end: else the search would begin again at each quote in it.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\."
)
_HALF = len(r"\ud800")


def read(data: bytes) -> Any:
    """The value. What Python cannot read is replaced: in texts by U+FFFD, nested too deep by null.

    Raises:
        ValueError: it is no JSON.
    """
    text = data.decode(errors="replace")
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(_whole, text)
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(shallow(text))


def _whole(escape: re.Match[str]) -> str:
    text = escape[0]
    return r"\ufffd" if len(text) == _HALF else text


def shallow(text: str) -> str:
    """The same JSON with null for what is nested deeper than `DEEPEST`."""
    kept: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in {"[", "{"}:
            depth += 1
            if depth == DEEPEST + 1:
                kept += (text[start : token.start()], "null")
        elif token[0] in {"]", "}"}:
            if depth == DEEPEST + 1:
                start = token.end()
            depth -= 1
    return "".join((*kept, text[start:]))
