"""JSONPath, as far as the columns of custom resources need it.

Fields (`.spec.size`, `['a.b']`), positions (`[0]`, `[-1]`, `[*]`) and filters that compare a field
with a text or a number (`[?(@.type=="Ready")]`). Source: `client-go/util/jsonpath`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import texts

_STEP = re.compile(
    r"""\.(?P<name>(?:[^.\[\]\\{}\s]|\\.)+)
    |\[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]
    |\[(?P<index>-?\d+)\]
    |(?P<all>\[\*\])
    |\[\?\(\s*@(?P<field>(?:\.(?:[^.\[\]\\{}\s=!<>]|\\.)+)+)\s*(?P<operator>==|!=)\s*
      (?P<value>'[^']*'|"[^"]*"|-?\d+|true|false)\s*\)\]""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")

Step = Callable[[Any], Iterator[Any]]


class Path:
    """A path; safe to share between threads."""

    def __init__(self, text: str) -> None:
        """Read a path, without braces.

        Raises:
            errors.Rejected: it is none, or has what is not supported here.
        """
        self._steps = tuple(_steps(text))

    def first(self, body: Any) -> tuple[Any, ...]:
        """The first value that it leads to; nothing where there is none."""
        found: Sequence[Any] = [body]
        for step in self._steps:
            found = [below for value in found for below in step(value)]
        return tuple(found[:1])


def shown(value: Any) -> str:
    """A value as a text of a table."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _steps(text: str) -> Iterator[Step]:
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            shown_text = texts.quoted(text)
            raise errors.Rejected(
                f"{shown_text}: at character {place + 1}: allowed are .FIELD, ['FIELD'], [NUMBER], "
                '[*] and [?(@.FIELD=="TEXT")]'
            )
        yield _step(step)
        place = step.end()
    if not text.startswith((".", "[")):
        raise errors.Rejected("must be a simple json path starting with .")


def _step(step: re.Match[str]) -> Step:
    if (name := step["name"]) is not None:
        return _field(_ESCAPE.sub(r"\1", name))
    if (quoted := step["quoted"]) is not None:
        return _field(_ESCAPE.sub(r"\1", quoted[1:-1]))
    if (index := step["index"]) is not None:
        return _item(int(index))
    if step["all"]:
        return _each
    names = [_ESCAPE.sub(r"\1", part) for part in step["field"][1:].split(".")]
    return _filter(names, step["operator"] == "==", _literal(step["value"]))


def _literal(text: str) -> Any:
    return text[1:-1] if text[0] in "'\"" else json.loads(text)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if name == "*":
            yield from _each(value)
        elif isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _item(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _filter(names: Sequence[str], equal: bool, wanted: Any) -> Step:
    inner = [_field(name) for name in names]

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found: Sequence[Any] = [item]
            for field in inner:
                found = [below for one in found for below in field(one)]
            if found and (found[0] == wanted) is equal:
                yield item

    return step
