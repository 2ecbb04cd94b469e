"""What pending claims ask for, looked up and compiled once, for all nodes that may be tried."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dra_driver import errors
from dra_driver.logic.cel import derivation, selection
from dra_driver.logic.scheduling import emulation, misnamed
from dra_driver.model import claims, quantities, taints

_MOST = 10
"""Classes that a message names."""
MAX_RESULTS = 32
"""Devices of one claim. Source: Kubernetes 1.36 `resource/v1.AllocationResultsMaxSize`."""


class Aborted(errors.Rejected):
    """An error that stops the allocation for the pod on every node, as the scheduler has it.

    `driver` is that of the device which an expression failed on; empty where there is none.
    """

    def __init__(self, message: str, driver: str = "") -> None:
        super().__init__(message)
        self.driver = driver


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Want:
    """A request, or one alternative of a `firstAvailable` list, ready to be matched."""

    claim: claims.ResourceClaim
    name: str
    """As results call it: `req` or `req/alternative`."""
    spec: claims.DeviceRequest
    device_class: claims.DeviceClass
    class_selectors: tuple[selection.Selector, ...]
    selectors: tuple[selection.Selector, ...]
    tolerations: tuple[taints.Toleration, ...]
    capacity: Mapping[str, quantities.Quantity]
    derived: Mapping[str, derivation.Derivation] = dataclasses.field(default_factory=dict)
    """Attributes that its constraints see in place of those of a device, by full name."""
    behaviour: emulation.Emulation = emulation.FIXED
    """By which its capacities are read."""
    rank: int = 0
    """Position among the alternatives."""

    @property
    def question(self) -> tuple[object, ...]:
        """What it asks of a device by selectors: equal for requests that mean the same devices."""
        return (*self.class_selectors, None, *self.selectors)

    def __str__(self) -> str:
        """As in messages."""
        return f'request "{self.name}" of claim {self.claim.ref.namespace}/{self.claim.ref.name}'


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClaimPlan:
    """A claim and, for each of its requests, the alternatives in order of preference."""

    claim: claims.ResourceClaim
    requests: tuple[tuple[Want, ...], ...]

    @property
    def wants(self) -> tuple[Want, ...]:
        """All alternatives of all requests."""
        return tuple(want for alternatives in self.requests for want in alternatives)


Plan = tuple[ClaimPlan, ...]
"""The claims of a pod that are allocated together, in order."""


def plan(
    pending: Sequence[claims.ResourceClaim],
    classes: Mapping[str, claims.DeviceClass],
    behaviour: emulation.Emulation = emulation.FIXED,
) -> Plan:
    """The wants of these claims, in order.

    Raises:
        Aborted: a class that does not exist, an expression that does not compile, an allocation
            mode that is not known.
    """
    return tuple(
        ClaimPlan(
            claim,
            tuple(
                tuple(
                    _want(claim, request, alternative, classes, rank, behaviour)
                    for rank, alternative in enumerate(request.alternatives)
                )
                for request in claim.requests
            ),
        )
        for claim in pending
    )


def _want(
    claim: claims.ResourceClaim,
    request: claims.Request,
    spec: claims.DeviceRequest,
    classes: Mapping[str, claims.DeviceClass],
    rank: int,
    behaviour: emulation.Emulation,
) -> Want:
    name = request.result_name(spec)
    where = f'claim {claim.ref.namespace}/{claim.ref.name}, request "{name}"'
    device_class = classes.get(spec.device_class)
    if device_class is None:
        raise Aborted(
            f"{where}: device class {spec.device_class} does not exist"
            f"{_instead(spec.device_class, classes)}"
        )
    if spec.mode not in {claims.EXACT_COUNT, claims.ALL}:
        raise Aborted(
            f"{where}: allocation mode {spec.mode!r} is not known; allowed are ExactCount and All"
        )
    requests = (spec.extra.get("capacity") or {}).get("requests") or {}
    return Want(
        claim=claim,
        name=name,
        spec=spec,
        device_class=device_class,
        class_selectors=_compile(
            device_class.selectors, f"{where}, device class {device_class.name}"
        ),
        selectors=_compile(spec.selectors, where),
        tolerations=tuple(map(taints.parse_toleration, spec.extra.get("tolerations") or ())),
        capacity={key: quantities.parse(str(value)) for key, value in requests.items()},
        derived={
            item["name"]: _derivation(item["expression"], f"{where}, {item['name']}")
            for item in spec.extra.get("derivedAttributes") or ()
        },
        behaviour=behaviour,
        rank=rank,
    )


def _instead(name: str, classes: Collection[str]) -> str:
    if near := misnamed.nearest_class(name, classes):
        return f": if {' or '.join(near)} was meant, write that; else create it"
    listed = sorted(classes)
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return f": create it, or name one that does: {', '.join(listed[:_MOST]) or 'none does'}{more}"


def _derivation(expression: str, where: str) -> derivation.Derivation:
    try:
        return derivation.compile(expression)
    except selection.CompileError as error:
        raise Aborted(f"{where}: {error}") from error


def _compile(expressions: Sequence[str], where: str) -> tuple[selection.Selector, ...]:
    try:
        return tuple(map(selection.compile, expressions))
    except selection.CompileError as error:
        raise Aborted(f"{where}: {error}") from error
