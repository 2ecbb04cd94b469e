"""Changes of objects and lists in block style: by whole lines."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.adapters.console import aligning, drafts, nodes, written

Json = dict[str, Any]

Descend = Callable[[drafts.Place, Any, Any], None]
"""Changes what a value is: the place, the old value and the new one."""


def change_object(
    draft: drafts.Draft, node: nodes.Node, depth: int, old: Json, new: Json, descend: Descend
) -> None:
    """Make of an object another one that is not empty."""
    _Object(draft, node, depth, descend).change(old, new)


@dataclasses.dataclass(frozen=True, slots=True)
class _Object:
    draft: drafts.Draft
    node: nodes.Node
    depth: int
    descend: Descend

    def change(self, old: Json, new: Json) -> None:
        own = self._own()
        merges = [entry for entry in self.node.entries if entry.is_merge]
        merged = {name: value for name, value in old.items() if name not in own}
        written_out = self._is_merge_over(merges, merged, new)
        kept = [
            entry
            for entry in self.node.entries
            if (not written_out if entry.is_merge else entry.name in new)
        ]
        groups = self._added(own, old, new)
        if written_out:
            groups.setdefault(None, {}).update({name: new[name] for name in merged if name in new})
            self._note_merge(merges[0])
        self._remove(kept)
        for after, values in groups.items():
            self._insert(after, kept, values)
        for entry in kept:
            if not entry.is_merge:
                self.descend(self._place(entry), old[entry.name], new[entry.name])

    def _own(self) -> dict[str, nodes.Entry]:
        own: dict[str, nodes.Entry] = {}
        for entry in self.node.entries:
            line = self.draft.text.line(entry.start)
            if self._before(entry).endswith("?"):
                raise nodes.Uneditable(f"line {line}: a key is written with `?`: write `key: …`")
            if entry.name in own:
                raise nodes.Uneditable(f"line {line}: the key {entry.name[:60]} is there twice")
            if not entry.is_merge:
                own[entry.name] = entry
        return own

    def _before(self, entry: nodes.Entry) -> str:
        text = self.draft.text
        return text.text[text.line_start(entry.start) : entry.start].rstrip()

    def _is_merge_over(self, merges: Sequence[nodes.Entry], merged: Json, new: Json) -> bool:
        """Whether what `<<` gives is not what is to be there."""
        if not merges:
            return False
        targets = [part.target for each in merges for part in each.value.all()]
        return any(id(target) in self.draft.anchored for target in targets) or any(
            name not in new or not aligning.same(value, new[name]) for name, value in merged.items()
        )

    def _note_merge(self, merge: nodes.Entry) -> None:
        line = self.draft.text.line(merge.start)
        self.draft.notes.append(f"line {line}: what << takes over is written out")

    def _added(
        self, own: Mapping[str, nodes.Entry], old: Json, new: Json
    ) -> dict[nodes.Entry | None, Json]:
        """New keys, by the entry behind which they come."""
        groups: dict[nodes.Entry | None, Json] = {}
        last: nodes.Entry | None = None
        for name, value in new.items():
            if name in own:
                last = own[name]
            elif name not in old:
                groups.setdefault(last, {})[name] = value
        return groups

    def _remove(self, kept: list[nodes.Entry]) -> None:
        draft, entries = self.draft, self.node.entries
        staying = set(map(id, kept))
        gone = [entry for entry in entries if id(entry) not in staying]
        if gone and gone[0] is entries[0] and not draft.text.is_first(entries[0].start):
            gone = self._remove_behind_dash(gone, kept)
        for entry in gone:
            draft.remove_lines(entry.start, entry.end, [entry.key, entry.value])

    def _remove_behind_dash(
        self, gone: list[nodes.Entry], kept: list[nodes.Entry]
    ) -> list[nodes.Entry]:
        """Remove entries of which the first is behind the dash of a list; what is left to do."""
        draft, first = self.draft, gone[0]
        if self._comes_up(kept):
            run = self.node.entries.index(kept[0])
            for entry in gone[:run]:
                draft.forget(entry.value)
            draft.replace(first.start, kept[0].start, "")
            return gone[run:]
        draft.forget(first.value)
        dash = len(self._before(first)) + draft.text.line_start(first.start)
        draft.replace(dash, draft.behind(first.end), "\n")
        return gone[1:]

    def _comes_up(self, kept: list[nodes.Entry]) -> bool:
        """Whether the first entry that stays gets behind the dash, or is there."""
        first = self.node.entries[0]
        if not kept or self.draft.text.is_first(first.start):
            return False
        return "#" not in self.draft.text.text[first.start : kept[0].start]

    def _insert(self, after: nodes.Entry | None, kept: list[nodes.Entry], values: Json) -> None:
        draft = self.draft
        first = self.node.entries[0]
        column = draft.text.column(first.start)
        lines = [
            line
            for name, value in values.items()
            for line in written.entry(name, value, draft.style)
        ]
        lines = written.indented(lines, column)
        if after is not None:
            draft.insert(draft.after(after.end, column), lines, self.depth)
        elif self._comes_up(kept):
            joined = "\n".join(lines).lstrip()
            draft.replace(kept[0].start, kept[0].start, f"{joined}\n{' ' * column}")
        elif draft.text.is_first(first.start):
            draft.insert(draft.text.line_start(first.start), lines, self.depth)
        else:
            # Behind a dash whose line has been emptied.
            draft.insert(draft.behind(first.end), lines, self.depth)

    def _place(self, entry: nodes.Entry) -> drafts.Place:
        text = self.draft.text
        colon = text.significant(entry.key.end)
        if text.text[colon : colon + 1] != ":":
            raise nodes.Uneditable(f"line {text.line(entry.start)}: the colon is not found")
        return drafts.Place(entry.value, text.column(entry.start), self.depth + 1, colon=colon + 1)


def change_list(
    draft: drafts.Draft,
    node: nodes.Node,
    depth: int,
    old: list[Any],
    new: list[Any],
    descend: Descend,
) -> None:
    """Make of a list another one that is not empty."""
    text = draft.text
    dashes = _dashes(text, node)
    column = text.column(dashes[0])
    before: int | None = None
    for was, becomes in aligning.aligned(old, new):
        if was is not None and becomes is not None:
            place = drafts.Place(node.items[was], text.column(dashes[was]), depth + 1)
            descend(place, old[was], new[becomes])
        elif was is not None or becomes is not None:
            if not text.is_first(dashes[was or 0]):
                line = text.line(dashes[0])
                raise nodes.Uneditable(f"line {line}: two lists begin in one line")
            if was is not None:
                item = node.items[was]
                draft.remove_lines(dashes[was], max(item.end, dashes[was] + 1), [item])
            elif becomes is not None:
                lines = written.item(new[becomes], draft.style, _gap(text, node, dashes))
                at = (
                    text.line_start(dashes[0])
                    if before is None
                    else draft.after(max(node.items[before].end, dashes[before] + 1), column)
                )
                draft.insert(at, written.indented(lines, column), depth)
        before = was if was is not None else before


def _dashes(text: nodes.Text, node: nodes.Node) -> list[int]:
    found: list[int] = []
    at = node.begin
    for item in node.items:
        dash = text.significant(at)
        if text.text[dash : dash + 1] != "-":
            raise nodes.Uneditable(f"line {text.line(at)}: the dash of an item is not found")
        found.append(dash)
        at = max(item.end, dash + 1)
    return found


def _gap(text: nodes.Text, node: nodes.Node, dashes: list[int]) -> int:
    """Spaces between a dash and what it is of, as in the first item."""
    between = text.text[dashes[0] + 1 : node.items[0].start]
    return len(between) if between and not between.strip(" ") else 1
