"""Rules for the attributes that requests derive from those of devices.

Source: Kubernetes 1.37, `resource/v1.DeviceDerivedAttribute` and its page at kubernetes.io. The
limit of what all expressions of a claim may cost together is not kept.
"""

import functools
from collections.abc import Iterator
from typing import Any

from dra_driver.sim.api.kinds import fields, strategies, syntax

Json = dict[str, Any]

_MAX_DERIVED = 32
_LONGEST_EXPRESSION = 10 * 1024


def errors(devices: Json, path: str, around: strategies.Surroundings) -> fields.Errors:
    """What is wrong with those of all requests, `path` being that of `devices`."""
    found: fields.Errors = []
    for names, request, place in _requests(devices, path):
        check = functools.partial(
            _errors, around=around, used=_used(devices.get("constraints") or (), names)
        )
        found += fields.distinct(
            request.get("derivedAttributes"),
            _MAX_DERIVED,
            f"{place}.derivedAttributes",
            check,
            lambda item: item.get("name", ""),
        )
    return found


def _requests(devices: Json, path: str) -> Iterator[tuple[set[str], Json, str]]:
    """With the names by which constraints mean them, and their paths."""
    for index, request in enumerate(devices.get("requests") or ()):
        name, place = request.get("name", ""), f"{path}.requests[{index}]"
        if "exactly" in request:
            yield {name}, request["exactly"], f"{place}.exactly"
        for position, other in enumerate(request.get("firstAvailable") or ()):
            names = {name, f"{name}/{other.get('name', '')}"}
            yield names, other, f"{place}.firstAvailable[{position}]"


def _used(constraints: Any, names: set[str]) -> set[str]:
    """The attributes of the constraints that concern a request of one of the names."""
    return {
        attribute
        for constraint in constraints
        if not constraint.get("requests") or not names.isdisjoint(constraint["requests"])
        for attribute in (constraint.get("matchAttribute"), constraint.get("distinctAttribute"))
        if attribute is not None
    }


def _errors(
    item: Json, path: str, *, around: strategies.Surroundings, used: set[str]
) -> fields.Errors:
    name, expression = item.get("name") or "", item.get("expression") or ""
    if not name:
        return [fields.required(f"{path}.name")]
    found = syntax.fully_qualified_name(name, f"{path}.name", minor=around.minor)
    if name not in used:
        detail = "must be used by at least one constraint that applies to the request"
        found.append(fields.invalid(f"{path}.name", name, detail))
    place = f"{path}.expression"
    if not expression:
        return [*found, fields.required(place)]
    if too_long := syntax.text(expression, place, _LONGEST_EXPRESSION):
        return found + too_long
    problem = around.derivation_check(expression)
    return found if problem is None else [*found, fields.invalid(place, expression, problem)]
