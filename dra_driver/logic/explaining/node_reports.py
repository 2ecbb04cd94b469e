"""Nodes on which the same holds: where the devices of all of them fall, told once."""

import collections
import dataclasses
from collections.abc import Callable, Sequence

from dra_driver.logic.explaining import changes, device_hurdles
from dra_driver.logic.scheduling import demand, hurdles
from dra_driver.model import claims, nodes


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Where the devices that a node sees fall for a request; `wanted` is None for All."""

    claim: str
    request: str
    wanted: int | None
    seen: int
    groups: tuple[device_hurdles.Group, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Nodes on which the same holds. `obstacle` is why they do not take the pod at all."""

    nodes: tuple[str, ...]
    obstacle: str = ""
    requests: tuple[Request, ...] = ()
    defects: tuple[str, ...] = ()


def of(
    spots: Sequence[changes.Spot],
    plan: demand.Plan,
    defects: Callable[[nodes.Node], tuple[str, ...]],
) -> list[Report]:
    """One for all nodes that are alike, with the devices and holders of all of them.

    `defects` tells which pools a node sees and cannot use.
    """
    alike: dict[object, list[changes.Spot]] = {}
    for spot in spots:
        alike.setdefault((_signature(spot), defects(spot.node)), []).append(spot)
    return [
        Report(
            nodes=tuple(spot.node.name for spot in members),
            requests=tuple(
                _request(item.claim, want, members) for item in plan for want in item.wants
            ),
            defects=defects(members[0].node),
        )
        for members in alike.values()
    ]


def _request(
    claim: claims.ResourceClaim, want: demand.Want, alike: Sequence[changes.Spot]
) -> Request:
    fallen = [fall for spot in alike for fall in _told(want, spot.falls[want])]
    return Request(
        claim=f"{claim.ref.namespace}/{claim.ref.name}",
        request=want.name,
        wanted=want.spec.count,
        seen=len(fallen),
        groups=device_hurdles.grouped(fallen),
    )


def _told(
    want: demand.Want, fallen: Sequence[device_hurdles.Fall]
) -> Sequence[device_hurdles.Fall]:
    """Where free devices are enough for the request alone, something else is in the way of them."""
    free = sum(fall.kind is hurdles.Kind.FREE for fall in fallen)
    blocked = any(fall.kind in hurdles.BLOCKING_ALL for fall in fallen)
    if free < (want.spec.count or 1) or (want.spec.mode == claims.ALL and blocked):
        return fallen
    return [
        dataclasses.replace(fall, kind=hurdles.Kind.TOGETHER)
        if fall.kind is hurdles.Kind.FREE
        else fall
        for fall in fallen
    ]


def unlike(spots: Sequence[changes.Spot]) -> list[changes.Spot]:
    """One of each kind of node: what would help on it would help on those that are alike."""
    return list({_kind(spot): spot for spot in reversed(spots)}.values())[::-1]


def _kind(spot: changes.Spot) -> object:
    """Equal for nodes whose devices fall alike, also once what stops them now is gone."""
    return frozenset(
        collections.Counter(
            (want.name, fall.kind, fall.detail, *changes.beyond(want, fall))
            for want, fallen in spot.falls.items()
            for fall in fallen
        ).items()
    )


def _signature(spot: changes.Spot) -> object:
    """Equal for nodes on which as many devices fall at the same hurdles with the same values.

    Since when a taint is there does not count.
    """
    return tuple(
        (want.name, group.count, group.hurdle, group.reason, _lasting(group))
        for want, fallen in spot.falls.items()
        for group in device_hurdles.grouped(fallen)
    )


def _lasting(group: device_hurdles.Group) -> tuple[str, ...]:
    return () if group.hurdle == hurdles.Kind.TAINT.value else group.values
