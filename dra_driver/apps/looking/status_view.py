"""How occupancy is shown: a grid of memory slices for a person, JSON for a program."""

import dataclasses
import itertools
import json
import string
from collections.abc import Iterator, Mapping, Sequence

from dra_driver.adapters.console import terminal
from dra_driver.apps.looking import slice_grid
from dra_driver.logic.picturing import ailing, fitting, occupancy, occupants, snapshots

_GAP = 3
"""Columns between two columns of a table."""

_WIDEST, _NARROWEST = 16, 3
"""Columns of one memory slice."""

_WHOLE_WIDEST = 60
"""Columns of a GPU that is given as a whole."""

_MOST = 4
"""Pods of a claim that a table names; JSON has all."""

_USUAL = ("Running", "")
"""Phases that go without saying; the empty one is not known."""

_SICK = " !"
"""Behind the name of a GPU of which something is withdrawn."""

_NO_KEY = "-"
"""Of a claim that takes nothing."""


def show(seen: occupancy.Occupancy, screen: terminal.Terminal, *, as_json: bool) -> None:
    """Print it; JSON is one object with `nodes`, `totals` and `notes`."""
    if as_json:
        body = dataclasses.asdict(seen)
        screen.document(json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False))
        return
    for node in seen.nodes:
        _show_node(node, screen)
    if not seen.nodes:
        screen.say("No node publishes GPUs.")
    elif len(seen.nodes) > 1:
        screen.say(f"Cluster: {len(seen.nodes)} nodes, {_totals(seen.totals)}")
    _notes("Notes", seen.notes, screen)


def _show_node(node: occupancy.Node, screen: terminal.Terminal) -> None:
    keys = _keys(node)
    for kind, gpus in _by_kind(node.gpus).items():
        screen.table(_gpus(f"Node {node.name}: {len(gpus)} x {kind[0]}", gpus, keys, screen.width))
    if claims := _claims(node, keys, screen.width):
        screen.table(claims)
    _health(node, screen)
    twice = [
        f"{gpu.name} has more allocated than there is"
        for gpu in node.gpus
        if len(slice_grid.lanes(gpu.parts)) > 1
    ]
    _notes(f"Notes on {node.name}", [*node.notes, *twice], screen)
    screen.say(f"Node {node.name}: {_totals(node.totals)}")
    screen.say("")


def _health(node: occupancy.Node, screen: terminal.Terminal) -> None:
    """What is wrong with cards and partitions; what only informs comes last."""
    found = [(gpu, one) for gpu in node.gpus for one in gpu.ailments]
    grave = [f"{_ill(gpu, one)}: {one}" for gpu, one in found if one.withdraws]
    _notes(f"Health on {node.name}", grave, screen)
    known = [f"{_ill(gpu, one)}: {one}" for gpu, one in found if not one.withdraws]
    _notes(f"For information on {node.name}", known, screen)


def _ill(gpu: occupancy.Gpu, one: ailing.Ailment) -> str:
    if one.is_whole:
        return gpu.name
    more = [f"and {len(one.devices) - _MOST} more"] if len(one.devices) > _MOST else []
    return ", ".join([*one.devices[:_MOST], *more])


def _notes(title: str, lines: Sequence[str], screen: terminal.Terminal) -> None:
    if lines:
        screen.block(terminal.Block(((title, "bold"),), tuple(lines)))
        screen.say("")


def _totals(totals: occupancy.Totals) -> str:
    told = [f"{totals.gpus} GPU{'' if totals.gpus == 1 else 's'}, {totals.idle} idle"]
    if totals.slices:
        told.append(f"{totals.free} of {totals.slices} memory slices free")
    told.append(f"largest fit {totals.largest or 'none'}")
    if totals.slices:
        told.append(f"fragmentation {_percent(totals.fragmentation)}")
    return ", ".join(told)


def _percent(share: float) -> str:
    return f"{share * 100:.0f}%"


def _by_kind(gpus: Sequence[occupancy.Gpu]) -> Mapping[tuple[str, bool], list[occupancy.Gpu]]:
    """What fits one grid: GPUs of a product, those given as a whole apart from the others."""
    found: dict[tuple[str, bool], list[occupancy.Gpu]] = {}
    for gpu in gpus:
        driver = f", driver {gpu.driver}" if gpu.driver != snapshots.DRIVER else ""
        found.setdefault((f"{gpu.product}{driver}", gpu.size == 1), []).append(gpu)
    return found


def _keys(node: occupancy.Node) -> slice_grid.Keys:
    """A letter for each claim that has something of the node, by place."""
    letters = (
        "".join(each)
        for length in itertools.count(1)
        for each in itertools.product(string.ascii_lowercase, repeat=length)
    )
    found: dict[tuple[str, str], str] = {}
    for part in (part for gpu in node.gpus for part in gpu.parts):
        for who in part.held_by:
            if (who.namespace, who.claim) not in found:
                found[who.namespace, who.claim] = next(letters)
    return found


def _gpus(
    title: str, gpus: Sequence[occupancy.Gpu], keys: slice_grid.Keys, width: int
) -> terminal.Table:
    size = max(gpu.size for gpu in gpus)
    heads = ("gpu", "free", "largest fit", "frag")
    beside = [
        (
            f"{gpu.name}{_SICK}" if any(one.withdraws for one in gpu.ailments) else gpu.name,
            f"{gpu.free}/{gpu.size}",
            gpu.largest.profile if gpu.largest is not None else "none",
            _percent(gpu.fragmentation),
        )
        for gpu in gpus
    ]
    used = sum(max(map(len, column)) + _GAP for column in zip(heads, *beside, strict=True))
    unit = max(min((width - used - 1) // size, _WIDEST if size > 1 else _WHOLE_WIDEST), _NARROWEST)
    rows: list[Sequence[terminal.Cell]] = []
    for gpu, (name, *others) in zip(gpus, beside, strict=True):
        rows.append((name, slice_grid.cell(gpu, keys, unit), *others))
    return terminal.Table(title, (heads[0], slice_grid.head(size, unit), *heads[1:]), tuple(rows))


def _claims(node: occupancy.Node, keys: slice_grid.Keys, width: int) -> terminal.Table | None:
    """The legend; without the UUIDs of MIG instances where they would make it too wide."""
    heads = ["key", "claim", "pods", "has", "MIG UUID"]
    listed = sorted(_uses(node, keys), key=_by_key)
    if not listed:
        return None
    rows: list[tuple[str, ...]] = []
    for _, group in itertools.groupby(listed, key=lambda use: use[:3]):
        first, *more = group
        rows += [first, *(("", "", "", *use[3:]) for use in more)]
    columns = list(zip(heads, *rows, strict=True))
    told = sum(max(map(len, column)) + _GAP for column in columns) - _GAP
    if told > width or not any(row[-1] for row in rows):
        columns.pop()
    shown = list(zip(*columns, strict=True))
    return terminal.Table(f"Claims on {node.name}", shown[0], tuple(shown[1:]))


def _uses(node: occupancy.Node, keys: slice_grid.Keys) -> Iterator[tuple[str, ...]]:
    for gpu in node.gpus:
        for part in gpu.parts:
            what = _what(gpu, part)
            for who in part.held_by:
                whose = _who(who, keys[who.namespace, who.claim])
                yield (*whose, f"{what}{_share(who)}", part.mig_uuid)
        for who in gpu.watchers:
            yield (*_who(who, _NO_KEY), f"{gpu.name} (admin access)", "")


def _what(gpu: occupancy.Gpu, part: occupancy.Part) -> str:
    if part.profile == fitting.WHOLE:
        return gpu.name
    return part.device if part.profile == fitting.VFIO else f"{gpu.name} {part.profile}"


def _by_key(use: tuple[str, ...]) -> tuple[bool, int, str]:
    key = use[0]
    return key == _NO_KEY, len(key), key


def _who(who: occupants.Occupant, key: str) -> tuple[str, str, str]:
    pods = [pod.name if pod.phase in _USUAL else f"{pod.name} ({pod.phase})" for pod in who.pods]
    more = [f"and {len(pods) - _MOST} more"] if len(pods) > _MOST else []
    return key, f"{who.namespace}/{who.claim}", ", ".join(pods[:_MOST] + more) or "none"


def _share(who: occupants.Occupant) -> str:
    if not who.share_id:
        return ""
    return f" ({', '.join(f'{name} {n}' for name, n in who.consumed.items()) or 'share'})"
