"""Where the values of a JSON text stand."""

import json
import re

from dra_driver.adapters.console import nodes

_SPACE = re.compile(r"[ \t\r\n]*+")
_SCALAR = re.compile(r"-?[0-9][0-9eE+.\-]*+|true|false|null")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def documents(text: str) -> list[nodes.Document]:
    """The documents of a text that has been read as JSON: one or several values.

    Raises:
        nodes.Uneditable: it is no JSON after all.
    """
    found = []
    at = _space(text, 0)
    while at < len(text):
        root = _Reader(text).value(at)
        found.append((at, root))
        at = _space(text, root.end)
    ends = [start for start, _ in found[1:]] + [len(text)]
    return [
        nodes.Document(start, start, end, root)
        for (start, root), end in zip(found, ends, strict=True)
    ]


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int) -> nodes.Node:
        match self._text[at : at + 1]:
            case "{":
                return self._object(at)
            case "[":
                return self._list(at)
            case '"':
                return self._scalar(at, _STRING)
        return self._scalar(at, _SCALAR)

    def _scalar(self, at: int, shape: re.Pattern[str]) -> nodes.Node:
        found = shape.match(self._text, at)
        if found is None:
            raise nodes.Uneditable(f"character {at + 1}: no value of JSON is there")
        return nodes.Node(nodes.Kind.SCALAR, at, found.end(), at)

    def _object(self, start: int) -> nodes.Node:
        node = nodes.Node(nodes.Kind.OBJECT, start, start, start, is_flow=True)
        at = _space(self._text, start + 1)
        while self._text[at : at + 1] != "}":
            key = self._scalar(at, _STRING)
            at = _space(self._text, self._after(_space(self._text, key.end), ":"))
            value = self.value(at)
            name = json.loads(self._text[key.start : key.end], strict=False)
            node.entries.append(nodes.Entry(key, name, value))
            at = self._next(value.end, "}")
        node.end = at + 1
        return node

    def _list(self, start: int) -> nodes.Node:
        node = nodes.Node(nodes.Kind.LIST, start, start, start, is_flow=True)
        at = _space(self._text, start + 1)
        while self._text[at : at + 1] != "]":
            node.items.append(self.value(at))
            at = self._next(node.items[-1].end, "]")
        node.end = at + 1
        return node

    def _next(self, at: int, closing: str) -> int:
        """Where the next part begins, or the bracket that closes."""
        at = _space(self._text, at)
        if self._text[at : at + 1] == closing:
            return at
        return _space(self._text, self._after(at, ","))

    def _after(self, at: int, wanted: str) -> int:
        if self._text[at : at + 1] != wanted:
            raise nodes.Uneditable(f"character {at + 1}: {wanted} is expected there")
        return at + 1
