"""Nodes, as far as placing a pod needs them, and node selectors as core/v1 defines them."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.model import taints

_INTEGER = re.compile(r"[+-]?[0-9]{1,99}", re.ASCII)
_INT64 = range(-(2**63), 2**63)
"""What Gt and Lt compare: decimal integers of 64 bits, as Go's ParseInt reads them."""

Json = dict[str, Any]
Taints = tuple[taints.Taint, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node that pods may be placed on."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    taints: Taints = ()
    unschedulable: bool = False
    offered: Mapping[str, int] | None = None
    """What device plugins offer there, by extended resource; None where the node does not tell."""


def parse(body: Json) -> Node:
    """The node in a core/v1 object."""
    spec, allocatable = body.get("spec") or {}, (body.get("status") or {}).get("allocatable")
    return Node(
        name=body["metadata"]["name"],
        labels=body["metadata"].get("labels") or {},
        taints=tuple(taints.parse_taint(item) for item in spec.get("taints") or ()),
        unschedulable=bool(spec.get("unschedulable")),
        offered=_offered(allocatable) if allocatable else None,
    )


def matches(selector: Mapping[str, Any], node: Node) -> bool:
    """Whether a v1.NodeSelector holds for the node: any term, and in it all requirements.

    A term without requirements matches nothing. Source: `component-helpers/.../nodeaffinity`.
    """
    return any(_matches_term(term, node) for term in selector.get("nodeSelectorTerms") or ())


def only(node: str) -> Json:
    """The selector of exactly one node, as the scheduler writes it into an allocation."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _offered(allocatable: Json) -> Mapping[str, int]:
    """Extended resources have a domain and are whole numbers."""
    return {
        name: int(str(amount))
        for name, amount in allocatable.items()
        if "/" in name and str(amount).isdecimal()
    }


def _matches_term(term: Mapping[str, Any], node: Node) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    names = {"metadata.name": node.name}
    return bool(expressions or fields) and all(
        [_holds(item, node.labels) for item in expressions] + [_holds(f, names) for f in fields]
    )


def _holds(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found, values = labels.get(requirement["key"]), requirement.get("values") or ()
    check = _OPERATORS.get(requirement["operator"])
    return check is not None and check(found, values)


def _is_greater(*pair: str | None) -> bool:
    numbers = [int(text) for text in pair if text is not None and _INTEGER.fullmatch(text)]
    if len(numbers) != 2 or not all(number in _INT64 for number in numbers):
        return False
    left, right = numbers
    return left > right


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda found, values: found in values,
    "NotIn": lambda found, values: found not in values,
    "Exists": lambda found, _: found is not None,
    "DoesNotExist": lambda found, _: found is None,
    "Gt": lambda found, values: _is_greater(found, *values),
    "Lt": lambda found, values: _is_greater(*values, found),
}
