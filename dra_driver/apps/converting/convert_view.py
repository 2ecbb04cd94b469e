"""How a conversion is shown: tables for a person, JSON for a program."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from dra_driver.adapters.console import terminal
from dra_driver.logic.converting import conversion, manifests

Json = dict[str, Any]

_COLUMNS = ("object", "container", "asked", "becomes")


def show(
    converted: manifests.Converted,
    notes: Sequence[str],
    problems: Sequence[str],
    screen: terminal.Terminal,
    *,
    as_json: bool,
) -> None:
    """Print it; JSON is one object with `lines`, `warnings`, `notes` and `problems`."""
    if as_json:
        body = {
            "lines": list(map(_json, converted.lines)),
            "warnings": list(map(_json, converted.warnings)),
            "notes": list(notes),
            "problems": list(problems),
        }
        screen.document(json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False))
        return
    for file, told in itertools.groupby(converted.lines, key=lambda each: each.document.file):
        screen.table(_table(file, told))
    _list("Warnings", "yellow", list(map(str, converted.warnings)), screen)
    _list("Written out", "bold", notes, screen)
    _list("Refused", "red", problems, screen)
    if problems:
        screen.say("Nothing is converted.")
    elif not converted.lines:
        screen.say("Nothing to convert.")


def _table(title: str, told: Iterable[manifests.Told]) -> terminal.Table:
    """A row for each line, those about one container together."""
    places: dict[tuple[int | None, str], dict[str, list[conversion.Line]]] = {}
    for each in told:
        if isinstance(each.said, conversion.Line):
            # Of several pod templates in one object each has its own name.
            called = f"{each.object}: {each.template}" if each.template else each.object
            inside = places.setdefault((each.document.number, called), {})
            inside.setdefault(each.said.where, []).append(each.said)
    rows: list[tuple[str, ...]] = []
    for (_, called), inside in places.items():
        heads = itertools.chain((called,), itertools.repeat(""))
        for where, lines in inside.items():
            names = itertools.chain((where.removeprefix("container "),), itertools.repeat(""))
            rows += [(next(heads), next(names), line.asked, line.becomes) for line in lines]
    return terminal.Table(title, _COLUMNS, tuple(rows))


def _list(title: str, style: str, lines: Sequence[str], screen: terminal.Terminal) -> None:
    if lines:
        screen.block(terminal.Block(((title, style),), tuple(lines)))
        screen.say("")


def _json(told: manifests.Told) -> Json:
    said = told.said
    body: Json = {
        "place": told.document.place,
        "object": told.object,
        "template": told.template,
        "where": said.where,
    }
    if isinstance(said, conversion.Line):
        return {**body, "asked": said.asked, "becomes": said.becomes}
    return {**body, "field": said.field, "value": said.value, "rule": said.rule}
