"""The door: a pod that asks as older systems had it -> the same with claims, or why not."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.logic.converting import (
    asks,
    checks,
    conversion,
    labelled,
    leftovers,
    notes,
    reading,
    rewriting,
    scenes,
    specs,
    systems,
    unread,
    uses,
)

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of the pod, for the container that it is named after."""

    name: str
    owner: reading.Container
    spec: specs.Spec


def convert(pod: Json, policy: conversion.Policy) -> conversion.Conversion:
    """What becomes of a pod, or of a pod template: an object with `metadata` and `spec`.

    Whatever was decoded from JSON gets an answer; what is no pod asks for nothing. The pod that was
    given is not changed.
    """
    said = notes.Notes()
    scene = scenes.Scene(reading.read(pod), policy, said)
    wishes = tuple(itertools.islice(systems.wishes(scene), checks.MOST + 1))
    made = None
    if not said.problems:
        unread.warn(scene, wishes)
    if wishes and not said.problems:
        made = _made(pod, wishes, scene)
    elif not wishes:
        labelled.warn(pod, scene)
    if made is None or said.problems:
        return conversion.Conversion(
            pod, warnings=tuple(said.warnings), problems=tuple(said.problems)
        )
    changed, claims = made
    templates = {claim.spec.template.name: claim.spec.template for claim in claims}
    return conversion.Conversion(
        changed, tuple(templates.values()), tuple(said.lines), tuple(said.warnings)
    )


def _made(
    pod: Json, wishes: Sequence[asks.Wish], scene: scenes.Scene
) -> tuple[Json, Sequence[_Claim]] | None:
    """The pod with claims, and these; None if something was refused."""
    said = scene.said
    checks.check(pod, wishes, said)
    if said.problems:
        return None
    found = labelled.read(pod, wishes, scene)
    if said.problems:
        return None
    owners = uses.owners(found.wishes)
    claims = _claims(pod, found.wishes, owners, found.selectors, scene)
    if said.problems:
        return None
    for wish, owner in zip(found.wishes, owners, strict=True):
        _explain(wish, claims[owner], said)
    changed = rewriting.rewritten(
        {**pod, "spec": found.spec},
        [
            rewriting.Change(_with_room(pod, wish, said), claims[owner].name)
            for wish, owner in zip(found.wishes, owners, strict=True)
        ],
        {claim.name: claim.spec.template.name for claim in claims.values()},
        annotations={name for wish in wishes for name in wish.annotations}
        | {*unread.records(scene)},
    )
    return leftovers.settle(changed, found.wishes, scene.policy.door, said), tuple(claims.values())


def _claims(
    pod: Json,
    wishes: Sequence[asks.Wish],
    owners: Sequence[int],
    selectors: Sequence[str],
    scene: scenes.Scene,
) -> Mapping[int, _Claim]:
    """The claims of the pod, by the place of the wish that each is for."""
    taken = {
        claim["name"]
        for claim in reading.listed(pod["spec"].get("resourceClaims"))
        if isinstance(reading.mapping(claim).get("name"), str)
    }
    found: dict[int, _Claim] = {}
    for place in sorted(set(owners)):
        owner = wishes[place].container
        spec = specs.of(wishes[place], selectors, scene.policy, scene.said)
        if spec is not None:
            name = rewriting.claim_name(owner.name, taken)
            taken.add(name)
            found[place] = _Claim(name, owner, spec)
    return found


def _with_room(pod: Json, wish: asks.Wish, said: notes.Notes) -> asks.Wish:
    """The wish without variables that its container has already."""
    container = wish.container
    body = pod["spec"][container.listed][container.index]
    has = [reading.mapping(one).get("name") for one in reading.listed(body.get("env"))]
    for name, value in wish.environment:
        if name in has:
            becomes = f"stays as it is: {name}={value} is what was asked for otherwise"
            said.warn(container.where, f"env {name}", becomes)
        else:
            said.tell(
                container.where, f"nvidia.com/priority: {value}", f"environment {name}={value}"
            )
    left = tuple(one for one in wish.environment if one[0] not in has)
    return dataclasses.replace(wish, environment=left)


def _explain(wish: asks.Wish, claim: _Claim, said: notes.Notes) -> None:
    where = wish.container.where
    if claim.owner is not wish.container:
        asked = ", ".join(text for ask in wish.asks for text in ask.asked)
        said.tell(where, asked, f"claim {claim.name} of {claim.owner.where}: they take turns")
        return
    for ask, told in zip(wish.asks, claim.spec.told, strict=True):
        said.tell(where, ", ".join(ask.asked), f"claim {claim.name}: {told}")
