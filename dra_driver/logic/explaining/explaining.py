"""Why claims have, would get, or cannot get devices: the allocator's rules, told in full.

Read-only, and as the structured allocator of Kubernetes 1.36 decides; of the nodes that fit, the
real scheduler takes one by scores that are not worked out here.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver.logic.admission import share_defaults
from dra_driver.logic.explaining import (
    changes,
    empty_classes,
    hindrances,
    nearest_miss,
    node_choice,
    node_reports,
    problems,
    refused_configs,
    targets,
    too_many_shares,
    unknown_memory,
    unknown_names,
)
from dra_driver.logic.picturing import granted, snapshots
from dra_driver.logic.scheduling import binding, demand, extended_resources
from dra_driver.model import claims

Json = dict[str, Any]

ALLOCATED, FITS, DOES_NOT_FIT = "allocated", "fits", "does not fit"
UNUSABLE, UNSTARTABLE = "allocated, with problems", "fits, with problems"
"""The scheduler has done its part, or will; the driver or the kubelet will not, or cannot."""


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """The answer for one target; what does not concern its verdict is empty.

    `blocked` is why the scheduler does not look for devices; `reasons` hold on every node.
    """

    target: str
    verdict: str
    blocked: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    allocated: tuple[granted.Granted, ...] = ()
    in_the_way: tuple[hindrances.Hindrance, ...] = ()
    options: tuple[node_choice.Option, ...] = ()
    reports: tuple[node_reports.Report, ...] = ()
    nearest: tuple[nearest_miss.Miss, ...] = ()
    groups: tuple[str, ...] = ()
    problem: problems.Problem | None = None
    notes: tuple[str, ...] = ()
    conversion: "Converted | None" = None


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """What conversion would make of a pod that asks as older systems had it, line by line.

    With `problems` it would make nothing. `then` is what would become of the pod that it makes.
    """

    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    how: tuple[str, ...] = ()
    then: Explanation | None = None


def explain(target: targets.Target, snapshot: snapshots.Snapshot) -> Explanation:
    """What becomes of a pod's claims, or of one claim."""
    has = tuple(
        each
        for claim, body in zip(target.claims, target.bodies, strict=True)
        if claim.allocation is not None
        for each in granted.of(body, snapshot)
    )
    pending = [claim for claim in target.claims if claim.allocation is None]
    about = Explanation(
        target.title,
        ALLOCATED,
        allocated=has,
        in_the_way=tuple(
            each
            for claim, body in zip(target.claims, target.bodies, strict=True)
            for each in _in_the_way(claim, body, target, snapshot)
        ),
        notes=(
            *snapshot.notes,
            *target.notes,
            *_unready(target),
            *share_defaults.told(target.claims, snapshot),
        ),
    )
    about = _placed(about, target, pending, snapshot)
    if target.conversion is not None:
        about = dataclasses.replace(about, conversion=_converted(target.conversion))
    if target.extended is not None and about.nearest:
        about = dataclasses.replace(about, notes=(*about.notes, _IN_LIMITS))
    if not any(one.stops for one in about.in_the_way):
        return about
    return dataclasses.replace(about, verdict=_HINDERED[about.verdict])


def _converted(found: targets.Conversion) -> Converted:
    then = None
    if found.target is not None and found.snapshot is not None:
        then = explain(found.target, found.snapshot)
    made = found.made
    return Converted(
        tuple(f"{line.where}: {line.asked}  →  {line.becomes}" for line in made.lines),
        tuple(f"{line.where}: {line.asked}: {line.becomes}" for line in made.warnings),
        tuple(map(str, made.problems)),
        found.how,
        then,
    )


_IN_LIMITS = (
    "an extended resource is a class and a number: fewer devices are another limit of the "
    f"container, another class is another resource ({extended_resources.IMPLICIT}CLASS); whatever "
    "else would help needs a claim in its place (spec.resourceClaims)"
)
_HINDERED = {ALLOCATED: UNUSABLE, FITS: UNSTARTABLE, DOES_NOT_FIT: DOES_NOT_FIT}


def _placed(
    about: Explanation,
    target: targets.Target,
    pending: Sequence[claims.ResourceClaim],
    snapshot: snapshots.Snapshot,
) -> Explanation:
    """With what becomes of claims that have no devices yet, and of a pod that has no node."""
    if not pending and (target.pod is None or target.node):
        return about
    if target.blocked:
        return dataclasses.replace(about, verdict=DOES_NOT_FIT, blocked=target.blocked)
    try:
        plan = demand.plan(pending, snapshot.classes, snapshot.behaviour)
        return _decided(about, node_choice.Search(target, plan, snapshot), done=not pending)
    except demand.Aborted as error:
        problem = problems.of(error, snapshot)
        return dataclasses.replace(about, verdict=DOES_NOT_FIT, problem=problem)


def _in_the_way(
    claim: claims.ResourceClaim, body: Json, target: targets.Target, snapshot: snapshots.Snapshot
) -> Iterator[hindrances.Hindrance]:
    if claim.allocation is not None:
        yield from hindrances.of(body, snapshot, target.node)
        yield from refused_configs.of(claim.ref, claim.allocation, snapshot)


def _unready(target: targets.Target) -> Iterator[str]:
    """Devices that are allocated and not ready for the pod."""
    for claim, body in zip(target.claims, target.bodies, strict=True):
        name = f"claim {claim.ref.namespace}/{claim.ref.name}"
        for text in binding.pending(body):
            yield f"{name} waits for {text}"
        for text in binding.failed(body):
            yield f"{name} will not become ready: {text} is true"


def _decided(about: Explanation, search: node_choice.Search, *, done: bool) -> Explanation:
    options = search.options()
    if options:
        if done:
            return about
        return dataclasses.replace(
            about,
            verdict=FITS,
            in_the_way=(*about.in_the_way, *search.refused()),
            options=options,
            notes=(*about.notes, *search.short_stays()),
        )
    spots = search.spots()
    reports = (*search.barred(), *node_reports.of(spots, search.plan, search.defects))
    unlike = node_reports.unlike(spots)
    nearest, complete = _nearest(search, unlike)
    notes = about.notes
    if not complete:
        notes = (*notes, "not every change, or pair of changes, was tried: there are too many")
    return dataclasses.replace(
        about,
        verdict=DOES_NOT_FIT,
        reasons=(
            *empty_classes.told(search.plan, search.snapshot),
            *unknown_names.told(search.plan, search.snapshot),
            *too_many_shares.told(search.plan, search.snapshot),
            *unknown_memory.told(search.plan, search.snapshot),
        ),
        reports=reports,
        nearest=nearest,
        groups=nearest_miss.groups(search.plan, unlike),
        notes=notes,
    )


def _nearest(
    search: node_choice.Search, spots: Sequence[changes.Spot]
) -> tuple[tuple[nearest_miss.Miss, ...], bool]:
    """What would help, two changes at once where no single one does; whether all was tried."""
    single = nearest_miss.find(search.plan, spots, search.snapshot)
    if misses := (*single.misses, *search.elsewhere()):
        return misses, single.complete
    both = nearest_miss.pairs(search.plan, spots, search.snapshot)
    return both.misses, single.complete and both.complete
