"""Changes of objects and lists in brackets, of YAML and of JSON: between commas."""

import bisect
import dataclasses
from collections.abc import Callable
from typing import Any

from dra_driver.adapters.console import aligning, drafts, nodes, written

Json = dict[str, Any]

Descend = Callable[[drafts.Place, Any, Any], None]


def change_object(
    draft: drafts.Draft, node: nodes.Node, depth: int, old: Json, new: Json, descend: Descend
) -> None:
    """Make of an object another one that is not empty."""
    names = {entry.name: index for index, entry in enumerate(node.entries)}
    line = draft.text.line(node.start)
    if any(entry.is_merge for entry in node.entries):
        raise nodes.Uneditable(f"line {line}: << in brackets: write out what it takes over")
    if len(names) < len(node.entries):
        raise nodes.Uneditable(f"line {line}: a key is there twice")
    parts: list[_Part] = []
    for name in [*new, *(name for name in names if name not in new)]:
        index = names.get(name)
        text = _Entry(name, new[name]) if name in new and index is None else None
        parts.append(_Part(index, name in new, text))
    for entry in node.entries:
        if entry.name in new:
            place = drafts.Place(entry.value, 0, depth + 1, is_in_flow=True)
            descend(place, old[entry.name], new[entry.name])
    _Brackets(draft, node, [(each.start, each.end) for each in node.entries]).change(parts)


def change_list(
    draft: drafts.Draft,
    node: nodes.Node,
    depth: int,
    old: list[Any],
    new: list[Any],
    descend: Descend,
) -> None:
    """Make of a list another one that is not empty."""
    parts: list[_Part] = []
    for was, becomes in aligning.aligned(old, new):
        text = _Item(new[becomes]) if was is None and becomes is not None else None
        parts.append(_Part(was, becomes is not None, text))
        if was is not None and becomes is not None:
            place = drafts.Place(node.items[was], 0, depth + 1, is_in_flow=True)
            descend(place, old[was], new[becomes])
    _Brackets(draft, node, [(each.start, each.end) for each in node.items]).change(parts)


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Item:
    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """What is there after the change: the part with this index of before, or a new one."""

    index: int | None
    stays: bool
    new: _Entry | _Item | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Brackets:
    draft: drafts.Draft
    node: nodes.Node
    spans: list[tuple[int, int]]

    def change(self, parts: list[_Part]) -> None:
        """Remove and add parts; those that stay are changed by others."""
        stay = sorted(part.index for part in parts if part.index is not None and part.stays)
        groups: dict[int | None, list[_Entry | _Item]] = {}
        last: int | None = None
        for part in parts:
            if part.new is not None:
                groups.setdefault(last, []).append(part.new)
            elif part.stays:
                last = part.index
        staying = set(stay)
        gone = [index for index in range(len(self.spans)) if index not in staying]
        if not gone and not groups:
            return
        nodes_gone = self._parts(gone)
        for each in nodes_gone:
            self.draft.forget(each)
        if not stay:
            self._fill([new for group in groups.values() for new in group])
        elif self._is_by_lines():
            self._by_lines(stay, gone, groups)
        else:
            self._in_line(stay, gone, groups)

    def _parts(self, indexes: list[int]) -> list[nodes.Node]:
        held = [entry.value for entry in self.node.entries] or self.node.items
        return [held[index] for index in indexes]

    def _is_by_lines(self) -> bool:
        text = self.draft.text
        return all(text.is_first(start) for start, _ in self.spans) and text.is_first(
            self.node.end - 1
        )

    def _fill(self, new: list[_Entry | _Item]) -> None:
        """New parts alone: nothing of before stays."""
        text, style = self.draft.text, self.draft.style
        outer = _indent(text, self.node.begin)
        inner = outer + style.unit
        inside = [self._text(each, style, inner) for each in new]
        opening, closing = text.text[self.node.begin], text.text[self.node.end - 1]
        if style.unit:
            joined = f",\n{inner}".join(inside)
            made = f"{opening}\n{inner}{joined}\n{outer}{closing}"
        else:
            made = f"{opening}{style.comma.join(inside)}{closing}"
        self.draft.replace(self.node.begin, self.node.end, made)

    def _in_line(
        self, stay: list[int], gone: list[int], groups: dict[int | None, list[_Entry | _Item]]
    ) -> None:
        draft, spans = self.draft, self.spans
        style = dataclasses.replace(draft.style, unit="")
        following = dict(zip(stay, [*stay[1:], None], strict=True))
        for after, new in groups.items():
            inside = [self._text(each, style, "") for each in new]
            before = stay[0] if after is None else following[after]
            if before is None:
                joined = "".join(f"{style.comma}{each}" for each in inside)
                end = spans[stay[-1]][1]
                draft.replace(end, end, joined)
            else:
                joined = "".join(f"{each}{style.comma}" for each in inside)
                draft.replace(spans[before][0], spans[before][0], joined)
        # Each run of what is gone, up to what stays behind it, or from what stays before it.
        for index, before in zip(gone, [None, *gone], strict=False):
            if index > stay[-1]:
                draft.replace(spans[stay[-1]][1], spans[-1][1], "")
                return
            if before is None or index > before + 1:
                behind = stay[bisect.bisect(stay, index)]
                draft.replace(spans[index][0], spans[behind][0], "")

    def _by_lines(
        self, stay: list[int], gone: list[int], groups: dict[int | None, list[_Entry | _Item]]
    ) -> None:
        draft, spans, text = self.draft, self.spans, self.draft.text
        style = draft.style
        for index in gone:
            end = self._behind_comma(spans[index][1]) or spans[index][1]
            draft.replace(text.line_start(spans[index][0]), text.line_end(end), "")
        level = _indent(text, spans[stay[0]][0])
        for after, new in groups.items():
            inside = [self._text(each, style, level) for each in new]
            is_end = after == stay[-1]
            commas = [",\n"] * (len(inside) - 1) + ["\n" if is_end else ",\n"]
            lines = "".join(f"{level}{one}{end}" for one, end in zip(inside, commas, strict=True))
            if after is None:
                place = text.line_start(spans[stay[0]][0])
            else:
                place = text.line_end(self._behind_comma(spans[after][1]) or spans[after][1])
            draft.replace(place, place, lines)
        self._end_comma(spans[stay[-1]][1], is_wanted=stay[-1] in groups, is_last=not gone)

    def _end_comma(self, end: int, *, is_wanted: bool, is_last: bool) -> None:
        """The comma behind the last part that stays."""
        behind = self._behind_comma(end)
        if is_wanted and behind is None:
            self.draft.replace(end, end, ",")
        elif not is_wanted and behind is not None and not is_last:
            self.draft.replace(behind - 1, behind, "")

    def _behind_comma(self, end: int) -> int | None:
        comma = self.draft.text.significant(end)
        return comma + 1 if self.draft.text.text[comma] == "," else None

    def _text(self, new: _Entry | _Item, style: written.Style, level: str) -> str:
        if isinstance(new, _Item):
            return written.flow(new.value, style, level)
        # Of an object with this entry alone, without its brackets.
        bare = dataclasses.replace(style, unit="")
        name = written.flow({new.name: 0}, bare)[1:-2].removesuffix(style.colon)
        return f"{name}{style.colon}{written.flow(new.value, style, level)}"


def _indent(text: nodes.Text, place: int) -> str:
    line = text.text[text.line_start(place) : place]
    return line[: len(line) - len(line.lstrip())]
