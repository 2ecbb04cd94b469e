"""Names that a claim asks for and none of the devices in question has."""

import itertools
import re
from collections.abc import Iterator, Sequence

from dra_driver.logic.explaining import unknown_memory
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import (
    candidacy,
    capacities,
    constraints,
    demand,
    hurdles,
    misnamed,
)
from dra_driver.model import claims, texts

_NONE = "(none)"
"""What `selection` shows for a value that a device lacks."""
_PATH = re.compile(r'device\.(attributes|capacity)\["([^"]*)"\]\.(.+)', re.DOTALL)

_Devices = Sequence[candidacy.Candidate]


def told(plan: demand.Plan, snapshot: snapshots.Snapshot) -> Iterator[str]:
    """A sentence for each name that leaves a request without devices everywhere, but for those
    that `unknown_memory` has a reason for.
    """
    seen = {
        candidate.id: candidate
        for node in snapshot.nodes
        for candidate in snapshot.inventory.seen(node).candidates
    }
    for item in plan:
        for want in item.wants:
            of_class = [one for one in seen.values() if hurdles.all_hold(want.class_selectors, one)]
            yield from _few(want, _in_selectors(want, of_class))
            yield from _few(want, _in_capacity(want, of_class))
            # Whom the request means; of its class where it means none.
            meant = [one for one in of_class if hurdles.all_hold(want.selectors, one)] or of_class
            for constraint in item.claim.constraints:
                if constraints.Attribute(constraint).concerns(want.name):
                    yield from _in_constraint(constraint, want, meant)


def _few(want: demand.Want, sentences: Iterator[str]) -> Iterator[str]:
    """The first: who writes a claim chooses how many names are in it."""
    yield from itertools.islice(sentences, texts.MOST_PROBLEMS)
    if next(sentences, None) is not None:
        yield f'request "{want.name}": and more names that none of these devices has'


def _in_selectors(want: demand.Want, of_class: _Devices) -> Iterator[str]:
    """Names that are asked for with care, so that it is no error that nothing has them."""
    lacking: dict[str, int] = {}
    for candidate in of_class:
        for path in _lacking(want, candidate):
            lacking[path] = lacking.get(path, 0) + 1
    places = misnamed.places(of_class) if lacking else {}
    for path in (path for path, count in lacking.items() if count == len(of_class)):
        match = _PATH.fullmatch(path)
        if match and unknown_memory.explains(match[1], match[2], match[3], of_class):
            continue
        paths = misnamed.paths(match[3], places) if match else ()
        hint = f"; they have {', '.join(paths)}" if paths else ""
        yield (
            f'request "{want.name}": no device of class {want.device_class.name} has '
            f"{path}, which its selector asks for{hint}"
        )


def _in_capacity(want: demand.Want, of_class: _Devices) -> Iterator[str]:
    names = capacities.Names(((one.device, one.id.driver) for one in of_class), want.behaviour)
    published = {known for one in of_class for known in one.device.capacity}
    for name in sorted(want.capacity) if of_class else ():
        if name in names:
            continue
        domain, _, own = name.rpartition("/")
        if unknown_memory.explains("capacity", domain, own, of_class):
            continue
        near = misnamed.nearest(name, published)
        hint = f"; they have {', '.join(near)}: write {near[0]}" if near else ""
        yield (
            f'request "{want.name}": no device of class {want.device_class.name} has capacity '
            f"{name}, of which capacity.requests asks for {want.capacity[name]}{hint}"
        )


def _lacking(want: demand.Want, candidate: candidacy.Candidate) -> set[str]:
    """What the parts of selectors that do not hold for a device asked for in vain."""
    return {
        path
        for selector in want.selectors
        for part in selector.explain(candidate.device, candidate.id.driver)
        if part.outcome is False
        for path, value in part.reads
        if value == _NONE
    }


def _in_constraint(
    constraint: claims.Constraint, want: demand.Want, meant: _Devices
) -> Iterator[str]:
    if constraint.attribute in want.derived:
        return
    values = (constraints.lookup(one.device, one.id.driver, constraint.attribute) for one in meant)
    if meant and all(value is None for value in values):
        ref = want.claim.ref
        yield (
            f"{constraints.Attribute(constraint)} of claim {ref.namespace}/{ref.name}: none of the "
            f'{len(meant)} devices that request "{want.name}" means has this attribute'
            f"{_instead(constraint, meant)}"
        )


def _instead(constraint: claims.Constraint, meant: _Devices) -> str:
    """What was meant, or why that cannot be."""
    attributes = {_full(name, one.id.driver) for one in meant for name in one.device.attributes}
    if near := misnamed.nearest(constraint.attribute, attributes):
        field = "distinctAttribute" if constraint.distinct else "matchAttribute"
        return f"; they have {', '.join(near)}: write {field}: {near[0]}"
    capacity = {_full(name, one.id.driver) for one in meant for name in one.device.capacity}
    if near := misnamed.nearest(constraint.attribute, capacity):
        return (
            f"; {near[0]} is a capacity, and constraints compare attributes: ask for an amount of "
            "it with a selector, or with capacity.requests"
        )
    return ": `kubectl get resourceslices -o yaml` shows what devices have"


def _full(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"
