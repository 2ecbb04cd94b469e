"""Where the values of a YAML text stand."""

import re
from typing import Any

import yaml

from dra_driver.adapters.console import nodes, yaml_scalars

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PROPERTIES = re.compile(r"[&!]\S*+")
_BLOCK_HEAD = re.compile(r"[|>][-+0-9]*")


def documents(text: str) -> list[nodes.Document]:
    """The documents of a text that has been read as YAML before, the empty ones with them.

    Raises:
        nodes.Uneditable: it has what cannot be told apart by places in the text.
    """
    lone = re.search(r"\r(?!\n)", text)
    if lone:
        raise nodes.Uneditable("a line ends with CR alone: end lines with LF, or CR LF")
    building = _Building(nodes.Text(text))
    for event in yaml.parse(text, Loader=_FAST):
        building.take(event)
    return building.documents()


def _place(mark: Any) -> int:
    return int(mark.index)


class _Building:
    """Nodes, made of events one after the other."""

    def __init__(self, text: nodes.Text) -> None:
        self._text = text
        self._found: list[tuple[yaml.DocumentStartEvent, nodes.Node | None]] = []
        self._stack: list[nodes.Node] = []
        self._keys: list[nodes.Node | None] = []
        self._names: list[str] = []
        self._anchors: dict[str, nodes.Node] = {}

    def documents(self) -> list[nodes.Document]:
        starts = [self._start(event) for event, _ in self._found]
        ends = [*starts, len(self._text.text)][1:]
        return [
            nodes.Document(
                start=start,
                body=_place(event.end_mark) if event.explicit else start,
                end=end,
                root=None if root is None or root.is_empty else root,
                is_marked=bool(event.explicit),
                has_directives=bool(event.version or event.tags),
            )
            for (event, root), start, end in zip(self._found, starts, ends, strict=True)
        ]

    def _start(self, event: yaml.DocumentStartEvent) -> int:
        return _place(event.start_mark) if event.explicit else 0

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._found.append((event, None))
                self._anchors = {}
            case yaml.ScalarEvent():
                name = self._name(event) if self._is_key() else ""
                self._add(self._scalar(event), name)
            case yaml.AliasEvent():
                self._add(self._alias(event), "")
            case yaml.SequenceStartEvent():
                self._open(nodes.Kind.LIST, event)
            case yaml.MappingStartEvent():
                self._open(nodes.Kind.OBJECT, event)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._close(event)

    def _is_key(self) -> bool:
        """Whether what comes next is the key of an object."""
        if not self._stack or self._stack[-1].kind is nodes.Kind.LIST:
            return False
        return self._keys[-1] is None

    def _name(self, event: yaml.ScalarEvent) -> str:
        if event.tag is None and event.implicit[0]:
            return yaml_scalars.key(yaml_scalars.plain(event.value))
        return str(event.value)

    def _scalar(self, event: yaml.ScalarEvent) -> nodes.Node:
        start, end = _place(event.start_mark), _place(event.end_mark)
        begin = self._behind_properties(start, end)
        is_block = event.style in ("|", ">")
        if is_block:
            end = self._trimmed(begin, end)
        node = nodes.Node(nodes.Kind.SCALAR, start, end, begin, is_block_scalar=is_block)
        self._named(node, event.anchor)
        return node

    def _trimmed(self, begin: int, end: int) -> int:
        """The end of a block scalar without the empty lines behind it that are no part of it."""
        text = self._text.text
        head = _BLOCK_HEAD.match(text, begin)
        if head is not None and "+" in head[0]:
            return end
        body = text[begin:end].rstrip(" \r\n")
        trimmed = begin + len(body)
        return min(end, self._text.line_end(trimmed))

    def _alias(self, event: yaml.AliasEvent) -> nodes.Node:
        start, end = _place(event.start_mark), _place(event.end_mark)
        return nodes.Node(
            nodes.Kind.ALIAS, start, end, start, target=self._anchors.get(event.anchor or "")
        )

    def _open(self, kind: nodes.Kind, event: yaml.CollectionStartEvent) -> None:
        start = _place(event.start_mark)
        begin = self._behind_properties(start, len(self._text.text))
        node = nodes.Node(kind, start, start, begin, is_flow=bool(event.flow_style))
        self._named(node, event.anchor)
        self._stack.append(node)
        self._keys.append(None)
        self._names.append("")

    def _close(self, event: yaml.Event) -> None:
        node = self._stack.pop()
        self._keys.pop()
        self._names.pop()
        if node.is_flow:
            node.end = _place(event.end_mark)
        else:
            # The parser looks for more behind it; there is space and comments only.
            node.end = max(part.end for part in node.parts)
        self._add(node, "")

    def _named(self, node: nodes.Node, anchor: str | None) -> None:
        if anchor:
            node.anchor = anchor
            self._anchors[anchor] = node

    def _behind_properties(self, start: int, end: int) -> int:
        """Where a value begins, behind its anchor and its tag."""
        at = start
        while at < end and (found := _PROPERTIES.match(self._text.text, at)):
            behind = self._text.significant(found.end())
            at = min(behind, end)
        return at

    def _add(self, node: nodes.Node, name: str) -> None:
        if not self._stack:
            event, _ = self._found[-1]
            self._found[-1] = (event, node)
            return
        holder = self._stack[-1]
        if holder.kind is nodes.Kind.LIST:
            holder.items.append(node)
        elif (key := self._keys[-1]) is None:
            self._keys[-1] = node
            self._names[-1] = name
        else:
            self._keys[-1] = None
            known = self._names[-1]
            text = self._text.text[key.begin : key.end]
            holder.entries.append(nodes.Entry(key, known, node, is_merge=text == "<<"))
