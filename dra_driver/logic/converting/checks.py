"""What is in the way of a conversion, whatever is asked for."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.logic.converting import asks, notes, reading

Json = dict[str, Any]

MOST = 512
"""Containers of a pod that ask for GPUs: more than any pod for people to read has."""


def check(pod: Json, wishes: Sequence[asks.Wish], said: notes.Notes) -> None:
    """Refuse what cannot be converted, whatever it asks for."""
    if len(wishes) > MOST:
        rule = f"at most {MOST} containers of a pod may ask for GPUs"
        said.refuse("pod", "containers", "more", rule)
        return
    counted = collections.Counter(wish.container.name for wish in wishes)
    for wish in wishes:
        container = wish.container
        if not reading.NAME.fullmatch(container.name) or counted[container.name] > 1:
            rule = "at most 63 letters a-z, digits and `-` are allowed, a name once in a pod"
            said.refuse(container.where, "name", container.name, rule)
        for resource in container.differing:
            rule = "its request has to be the same as its limit: leave the request out"
            said.refuse(container.where, resource, container.amounts[resource], rule)
        _check_daemons(wish, said)
        _check_body(pod["spec"][container.listed][container.index], container.where, said)
    _check_type("pod", "resourceClaims", pod["spec"].get("resourceClaims"), list, said)


def _check_daemons(wish: asks.Wish, said: notes.Notes) -> None:
    shared = [ask for ask in wish.asks if ask.kind.is_shared]
    if shared and len(wish.asks) > 1:
        texts = ", ".join(text for ask in wish.asks for text in ask.asked)
        rule = (
            "a container that has shares reaches their MPS daemon alone: ask for one kind of "
            "device in a container"
        )
        said.refuse(wish.container.where, texts, sum(ask.count for ask in wish.asks), rule)


def _check_body(body: Mapping[str, Any], where: str, said: notes.Notes) -> None:
    _check_type(where, "resources", body.get("resources"), dict, said)
    resources = reading.mapping(body.get("resources"))
    for name in ("limits", "requests"):
        _check_type(where, f"resources.{name}", resources.get(name), dict, said)
    _check_type(where, "resources.claims", resources.get("claims"), list, said)
    _check_type(where, "env", body.get("env"), list, said)


def _check_type(
    where: str, field: str, value: object, kind: type[dict[str, Any] | list[Any]], said: notes.Notes
) -> None:
    if value is not None and not isinstance(value, kind):
        allowed = "a list" if kind is list else "an object"
        said.refuse(where, field, value, f"{allowed} is allowed")
