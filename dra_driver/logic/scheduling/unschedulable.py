"""The text that says why no node takes a pod, in the manner of kube-scheduler."""

import collections
from collections.abc import Mapping, Sequence

from dra_driver.logic.scheduling import hurdles, shortfalls
from dra_driver.model import texts

Verdict = str | tuple[shortfalls.Shortfall, ...]
"""Why one node does not take the pod: a reason of the node, or what its devices fall short of."""


def message(verdicts: Mapping[str, Verdict]) -> str:
    """One sentence for all nodes: node name to verdict.

    Nodes that are short of the same requests are told together, with their devices added up.
    """
    reasons = [verdict for _, verdict in sorted(verdicts.items()) if isinstance(verdict, str)]
    short = [verdict for _, verdict in sorted(verdicts.items()) if not isinstance(verdict, str)]
    parts = [f"{count} {text}" for text, count in sorted(collections.Counter(reasons).items())]
    groups: dict[tuple[tuple[str, str], ...], list[Sequence[shortfalls.Shortfall]]] = {}
    for entries in short:
        names = tuple((entry.claim.name, entry.request) for entry in entries)
        groups.setdefault(names, []).append(entries)
    parts += [_group(entries) for _, entries in sorted(groups.items())]
    head = f"0/{len(verdicts)} nodes are available"
    return texts.capped(f"{head}: {'; '.join(parts)}." if parts else f"{head}.")


def _group(nodes: Sequence[Sequence[shortfalls.Shortfall]]) -> str:
    requests = [_added_up(entries) for entries in zip(*nodes, strict=True)]
    defects = sorted({text for entries in nodes for entry in entries for text in entry.defects})
    told = [f"{len(nodes)} cannot allocate {', and '.join(requests)}", *defects]
    return "; ".join(told)


def _added_up(entries: Sequence[shortfalls.Shortfall]) -> str:
    first, total = entries[0], collections.Counter[hurdles.Hurdle]()
    for entry in entries:
        total.update(dict(entry.fallen))
    seen = sum(entry.seen for entry in entries)
    order = list(hurdles.Kind)
    fallen = sorted(total.items(), key=lambda item: (order.index(item[0].kind), item[0].detail))
    count = f" ({first.wanted} devices)" if first.wanted not in {None, 1} else ""
    devices = f"{seen} device{'' if seen == 1 else 's'}" if seen else "no devices"
    told = f'request "{first.request}"{count} of claim {first.claim.name}: {devices}'
    return f"{told}: {shortfalls.describe(fallen)}" if fallen else told
