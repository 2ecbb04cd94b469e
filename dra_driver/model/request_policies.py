"""How much of a capacity one share of a device may take: `requestPolicy` of a device's capacity.

Source: Kubernetes 1.36, `resource/v1.CapacityRequestPolicy`.
"""

import dataclasses
from typing import Any

from dra_driver.model import quantities

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ValidRange:
    """From `minimum` on, in steps if there is a step, up to the maximum or else the capacity."""

    minimum: quantities.Quantity | None = None
    maximum: quantities.Quantity | None = None
    step: quantities.Quantity | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RequestPolicy:
    """What a share takes by default and which amounts it may take; without either any amount."""

    default: quantities.Quantity | None = None
    values: tuple[quantities.Quantity, ...] = ()
    """Ascending, as published."""
    within: ValidRange | None = None


def parse(body: Json) -> RequestPolicy:
    """The policy in a `requestPolicy`."""
    limits = body.get("validRange")
    return RequestPolicy(
        default=_quantity(body, "default"),
        values=tuple(quantities.parse(str(value)) for value in body.get("validValues") or ()),
        within=None
        if limits is None
        else ValidRange(*(_quantity(limits, key) for key in ("min", "max", "step"))),
    )


def format_policy(policy: RequestPolicy) -> Json:
    """The wire form of a policy."""
    body: Json = {} if policy.default is None else {"default": str(policy.default)}
    if policy.values:
        body["validValues"] = [str(value) for value in policy.values]
    if policy.within is not None:
        limits = (policy.within.minimum, policy.within.maximum, policy.within.step)
        named = zip(("min", "max", "step"), limits, strict=True)
        body["validRange"] = {key: str(value) for key, value in named if value is not None}
    return body


def _quantity(body: Json, key: str) -> quantities.Quantity | None:
    return quantities.parse(str(body[key])) if body.get(key) is not None else None
