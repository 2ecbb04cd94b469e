"""In which style a document is written: what is new in it is written alike."""

from dra_driver.adapters.console import nodes, written


def of(text: nodes.Text, root: nodes.Node, *, is_json: bool) -> written.Style:
    """The style of a document, as its first objects and lists have it."""
    if root.is_flow:
        return _of_flow(text, root)
    return written.Style(step=_step(text, root), dash=_dash(text, root), is_json=is_json)


def _step(text: nodes.Text, root: nodes.Node) -> int:
    """Spaces before an object in an object."""
    for entry, inner in _blocks(root, nodes.Kind.OBJECT):
        step = text.column(inner.entries[0].start) - text.column(entry.start)
        if step > 0:
            return step
    return 2


def _dash(text: nodes.Text, root: nodes.Node) -> int:
    """Spaces before the dashes of a list in an object."""
    for entry, inner in _blocks(root, nodes.Kind.LIST):
        dash = text.column(inner.begin) - text.column(entry.start)
        if dash >= 0:
            return dash
    return 0


def _blocks(root: nodes.Node, kind: nodes.Kind) -> list[tuple[nodes.Entry, nodes.Node]]:
    return [
        (entry, entry.value)
        for node in root.all()
        if not node.is_flow
        for entry in node.entries
        if entry.value.kind is kind and not entry.value.is_flow
    ]


def _of_flow(text: nodes.Text, root: nodes.Node) -> written.Style:
    if not root.entries:
        return written.Style(is_json=True)
    first = root.entries[0]
    colon = text.text[first.key.end : first.value.start]
    unit = ""
    if text.is_first(first.start):
        unit = text.text[text.line_start(first.start) : first.start]
        outer = text.text[text.line_start(root.start) : root.start]
        unit = unit.removeprefix(outer) if not outer.strip() else unit
    comma = ", "
    if len(root.entries) > 1 and not unit:
        comma = text.text[first.end : root.entries[1].start]
    is_json = text.text.startswith('"', first.key.begin)
    return written.Style(is_json=is_json, unit=unit, colon=colon, comma=comma)
