"""What a container asks for -> the spec of a claim, and the name of its template."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from dra_driver.logic.cel import selection
from dra_driver.logic.converting import alternatives, asks, conversion, notes, sizes
from dra_driver.model import parameters, quantities

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """The spec of a claim, and what is in it, in words: a text for each ask."""

    body: Json
    told: tuple[str, ...]

    @property
    def template(self) -> conversion.Template:
        """The template for such claims; equal specs have equal names."""
        text = json.dumps(self.body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return conversion.Template(f"{conversion.TEMPLATES}{digest}", self.body)


def of(
    wish: asks.Wish, selectors: Sequence[str], policy: conversion.Policy, said: notes.Notes
) -> Spec | None:
    """The spec for what a container wants, with selectors of its pod's; None if it was refused."""
    where = wish.container.where
    devices = sum(ask.count for ask in wish.asks)
    if devices > parameters.MOST_DEVICES:
        field = ", ".join(text for ask in wish.asks for text in ask.asked)
        rule = (
            f"a claim has at most {parameters.MOST_DEVICES} devices: ask for fewer in one container"
        )
        said.refuse(where, field, devices, rule)
        return None
    requests: list[Json] = []
    constraints: list[Json] = []
    told: list[str] = []
    for number, ask in enumerate(wish.asks, start=1):
        name = "gpu" if number == 1 else f"gpu-{number}"
        found = sizes.of(where, ask, policy, said)
        if not found:
            return None
        if _is_too_long(found):
            field = ", ".join(ask.asked)
            rule = f"the selectors for it are longer than {selection.MAX_LENGTH} bytes: list fewer"
            said.refuse(where, field, ask.count, rule)
            return None
        requests.append(_request(name, ask, found, selectors))
        constraints += _constraints(name, ask, policy.driver)
        told.append(_told(ask, found))
    body: Json = {"requests": requests}
    if constraints:
        body["constraints"] = constraints
    return Spec({"devices": body}, tuple(told))


def _is_too_long(found: Sequence[alternatives.Alternative]) -> bool:
    return any(selection.is_too_long(each) for one in found for each in one.selectors)


def _request(
    name: str, ask: asks.Ask, found: Sequence[alternatives.Alternative], selectors: Sequence[str]
) -> Json:
    if len(found) == 1:
        return {"name": name, "exactly": _devices(ask, found[0], selectors)}
    listed = [{"name": one.name, **_devices(ask, one, selectors)} for one in found]
    return {"name": name, "firstAvailable": listed}


def _devices(ask: asks.Ask, one: alternatives.Alternative, selectors: Sequence[str]) -> Json:
    body: Json = {"deviceClassName": one.device_class}
    expressions = [*one.selectors, *selectors]
    if expressions:
        body["selectors"] = [{"cel": {"expression": each}} for each in expressions]
    if ask.count > 1:
        body["count"] = ask.count
    if one.capacity:
        body["capacity"] = {"requests": dict(one.capacity)}
    return body


def _constraints(name: str, ask: asks.Ask, driver: str) -> list[Json]:
    if ask.count == 1:
        return []
    found: list[Json] = []
    # Partitions have no UUID before they are made, and of one card there may be several.
    if not ask.kind.is_partition:
        found.append({"requests": [name], "distinctAttribute": f"{driver}/uuid"})
    if ask.one_numa_node:
        found.append({"requests": [name], "matchAttribute": f"{driver}/numaNode"})
    return found


def _told(ask: asks.Ask, found: Sequence[alternatives.Alternative]) -> str:
    ways = [_told_way(one) for one in found]
    text = ways[0] if len(ways) == 1 else f"the first that is free of: {'; '.join(ways)}"
    many = f"{ask.count} x " if ask.count > 1 else ""
    profile = f" {ask.profile}" if ask.profile else ""
    apart = ", on different cards" if ask.count > 1 and not ask.kind.is_partition else ""
    return f"{many}{found[0].device_class}{profile}{': ' if text else ''}{text}{apart}"


def _told_way(one: alternatives.Alternative) -> str:
    amounts = ", ".join(f"{name} {amount}" for name, amount in one.capacity.items())
    if one.least:
        amounts = f"at least {quantities.of_bytes(one.least)}"
    return f"{amounts} of a card of {one.size >> 20}Mi" if one.size else amounts
