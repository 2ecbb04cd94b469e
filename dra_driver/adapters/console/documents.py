"""YAML and JSON files: settings and manifests, understood as kubectl understands them.

A file of a few lines can stand for gigabytes: an alias repeats what it names, which may have
aliases in it. And what is nested deeply enough ends any program that goes down into it. So there
are limits, and a file that is beyond them is refused before it is more than it was.
"""

import copy
import dataclasses
import io
import json
import pathlib
import re
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import yaml

from dra_driver import errors
from dra_driver.adapters.console import yaml_depth, yaml_scalars
from dra_driver.adapters.kube import kube_json

MOST_BYTES = 256 * 2**20
"""Of a file: the slices of a thousand nodes whose GPUs can be cut are about as large."""
MOST_SETTINGS = 2**20
"""Bytes of a settings file."""
MOST_DEPTH = kube_json.DEEPEST
"""Objects and lists inside each other; Kubernetes' own have less than 30."""
MOST_REPEATED = 100_000
"""Values that all aliases of a file stand for."""

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NESTING = "maximum nesting depth"
"""What libyaml says of more than a thousand."""
_KINDS = {
    yaml.BlockSequenceStartToken: yaml_depth.Kind.INDENTED,
    yaml.BlockMappingStartToken: yaml_depth.Kind.INDENTED,
    yaml.BlockEndToken: yaml_depth.Kind.DEDENTED,
    yaml.FlowSequenceStartToken: yaml_depth.Kind.OPENED,
    yaml.FlowMappingStartToken: yaml_depth.Kind.OPENED,
    yaml.FlowSequenceEndToken: yaml_depth.Kind.CLOSED,
    yaml.FlowMappingEndToken: yaml_depth.Kind.CLOSED,
}
_SPACE = re.compile(r"\s*+")
_TAGS = "tag:yaml.org,2002:"


class _Problem(ValueError):  # noqa: N818 - what it is, for who reads the file
    """What is wrong with a document; the line counts from 0."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text if line is None else f"line {line + 1}: {text}")


def load_one(path: pathlib.Path) -> Any:
    """The single document in a settings file; None where it is empty.

    Raises:
        errors.Fatal: it cannot be read, is no YAML, or is beyond a limit.
    """
    documents = _load(path, MOST_SETTINGS)
    if len(documents) > 1:
        raise errors.Fatal(f"{path}: one YAML document is expected, it has {len(documents)}")
    return documents[0] if documents else None


def load_all(path: pathlib.Path, *, cuts: bool = False) -> list[Any]:
    """The documents in a file that are not empty.

    With `cuts` there is null for what is nested too deeply: in the objects of a cluster that
    somebody has saved, those of one user must keep nobody from reading the rest.

    Raises:
        errors.Fatal: it cannot be read, is no YAML, or is beyond a limit.
    """
    return _load(path, MOST_BYTES, cuts=cuts)


def read(file: IO[bytes], most: int) -> str:
    """The text of a file, with what it begins with.

    Raises:
        ValueError: it is larger than `most` bytes, or is no UTF-8.
        OSError: it cannot be read.
    """
    content = file.read(most + 1)
    if len(content) > most:
        raise _Problem(f"it has more than the {most} bytes that are allowed")
    return content.decode("utf-8")


def of_text(text: str) -> list[Any]:
    """The documents of a text, with None for the empty ones.

    Raises:
        ValueError: it is no YAML, or is beyond a limit; the text tells the line.
    """
    try:
        return list(_documents(text, cuts=False))
    except (RecursionError, yaml.YAMLError) as error:
        raise _Problem(_reason(error)) from error


def is_json(text: str) -> bool:
    """Whether a text that has been read before is JSON, and not YAML with brackets."""
    try:
        return text.lstrip().startswith("{") and bool(list(_of_json(text)))
    except json.JSONDecodeError:
        return False


def _load(path: pathlib.Path, most: int, *, cuts: bool = False) -> list[Any]:
    try:
        with path.open("rb") as file:
            text = read(file, most).removeprefix("\ufeff")
        return [document for document in _documents(text, cuts) if document is not None]
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise errors.Fatal(f"{path} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError) or _NESTING in str(error):
        return _TOO_DEEP
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        context = f" {error.context}" if error.context else ""
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}:{context}: {error.problem}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.position + 1}: {error.reason}"
    return str(error)


_TOO_DEEP = f"more than {MOST_DEPTH} objects and lists are inside each other"


def _documents(text: str, cuts: bool) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            yield from list(_of_json(kube_json.shallow(text) if cuts else text))
        except json.JSONDecodeError:
            # Objects of YAML may begin like that, too.
            pass
        else:
            return
    yield from _of_yaml(text, cuts)


def _of_json(text: str) -> Iterator[Any]:
    """Documents of JSON, one after the other."""
    decoder = json.JSONDecoder(
        parse_int=yaml_scalars.of_json, parse_float=yaml_scalars.of_json, parse_constant=_no_number
    )
    start = _behind_space(text, 0)
    while start < len(text):
        document, end = decoder.raw_decode(text, start)
        _check_depth(document)
        yield document
        start = _behind_space(text, end)


def _behind_space(text: str, start: int) -> int:
    # No copy of what follows: there may be very many documents.
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _no_number(text: str) -> NoReturn:
    raise json.JSONDecodeError(f"{text} is no number", text, 0)


def _check_depth(document: dict[str, Any]) -> None:
    level: list[Any] = [document]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise _Problem(_TOO_DEEP)


def _of_yaml(text: str, cuts: bool) -> list[Any]:
    try:
        return list(_built(text, cuts, _FAST))
    except yaml.YAMLError as error:
        if not cuts or _NESTING not in str(error):
            raise
    return list(_built(yaml_depth.shallow(text, MOST_DEPTH, _steps), cuts, _FAST))


def _steps(stream: io.StringIO) -> Iterator[yaml_depth.Step]:
    behind = 0
    try:
        for token in yaml.scan(stream, Loader=_FAST):
            if kind := _KINDS.get(type(token)):
                yield yaml_depth.Step(kind, token.start_mark.index, token.start_mark.column)
            behind = token.end_mark.index
    except yaml.YAMLError as error:
        # Anything else is told by who reads it all.
        if _NESTING in str(error):
            yield yaml_depth.Step(yaml_depth.Kind.BEYOND, behind, 0)


def _built(text: str, cuts: bool, loader: Any) -> Iterator[Any]:
    building = _Building(cuts)
    for event in yaml.parse(text, Loader=loader):
        match event:
            case yaml.DocumentStartEvent():
                building.begin()
            case yaml.DocumentEndEvent():
                yield building.document
            case yaml.ScalarEvent():
                building.scalar(event)
            case yaml.AliasEvent():
                building.alias(event)
            case yaml.SequenceStartEvent():
                building.open([], event)
            case yaml.MappingStartEvent():
                building.open({}, event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                building.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """A value; how many values it is of, and how many are inside each other."""

    value: Any
    count: int = 1
    height: int = 0
    is_merge: bool = False


@dataclasses.dataclass(slots=True)
class _Open:
    """An object or a list whose end has not come yet."""

    holder: dict[str, Any] | list[Any]
    anchor: str | None
    count: int = 1
    height: int = 1
    key: _Found | None = None


class _Building:
    """The documents of a file, made of events one after the other: depth costs no stack."""

    def __init__(self, cuts: bool) -> None:
        self.document: Any = None
        self._cuts = cuts
        self._skipped = 0
        """Objects and lists inside each other that are passed over."""
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Found | None] = {}
        self._repeated = 0

    def begin(self) -> None:
        """The next document; names are each one's own."""
        self.document = None
        self._stack = []
        self._anchors = {}

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """A text, a number, a truth value, or nothing."""
        line, text = _line(event), event.value
        if self._skipped:
            return
        try:
            if event.tag is not None and event.tag != "!":
                value = yaml_scalars.tagged(_tag(event.tag, line), text)
            elif event.tag is None and event.implicit[0]:
                value = yaml_scalars.plain(text)
            else:
                value = text
            is_merge = text == "<<" and event.implicit[0]
            self._add(_Found(value, is_merge=is_merge), event.anchor, line)
        except yaml_scalars.Unknown as error:
            raise _Problem(str(error), line) from error

    def alias(self, event: yaml.AliasEvent) -> None:
        """What has been said before, once more."""
        name, line = event.anchor, _line(event)
        if self._skipped:
            return
        if name not in self._anchors:
            raise _Problem(f"alias *{name}: there is no &{name} before it", line)
        found = self._anchors[name]
        if found is None:
            raise _Problem(f"alias *{name}: it stands inside of what &{name} names", line)
        self._repeated += found.count
        if self._repeated > MOST_REPEATED:
            raise _Problem(
                f"alias *{name}: aliases stand for more than {MOST_REPEATED} values: write them "
                "out, in several files if need be",
                line,
            )
        # A value of its own: what happens to one must not happen to the other.
        copied = dataclasses.replace(found, value=copy.deepcopy(found.value), is_merge=False)
        self._add(copied, None, line)

    def open(self, holder: dict[str, Any] | list[Any], event: yaml.CollectionStartEvent) -> None:
        """An object or a list begins."""
        line = _line(event)
        if event.tag is not None and event.tag != "!":
            wanted = "map" if isinstance(holder, dict) else "seq"
            if (tag := _tag(event.tag, line)) != wanted:
                raise _Problem(f"the tag !!{tag} is not known here: leave it out", line)
        if self._skipped or self._is_too_deep(1, line):
            self._skipped += 1
            return
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(holder, event.anchor))

    def close(self) -> None:
        """It ends."""
        if self._skipped:
            self._skipped -= 1
            if not self._skipped:
                self._add(_Found(None), None, None)
            return
        ended = self._stack.pop()
        self._add(_Found(ended.holder, ended.count, ended.height), ended.anchor, None)

    def _add(self, found: _Found, anchor: str | None, line: int | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = found
        if not self._stack:
            self.document = _value(found)
            return
        if self._is_too_deep(found.height, line):
            found = _Found(None)
        inside = self._stack[-1]
        inside.count += found.count
        is_merged = inside.key is not None and inside.key.is_merge
        inside.height = max(inside.height, found.height + (not is_merged))
        if isinstance(inside.holder, list):
            inside.holder.append(_value(found))
        elif inside.key is None:
            if isinstance(found.value, dict | list):
                raise _Problem("an object or a list is no key: write a text", line)
            inside.key = found
        elif is_merged:
            inside.key = None
            _merge(inside.holder, found.value, line)
        else:
            name = yaml_scalars.key(inside.key.value)
            inside.key = None
            inside.holder[name] = _value(found)

    def _is_too_deep(self, height: int, line: int | None) -> bool:
        if len(self._stack) + height <= MOST_DEPTH:
            return False
        if not self._cuts:
            raise _Problem(_TOO_DEEP, line)
        return True


def _line(event: yaml.Event) -> int | None:
    return event.start_mark.line if event.start_mark is not None else None


def _value(found: _Found) -> Any:
    return yaml_scalars.value(found.value) if found.height == 0 else found.value


def _merge(holder: dict[str, Any], given: Any, line: int | None) -> None:
    """Take over what `<<` gives: an object, or several, of which the first goes before the next."""
    several = given if isinstance(given, list) else [given]
    if not all(isinstance(each, dict) for each in several):
        raise _Problem("<< takes an object, or a list of objects", line)
    for each in reversed(several):
        holder.update(each)


def _tag(tag: str, line: int | None) -> str:
    """The name of a tag of YAML's own."""
    if not tag.startswith(_TAGS):
        raise _Problem(f"the tag {tag[:60]} is not known here: leave it out", line)
    return tag.removeprefix(_TAGS)
