"""Pods that ask as older systems had it, and claims, in few words; the words are those of the wire.

Nothing here is computed by the code that is tested: what a claim should be is written out.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.logic.converting import conversion, converting, fleet

Json = dict[str, Any]

DRIVER = "gpu.nvidia.com"
WHOLE, SHARED, MIG = "gpu.nvidia.com", "shared-mps.gpu.nvidia.com", "mig.nvidia.com"
A, C = "device.attributes['gpu.nvidia.com']", "device.capacity['gpu.nvidia.com']"
IS_GPU = f"{A}.type == 'gpu'"
UNDIVIDED = f"!('shares' in {C})"
CLAIM = "gpu-main"
GIB, MIB = 2**30, 2**20


# Fleets and policies


def card(
    gib: int,
    *,
    shared: str = "memory",
    product: str = "",
    profiles: Mapping[str, int] | None = None,
) -> fleet.CardKind:
    """A kind of card with so many GiB; `profiles` have MiB."""
    parts = tuple((name, mib * MIB) for name, mib in (profiles or {}).items())
    return fleet.CardKind(product or f"Card {gib}", gib * GIB, shared, parts)


def policy(*cards: fleet.CardKind, command: bool = True, **more: Any) -> conversion.Policy:
    """With a fleet of these cards; without a fleet if there are none."""
    door = conversion.Door.COMMAND if command else conversion.Door.WEBHOOK
    known = fleet.of(cards) if cards else None
    return conversion.Policy(DRIVER, door, more.pop("share_class", SHARED), known, **more)


EIGHTY = policy(card(80))
"""All cards have 80 GiB, and are shared by amounts."""
MIXED = policy(card(24), card(80))
NO_FLEET = policy()


# Claims


def devices(of_class: str, *selectors: str, count: int = 1, **amounts: str) -> Json:
    """What one request asks for, but for its name."""
    body: Json = {"deviceClassName": of_class}
    if selectors:
        body["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    if count > 1:
        body["count"] = count
    if amounts:
        body["capacity"] = {"requests": amounts}
    return body


def share(memory: str, cores: str, *selectors: str, count: int = 1) -> Json:
    """A share of a card; one without memory if that is empty."""
    amounts = {"memory": memory, "cores": cores} if memory else {"cores": cores}
    return devices(SHARED, IS_GPU, *selectors, count=count, **amounts)


def one(body: Json, *, name: str = "gpu") -> Json:
    """A claim for just that; several devices are different cards, unless they are partitions."""
    spec: Json = {"requests": [{"name": name, "exactly": body}]}
    if body.get("count", 1) > 1 and body["deviceClassName"] != MIG:
        spec["constraints"] = [APART]
    return {"devices": spec}


def first(**alternatives: Json) -> Json:
    """A claim for the first of these that is free; `_` in a name is `-`."""
    listed = [{"name": name.replace("_", "-"), **body} for name, body in alternatives.items()]
    spec: Json = {"requests": [{"name": "gpu", "firstAvailable": listed}]}
    if listed[0].get("count", 1) > 1:
        spec["constraints"] = [APART]
    return {"devices": spec}


APART = {"requests": ["gpu"], "distinctAttribute": "gpu.nvidia.com/uuid"}
ONE_NUMA_NODE = {"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/numaNode"}


def with_constraints(claim: Json, *constraints: Json) -> Json:
    return {"devices": {**claim["devices"], "constraints": list(constraints)}}


def at_least(amount: str) -> str:
    return f"'memory' in {C} && {C}.memory.compareTo(quantity('{amount}')) >= 0"


def has_just(amount: str) -> str:
    return f"'memory' in {C} && {C}.memory.compareTo(quantity('{amount}')) == 0"


def of_profile(name: str) -> str:
    return f"'profile' in {A} && {A}.profile == '{name}'"


# Pods


def container(name: str = "main", limits: Json | None = None, **fields: Any) -> Json:
    resources = {"resources": {"limits": limits}} if limits is not None else {}
    return {"name": name, "image": "none", **resources, **fields}


def pod(*containers: Json, metadata: Json | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"name": "old", **(metadata or {})},
        "spec": {"containers": list(containers), **spec},
    }


@dataclasses.dataclass(frozen=True)
class Ask:
    """What a container `main` asks for, and what becomes of it.

    `warned` are the beginnings of all warnings, `added` is what the container gets.
    """

    limits: Json
    claim: Json
    policy: conversion.Policy = EIGHTY
    annotations: Json = dataclasses.field(default_factory=dict)
    labels: Json = dataclasses.field(default_factory=dict)
    spec: Json = dataclasses.field(default_factory=dict)
    left: Json = dataclasses.field(default_factory=dict)
    warned: Sequence[str] = ()
    added: Json = dataclasses.field(default_factory=dict)


def check(ask: Ask) -> None:
    """That the ask becomes this claim and nothing else of the pod changes.

    The resources are in limits and in requests; of the pod's spec `left` is what stays of `spec`.
    """
    labels = {"labels": ask.labels} if ask.labels else {}
    metadata = {"annotations": {"example.com/kept": "1", **ask.annotations}, **labels}
    resources = {"limits": {"cpu": "2", **ask.limits}, "requests": {**ask.limits, "cpu": "1"}}
    given = pod(container(resources=resources), metadata=metadata, **ask.spec)
    before = copy.deepcopy(given)
    made = converting.convert(given, ask.policy)
    assert given == before
    assert made.problems == ()
    assert [template.spec for template in made.templates] == [ask.claim]
    kept = {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}, "claims": [{"name": CLAIM}]}
    claims = [{"name": CLAIM, "resourceClaimTemplateName": made.templates[0].name}]
    assert made.pod == pod(
        container(resources=kept, **ask.added),
        metadata={"annotations": {"example.com/kept": "1"}, **labels},
        **ask.left,
        resourceClaims=claims,
    )
    begins(told(made.warnings), ask.warned)
    assert made.is_converted


def told(lines: Sequence[conversion.Line]) -> list[str]:
    """Lines as people read them."""
    return [f"{line.where}: {line.asked}: {line.becomes}" for line in lines]


def begins(found: Sequence[str], beginnings: Sequence[str]) -> None:
    """That these are the beginnings of all that was found."""
    assert len(found) == len(beginnings), found
    for text, beginning in zip(found, beginnings, strict=True):
        assert text.startswith(beginning), found


def converted(body: Any, under: conversion.Policy = EIGHTY) -> conversion.Conversion:
    """What becomes of a pod for which that works."""
    made = converting.convert(body, under)
    assert made.problems == ()
    assert made.is_converted
    return made


def refused(body: Any, under: conversion.Policy = EIGHTY) -> list[conversion.Problem]:
    """The problems of a pod, of which nothing is converted."""
    before = copy.deepcopy(body)
    made = converting.convert(body, under)
    assert body == before
    assert made.pod is body
    assert (made.templates, made.lines, made.is_converted) == ((), (), False)
    return list(made.problems)


def problem(field: str, value: str, rule: str, where: str = "container main") -> conversion.Problem:
    return conversion.Problem(where, field, value, rule)


def specs(made: conversion.Conversion) -> dict[str, Json]:
    """The specs of the pod's claims, by their names; of templates each is used."""
    by_name = {template.name: template.spec for template in made.templates}
    named = {
        claim["name"]: claim["resourceClaimTemplateName"]
        for claim in made.pod["spec"].get("resourceClaims", ())
        if "resourceClaimTemplateName" in claim
    }
    assert by_name.keys() <= {*named.values()}
    return {name: by_name[template] for name, template in named.items() if template in by_name}
