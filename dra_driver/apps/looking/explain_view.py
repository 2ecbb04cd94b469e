"""How explanations are shown: tables for a person, JSON for a program."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence

from dra_driver.adapters.console import terminal
from dra_driver.logic.explaining import (
    device_hurdles,
    explaining,
    node_choice,
    node_reports,
    problems,
)
from dra_driver.logic.picturing import granted
from dra_driver.model import texts

MOST = 10
"""Entries of a list that a table or paragraph shows; JSON has all."""

MOST_TABLES = 20
"""Tables of nodes; JSON has all."""

_MOST_PARAMETERS = 512
"""Bytes of a config in a table; JSON has all."""

_STYLES = {
    explaining.ALLOCATED: "green",
    explaining.UNUSABLE: "red",
    explaining.UNSTARTABLE: "red",
    explaining.FITS: "green",
    explaining.DOES_NOT_FIT: "red",
}


def show(
    explained: Sequence[explaining.Explanation], screen: terminal.Terminal, *, as_json: bool
) -> None:
    """Print explanations; JSON is one object with the list `explanations`."""
    if as_json:
        body = {"explanations": [dataclasses.asdict(each) for each in explained]}
        screen.document(json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False))
        return
    for each in explained:
        _show(each, screen)


def _show(about: explaining.Explanation, screen: terminal.Terminal) -> None:
    style = _STYLES[about.verdict]
    screen.block(terminal.Block(((f"{about.target}: ", "bold"), (about.verdict, style)), ()))
    screen.say("")
    _list("The scheduler does not look for devices", about.blocked, screen)
    if about.problem is not None:
        _list("Stopped on every node by an error", _problem(about.problem), screen, most=100)
    _list("On every node", about.reasons, screen)
    if about.allocated:
        screen.table(_granted(about.allocated))
        unknown = any(item.prepared == granted.UNKNOWN for item in about.allocated)
        _list("Prepared or not", [granted.UNKNOWN] if unknown else [], screen)
    _list("In the way", [f"{one}" for one in about.in_the_way if one.stops], screen)
    _list("To know", [f"{one}" for one in about.in_the_way if not one.stops], screen)
    if about.options:
        screen.table(_options(about.options))
        _list("Why these", _reasons(about.options[0]), screen)
    for report in about.reports[:MOST_TABLES]:
        _report(report, screen)
    if len(about.reports) > MOST_TABLES:
        left = sum(len(report.nodes) for report in about.reports[MOST_TABLES:])
        screen.say(f"{left} more nodes, each different: --output json has all of them.")
        screen.say("")
    _nearest(about, screen)
    if about.groups:
        _list("Devices that agree", about.groups, screen)
    _list("Notes", about.notes, screen)
    if about.conversion is not None:
        _conversion(about.conversion, screen)


def _conversion(made: explaining.Converted, screen: terminal.Terminal) -> None:
    """What would be asked for instead, and what became of that."""
    _list("It asks as older systems had it, and cannot be converted", made.problems, screen)
    _list(
        "It asks as older systems had it; converted, it would ask with claims", made.lines, screen
    )
    _list("To know of the conversion", made.warnings, screen)
    _list("To convert it", made.how, screen)
    if made.then is not None:
        _show(made.then, screen)


def _nearest(about: explaining.Explanation, screen: terminal.Terminal) -> None:
    misses = [f"{miss.change}  →  {', '.join(miss.devices)}" for miss in about.nearest]
    if any(miss.together > 1 for miss in about.nearest):
        _list(
            "Would fit now with both changes of any one line; one alone is not enough",
            misses,
            screen,
        )
    elif about.nearest:
        _list("Would fit now with any one of these, the smallest change first", misses, screen)
    elif about.reports:
        screen.say("No change that was tried would make it fit, and no two of them together.")
        screen.say("")


def _list(title: str, lines: Sequence[str], screen: terminal.Terminal, *, most: int = MOST) -> None:
    if lines:
        more = [f"and {len(lines) - most} more"] if len(lines) > most else []
        screen.block(terminal.Block(((title, "bold"),), (*lines[:most], *more)))
        screen.say("")


def _problem(problem: problems.Problem) -> list[str]:
    lines = [problem.message]
    if problem.expression:
        lines += problem.expression.splitlines()
        if problem.column is not None and problem.line is not None:
            at = len(lines) - len(problem.expression.splitlines()) + problem.line
            lines.insert(at, " " * (problem.column - 1) + "^")
    if problem.guarded:
        lines += ["some devices have it and others lack it: write", *problem.guarded.splitlines()]
    if problem.elsewhere:
        lines += ["devices have:", *problem.elsewhere]
    return lines


def _granted(devices: Sequence[granted.Granted]) -> terminal.Table:
    return terminal.Table(
        "Allocated",
        ("claim", "request", "device", "node", "config in force", "pods", "prepared"),
        tuple(
            (
                item.claim,
                item.request,
                _device(item),
                item.node or "any",
                _config(item),
                ", ".join(_cut(item.reserved_for)) or "none",
                "?" if item.prepared == granted.UNKNOWN else item.prepared,
            )
            for item in devices
        ),
    )


def _device(item: granted.Granted) -> str:
    more = [f"share {item.share_id}"] if item.share_id else []
    more += [*item.consumed, *(["admin access"] if item.admin_access else [])]
    return f"{item.device} ({', '.join(more)})" if more else item.device


def _config(item: granted.Granted) -> str:
    """The last of each kind, with its source: later ones win."""
    last = {config.parameters.get("kind", ""): config for config in item.configs}
    shown = [
        f"from {config.source}: "
        + texts.capped(json.dumps(config.parameters, sort_keys=True), _MOST_PARAMETERS)
        for config in last.values()
    ]
    return "; ".join(shown) or "none: the driver's defaults"


def _options(options: Sequence[node_choice.Option]) -> terminal.Table:
    rows: list[Sequence[terminal.Cell]] = []
    for option in options[:MOST]:
        served = [node_choice.Pick("", name, "from the device plugin") for name in option.served]
        nothing = node_choice.Pick("", "", "no device")
        for index, pick in enumerate((*option.picks, *served) or (nothing,)):
            head = "" if index else option.node
            choice: terminal.Cell = ("first choice", "green") if option.first else ""
            rows.append((head, "" if index else choice, pick.claim, pick.request, pick.device))
    if len(options) > MOST:
        rows.append((f"and {len(options) - MOST} more", "", "", "", ""))
    return terminal.Table(
        f"Fits on {len(options)} node{'' if len(options) == 1 else 's'}",
        ("node", "", "claim", "request", "device"),
        tuple(rows),
    )


def _reasons(option: node_choice.Option) -> list[str]:
    lines = [
        f"{pick.request}: {pick.device} is the first in publishing order that does"
        + (f"; before it: {_summary(pick.before)}" if pick.before else "; none is before it")
        for pick in option.picks
    ]
    lines += [
        f"{name}, which comes first in its list, is not to be had there: "
        + (_summary(groups) or "no devices")
        for name, groups in dict(pair for pick in option.picks for pair in pick.preferred).items()
    ]
    lines.append(
        f"node {option.node}: nodes that meet firstAvailable lists best come first, then those "
        "with the fewest pods, then by name; a real scheduler also scores CPU, memory and more"
    )
    return lines


def _summary(groups: Iterable[device_hurdles.Group]) -> str:
    told = []
    for group in groups:
        held = f" by {', '.join(group.holders[:MOST])}" if group.holders else ""
        told.append(
            f"{group.count} {group.hurdle}{f' `{group.reason}`' if group.reason else ''}{held}"
        )
    return ", ".join(told)


def _report(report: node_reports.Report, screen: terminal.Terminal) -> None:
    names = ", ".join(report.nodes[:MOST])
    more = f" and {len(report.nodes) - MOST} more" if len(report.nodes) > MOST else ""
    title = f"Node{'s' if len(report.nodes) > 1 else ''} {names}{more}"
    if report.obstacle:
        _list(title, [report.obstacle], screen)
        return
    rows = tuple(row for request in report.requests for row in _rows(request))
    if rows:
        screen.table(_filled(title, rows))
    _list(title if not rows else "Pools that cannot be used", report.defects, screen)


_COLUMNS = ("request", "devices", "hurdle", "which", "values", "held by")


def _filled(title: str, rows: Sequence[Sequence[terminal.Cell]]) -> terminal.Table:
    """The table without its empty columns: what is left gets their width."""
    used = [index for index in range(len(_COLUMNS)) if any(row[index] for row in rows)]
    return terminal.Table(
        title,
        tuple(_COLUMNS[index] for index in used),
        tuple([row[index] for index in used] for row in rows),
    )


def _rows(request: node_reports.Request) -> Iterator[Sequence[terminal.Cell]]:
    wanted = "all" if request.wanted is None else request.wanted
    head = f"{request.request} ({wanted} of {request.seen})"
    if not request.groups:
        yield (head, "0", ("the node has no devices", "red"), "", "", "")
    for index, group in enumerate(request.groups):
        style = "green" if group.hurdle == "free" else "yellow"
        yield (
            "" if index else head,
            f"{group.count}",
            (group.hurdle, style),
            group.reason,
            "; ".join(_cut(group.values)),
            "; ".join(_cut(group.holders)),
        )


def _cut(texts: Sequence[str]) -> Iterator[str]:
    yield from texts[:MOST]
    if len(texts) > MOST:
        yield f"and {len(texts) - MOST} more"
