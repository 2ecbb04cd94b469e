"""The door: a pod that asks as older systems had it -> the same with claims, or why not."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from dra_driver.logic.converting import (
    asks,
    conversion,
    labels,
    notes,
    reading,
    rewriting,
    scenes,
    specs,
    systems,
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
    wishes = tuple(systems.wishes(scene))
    made = _made(pod, wishes, scene) if wishes and not said.problems else None
    if made is None or said.problems:
        return conversion.Conversion(
            pod, warnings=tuple(said.warnings), problems=tuple(said.problems)
        )
    changed, claims = made
    templates = dict.fromkeys(claim.spec.template.name for claim in claims)
    by_name = {claim.spec.template.name: claim.spec.template for claim in claims}
    return conversion.Conversion(
        changed,
        tuple(by_name[name] for name in templates),
        tuple(said.lines),
        tuple(said.warnings),
    )


def _made(
    pod: Json, wishes: Sequence[asks.Wish], scene: scenes.Scene
) -> tuple[Json, Sequence[_Claim]] | None:
    """The pod with claims, and these; None if something was refused."""
    said = scene.said
    _check(pod, wishes, said)
    found = labels.read(pod["spec"], scene.policy.driver)
    said.add(found.lines, found.warnings, found.problems)
    if said.problems:
        return None
    owners = uses.owners(wishes)
    claims = _claims(pod, wishes, owners, found.selectors, scene)
    if said.problems:
        return None
    for wish, owner in zip(wishes, owners, strict=True):
        _explain(wish, claims[owner], said)
    changed = rewriting.rewritten(
        {**pod, "spec": found.spec},
        [
            rewriting.Change(wish, claims[owner].name)
            for wish, owner in zip(wishes, owners, strict=True)
        ],
        {claim.name: claim.spec.template.name for claim in claims.values()},
        annotations={name for wish in wishes for name in wish.annotations},
    )
    return changed, tuple(claims.values())


def _claims(
    pod: Json,
    wishes: Sequence[asks.Wish],
    owners: Sequence[int],
    selectors: Sequence[str],
    scene: scenes.Scene,
) -> dict[int, _Claim]:
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


def _check(pod: Json, wishes: Sequence[asks.Wish], said: notes.Notes) -> None:
    """Refuse what the API server refuses, where it is in the way."""
    counted = collections.Counter(wish.container.name for wish in wishes)
    for wish in wishes:
        container = wish.container
        body = pod["spec"][container.listed][container.index]
        if not reading.NAME.fullmatch(container.name) or counted[container.name] > 1:
            rule = "at most 63 letters a-z, digits and `-` are allowed, a name once in a pod"
            said.refuse(container.where, "name", container.name, rule)
        for resource in container.differing:
            rule = "its request has to be the same as its limit: leave the request out"
            said.refuse(container.where, resource, container.amounts[resource], rule)
        _check_list(container.where, "resources.claims", body["resources"].get("claims"), said)
        _check_list(container.where, "env", body.get("env"), said)
    _check_list("pod", "resourceClaims", pod["spec"].get("resourceClaims"), said)


def _check_list(where: str, field: str, value: object, said: notes.Notes) -> None:
    if value is not None and not isinstance(value, list):
        said.refuse(where, field, value, "a list is allowed")


def _explain(wish: asks.Wish, claim: _Claim, said: notes.Notes) -> None:
    where = wish.container.where
    if claim.owner is not wish.container:
        asked = ", ".join(text for ask in wish.asks for text in ask.asked)
        said.tell(where, asked, f"claim {claim.name} of {claim.owner.where}: they take turns")
    else:
        for ask, told in zip(wish.asks, claim.spec.told, strict=True):
            said.tell(where, ", ".join(ask.asked), f"claim {claim.name}: {told}")
    for name, value in wish.environment:
        said.tell(where, "nvidia.com/priority", f"environment {name}={value}")
