"""Changes of values in a YAML or JSON text that leave everything else in it as it is.

Comments, order, quotes, indentation and markers of documents stay, byte for byte, outside of what
changes. What has been made is read again: it is what was wanted, or nothing comes of it.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.adapters.console import (
    aligning,
    block_edits,
    documents,
    drafts,
    flow_edits,
    json_nodes,
    nodes,
    styles,
    written,
    yaml_nodes,
)

Json = dict[str, Any]

_PROPERTIES = re.compile(r"[&!]\S*+(?:[ \t]+[&!]\S*+)*+")
"""Anchor and tag in one line."""
_END = re.compile(r"^\.\.\.(?=\s)[^\n]*\n", re.MULTILINE)
"""The line that ends a document."""


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of one document. `body` is None if it goes. `before`: new documents first."""

    body: Json | None
    before: tuple[Json, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Edited:
    """The new text, and what else was done to it."""

    text: str
    notes: tuple[str, ...] = ()


def edited(text: str, old: Sequence[Any], changes: Mapping[int, Edit]) -> Edited:
    """The text with other values in it. `old`: its documents, as `documents.of_text` gave them.

    `changes` are by the number of the document, from 0.

    Raises:
        nodes.Uneditable: it cannot be done without a risk for what is to stay.
    """
    begins = "\ufeff" if text.startswith("\ufeff") else ""
    body = text[len(begins) :]
    ends = "" if body.endswith("\n") else nodes.Text(body).newline
    whole = body + ends
    is_json = documents.is_json(whole)
    found = json_nodes.documents(whole) if is_json else yaml_nodes.documents(whole)
    if len(found) != len(old):
        raise nodes.Uneditable("its documents cannot be told apart")
    draft = drafts.Draft(nodes.Text(whole), written.Style())
    for number, edit in changes.items():
        _Document(draft, found[number], is_json=is_json).change(old[number], edit)
    made = draft.made()
    made = begins + (made.removesuffix(ends) if ends else made)
    _check(made, old, changes)
    return Edited(made, tuple(draft.notes))


def _check(made: str, old: Sequence[Any], changes: Mapping[int, Edit]) -> None:
    wanted: list[Any] = []
    for number, document in enumerate(old):
        edit = changes.get(number, Edit(document))
        wanted += [*edit.before, *([edit.body] if edit.body is not None else [])]
    try:
        got = documents.of_text(made.removeprefix("\ufeff"))
    except ValueError as error:
        raise nodes.Uneditable(f"what would be written cannot be read again: {error}") from error
    if not aligning.same([each for each in got if each is not None], wanted):
        raise nodes.Uneditable(
            "what would be written is not what is meant. Write the objects that change in a "
            "plainer style: without anchors, aliases and << in what changes"
        )


class _Document:
    """Changes one document."""

    def __init__(self, draft: drafts.Draft, found: nodes.Document, *, is_json: bool) -> None:
        self._draft = draft
        self._found = found
        self._is_json = is_json

    def change(self, old: Any, edit: Edit) -> None:
        found, draft = self._found, self._draft
        if found.root is None:
            raise nodes.Uneditable("an empty document cannot be changed")
        draft.style = styles.of(draft.text, found.root, is_json=self._is_json)
        if edit.before:
            self._put_before(edit.before, found.root)
        if edit.body is None:
            self._remove(found.root)
            return
        place = drafts.Place(found.root, 0, 0, is_in_flow=found.root.is_flow)
        self._value(place, old, edit.body)

    def _put_before(self, bodies: Sequence[Json], root: nodes.Node) -> None:
        draft, found = self._draft, self._found
        style = draft.style
        if found.has_directives:
            raise nodes.Uneditable(
                f"line {draft.text.line(found.start)}: a document with % directives: remove them"
            )
        if self._is_json:
            new = "".join(f"{written.flow(body, style)}\n" for body in bodies)
            draft.replace(found.start, found.start, new)
            return
        texts = [line for body in bodies for line in (*written.lines(body, style), "---")]
        at = draft.text.line_end(found.body)
        if found.is_marked and draft.text.text[found.body : at].strip():
            # There is more in the line of its `---`.
            texts = ["---", *texts[:-1]]
            at = draft.text.line_start(found.start)
        elif not found.is_marked:
            at = self._behind_heading(root)
        draft.insert(at, texts, 0)

    def _behind_heading(self, root: nodes.Node) -> int:
        """Behind comments at the beginning of a file, if an empty line follows them."""
        text = self._draft.text
        at = text.line_start(root.start)
        place, behind = 0, 0
        while place < at:
            end = text.line_end(place)
            if not text.text[place:end].strip():
                behind = end
            place = end
        return behind

    def _remove(self, root: nodes.Node) -> None:
        draft, found = self._draft, self._found
        start = found.start if found.is_marked else draft.text.line_start(root.start)
        end = draft.behind(root.end) if not root.is_flow else draft.text.line_end(root.end)
        end = max(min(end, found.end), root.end)
        if not draft.text.text[end : found.end].strip():
            end = found.end
        draft.replace(start, end, "")
        mark = _END.search(draft.text.text, end, found.end)
        if mark is not None:
            draft.replace(mark.start(), mark.end(), "")

    def _value(self, place: drafts.Place, old: Any, new: Any) -> None:
        node, draft = place.node, self._draft
        if aligning.same(old, new) and not self._is_touched(node):
            return
        if node.kind is nodes.Kind.ALIAS:
            self._alias(place, new)
            return
        if node.anchor:
            draft.anchored[id(node)] = new
        pair = (node.kind, old, new)
        match pair:
            case (nodes.Kind.OBJECT, dict(), dict()) if new:
                change = flow_edits.change_object if node.is_flow else block_edits.change_object
                change(draft, node, place.depth, old, new, self._value)
            case (nodes.Kind.LIST, list(), list()) if new:
                change_list = flow_edits.change_list if node.is_flow else block_edits.change_list
                change_list(draft, node, place.depth, old, new, self._value)
            case _:
                self._rewrite(place, new)

    def _is_touched(self, node: nodes.Node) -> bool:
        """Whether an alias in it stands for what has changed."""
        anchored = self._draft.anchored
        return bool(anchored) and any(id(part.target) in anchored for part in node.all())

    def _alias(self, place: drafts.Place, new: Any) -> None:
        anchored = self._draft.anchored
        target = id(place.node.target)
        if target in anchored and aligning.same(anchored[target], new):
            return
        name = self._draft.text.text[place.node.start : place.node.end]
        line = self._draft.text.line(place.node.start)
        self._draft.notes.append(f"line {line}: what {name[:60]} stands for is written out")
        self._rewrite(place, new)

    def _rewrite(self, place: drafts.Place, new: Any) -> None:
        """Put another value in place of all that is there."""
        node, draft, text = place.node, self._draft, self._draft.text
        for part in node.parts:
            draft.forget(part)
        is_block = isinstance(new, dict | list) and bool(new) and not place.is_in_flow
        if not is_block or node.is_flow:
            self._rewrite_flow(place, new)
        elif place.colon is None:
            gap = " " if node.is_empty else ""
            indent = " " * text.column(node.start) + gap
            ends = draft.line_end_in(node)
            joined = f"\n{indent}".join(written.lines(new, draft.style))
            draft.replace(node.start, node.end, f"{gap}{joined}{ends}")
            draft.forget(node)
            draft.keep_comments(place)
        else:
            step = draft.style.step if isinstance(new, dict) else draft.style.dash
            lines = written.indented(written.lines(new, draft.style), place.column + step)
            self._empty(place.colon, node)
            draft.insert(draft.behind(max(node.end, place.colon)), lines, place.depth)

    def _empty(self, colon: int, node: nodes.Node) -> None:
        """Take away what is behind a key, but a comment in its line."""
        draft = self._draft
        if not node.is_flow and node.kind in (nodes.Kind.OBJECT, nodes.Kind.LIST):
            draft.remove_lines(node.begin, node.end, [node])
        elif not node.is_empty:
            ends = draft.line_end_in(node) if node.is_block_scalar else ""
            draft.replace(self._behind_anchor(colon, node), node.end, ends)

    def _behind_anchor(self, colon: int, node: nodes.Node) -> int:
        """Where a value begins behind its key, with an anchor or a tag left where they are."""
        found = _PROPERTIES.match(self._draft.text.text, node.start, node.begin)
        return found.end() if found else colon

    def _rewrite_flow(self, place: drafts.Place, new: Any) -> None:
        node, draft, text = place.node, self._draft, self._draft.text
        style = draft.style if place.is_in_flow else dataclasses.replace(draft.style, unit="")
        level = text.text[text.line_start(node.start) : node.start]
        level = level[: len(level) - len(level.lstrip())]
        made = written.flow(new, style, level) if place.is_in_flow else written.scalar_or_flow(new)
        if not node.is_flow and node.kind in (nodes.Kind.OBJECT, nodes.Kind.LIST):
            if place.colon is None:
                draft.replace(node.begin, node.end, made + draft.line_end_in(node))
                draft.keep_comments(place)
                return
            draft.remove_lines(node.begin, node.end, node.parts)
            at = self._behind_anchor(place.colon, node)
            draft.replace(at, at, f" {made}")
        elif node.begin == node.end:
            # Nothing is written, but for an anchor.
            at = node.end if place.colon is None else max(node.end, place.colon)
            draft.replace(at, at, f" {made}")
        else:
            draft.replace(node.begin, node.end, made + draft.line_end_in(node))
