"""What a real kube-scheduler 1.36.2 decided on thousands of pods, beside what ours decides.

The recordings lie beside the repository and not in it; tests that need one skip without it.
"""

import collections
import dataclasses
import functools
import gzip
import json
import pathlib
import re
from typing import Any

import pytest

from dra_driver.logic.scheduling import emulation, placing, pools, scheduling, usage
from dra_driver.model import claims, nodes, slices

Json = dict[str, Any]

RECORDINGS = pathlib.Path(__file__).parents[2] / "shared" / "recordings" / "scheduler-1.36"
RELEASED = emulation.of_release("1.36.2")

# What each of the two says, by what it means.
_ERRORS = {
    r"CEL (runtime|compile) error|CEL result": "CEL expression",
    r"asks for all devices, but resource pool": "needs every pool",
    r"a claim constraint would not be satisfied": "which breaks",
    r"exceeds the claim limit": "split it into several claims",
    r"timed out trying to allocate": "no answer after",
}
_VERDICTS = {
    "cannot allocate all claims": "short",
    "invalid resource pools were encountered": "invalid",
    "resourceclaim not available on the node": "tied",
}


@dataclasses.dataclass(frozen=True)
class Fleet:
    """A cluster at rest: what all decisions after it were made with."""

    inventory: pools.Inventory
    classes: dict[str, claims.DeviceClass]
    nodes: tuple[nodes.Node, ...]


@functools.cache
def load(name):
    """(fleet, decision) of a recording, in order."""
    path = RECORDINGS / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no recording {name}")
    decisions, fleet = [], None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            body = json.loads(line)
            if "slices" in body:
                fleet = _fleet(body)
            else:
                decisions.append((fleet, body))
    return decisions


def difference(fleet, decision):
    """What ours does otherwise, with where the decision is; None if nothing."""
    kind, told = decision["real"]
    check = {"bound": _bound, "unschedulable": _unschedulable, "error": _stopped}[kind]
    found = check(_Replay(fleet, decision), decision, told)
    return None if found is None else (decision["seed"], decision["step"], told, found)


class _Replay:
    """A decision that is made again, on all nodes or on some."""

    def __init__(self, fleet, decision):
        self.fleet = fleet
        self.claims = [claims.parse(body) for body in decision["claims"]]
        own = {claim.ref.uid for claim in self.claims}
        others = [
            claims.parse_allocation(body["status"]["allocation"])
            for body in decision["allocated"]
            if body["metadata"]["uid"] not in own
        ]
        held = [claim.allocation for claim in self.claims if claim.allocation is not None]
        self._in_use = usage.InUse.of([*others, *held])
        self._pod = placing.parse(decision["pod"])

    def place(self, *on):
        """On these nodes, in this order."""
        view = scheduling.View(
            self.fleet.inventory, self.fleet.classes, on, self._in_use, lambda: "S", RELEASED
        )
        return scheduling.place(self._pod, self.claims, view)


def _bound(replay, decision, name):
    """With the node first on which the pod was bound: it has to be among the best."""
    on = sorted(replay.fleet.nodes, key=lambda node: node.name != name)
    found = replay.place(*on)
    if not isinstance(found, scheduling.Placement) or found.node != name:
        return found
    given = iter(found.allocations)
    allocations = [claim.allocation or next(given) for claim in replay.claims]
    ours = [_comparable(claims.format_allocation(allocation)) for allocation in allocations]
    recorded = [_comparable(body) for body in decision["after"]]
    return None if ours == recorded else (ours, recorded)


def _unschedulable(replay, _decision, message):
    refusal = replay.place(*replay.fleet.nodes)
    if not isinstance(refusal, scheduling.Refusal):
        return refusal
    ours = collections.Counter(_verdict(replay.place(node)) for node in replay.fleet.nodes)
    recorded = collections.Counter()
    listed = message.partition(": ")[2].partition(". still not schedulable")[0]
    for part in listed.split(", "):
        count, _, text = part.partition(" ")
        recorded[_VERDICTS[text]] += int(count)
    free = [c.ref.name for c in replay.claims if c.ref.uid in refusal.blocking]
    given_back = [c.ref.name for c in replay.claims if c.ref.name in free and not c.reserved_for]
    return None if ours == recorded and not given_back else (ours, recorded, given_back)


def _stopped(replay, _decision, message):
    found = replay.place(*replay.fleet.nodes)
    if not isinstance(found, scheduling.Refusal):
        return found
    wanted = next(ours for pattern, ours in _ERRORS.items() if re.search(pattern, message))
    if wanted in found.message:
        return None
    # Nodes are filtered side by side: of several errors any may be told.
    each = [replay.place(node) for node in replay.fleet.nodes]
    told = [one.message for one in each if isinstance(one, scheduling.Refusal)]
    return None if any(wanted in text for text in told) else (wanted, found, told)


def _verdict(found):
    if isinstance(found, scheduling.Placement):
        return "placed"
    if "cannot use the devices that the pod's claims have" in found.message:
        return "tied"
    return "invalid" if " is invalid: " in found.message else "short"


def _comparable(allocation):
    body = json.loads(json.dumps(allocation))
    body.pop("allocationTimestamp", None)
    for result in body["devices"].get("results", ()):
        if "shareID" in result:
            result["shareID"] = "S"
    return body


def _fleet(body):
    return Fleet(
        pools.Inventory.of(slices.parse(item) for item in body["slices"]),
        {item["metadata"]["name"]: claims.parse_class(item) for item in body["classes"]},
        tuple(nodes.parse(item) for item in body["nodes"]),
    )
