"""Which GPUs are to be reset now, and why others that ask for it have to wait.

A GPU is reset where its driver asks for it and nobody can lose anything by it: no claim has a
device of it, and nothing is on it that this driver has not made. GPUs that are reset together are
reset all or none.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

from dra_driver.logic.health import conditions
from dra_driver.model import devices, health, mig

MOST_TRIES = 2
"""Of a GPU within `WINDOW`; what did not help twice is left to people."""
WINDOW = 3600.0
"""Seconds."""
MOST_NAMED = 5
"""Claims and others that one text names."""

_ASKING = frozenset({"reset", "drain-and-reset"})
"""Values of `health.Key.RECOVERY`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """A GPU as far as a reset of it is concerned.

    `together` are the other GPUs that are reset with it. `claims` are those that have, or are
    allocated to, a device of it (namespace and name); `foreign` the MIG instances on it that this
    driver did not make; `tries` when it was reset, in seconds of the monotonic clock. `hindrance`
    is what else forbids it.
    """

    gpu: devices.GpuUuid
    name: str
    together: frozenset[devices.GpuUuid] = frozenset()
    claims: frozenset[str] = frozenset()
    foreign: tuple[str, ...] = ()
    tries: tuple[float, ...] = ()
    hindrance: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """The GPUs that are there, at a moment of the monotonic clock.

    `hindrance`: why nothing is reset on this node for now.
    """

    cards: Mapping[devices.GpuUuid, Card]
    now: float
    hindrance: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The GPUs to reset now, each group at once; and why the others wait, for people."""

    due: tuple[tuple[devices.GpuUuid, ...], ...] = ()
    waits: Mapping[str, str] = dataclasses.field(default_factory=dict)


def wanted(view: conditions.View) -> frozenset[devices.GpuUuid]:
    """The GPUs whose driver asks for a reset, in this boot, and has not taken it back."""
    return frozenset(
        one.finding.gpu
        for one in view.conditions
        if one.finding.key is health.Key.RECOVERY
        and one.finding.value in _ASKING
        and one.away is None
        and not one.before_boot
    )


def decided(asking: Iterable[devices.GpuUuid], situation: Situation) -> Decision:
    """What is done for the GPUs that ask for a reset."""
    due: dict[tuple[devices.GpuUuid, ...], None] = {}
    waits: dict[str, str] = {}
    for gpu in sorted(asking):
        group = together(gpu, situation.cards)
        reason = situation.hindrance or _hindrance(gpu, group, situation)
        if reason is None:
            due[group] = None
        else:
            waits[gpu] = reason
    return Decision(tuple(due), waits)


def together(
    gpu: devices.GpuUuid, cards: Mapping[devices.GpuUuid, Card]
) -> tuple[devices.GpuUuid, ...]:
    """The GPU and all that are reset with it, and with those, by UUID."""
    found = {gpu}
    left = [gpu]
    while left:
        card = cards.get(left.pop())
        new = (card.together if card else frozenset()) - found
        found |= new
        left += new
    return tuple(sorted(found))


def linked(
    ends: Mapping[devices.GpuUuid, Collection[devices.PciAddress]],
    places: Mapping[devices.PciAddress, devices.GpuUuid],
) -> dict[devices.GpuUuid, frozenset[devices.GpuUuid]]:
    """Which GPUs NVLink connects, by what is at the other ends of each one's links.

    Those that have something else in common there, a switch, are connected too.
    """
    return {
        gpu: frozenset(
            other
            for other in {*ends, *(places[end] for end in there if end in places)}
            if other != gpu and (_meet(gpu, other, ends, places))
        )
        for gpu, there in ends.items()
    }


def foreign(instances: Iterable[mig.Instance], ours: Collection[mig.Spot]) -> tuple[str, ...]:
    """The MIG instances that this driver did not make, as messages name them."""
    return tuple(f"{one.gi} at {one.spot.placement}" for one in instances if one.spot not in ours)


def _meet(
    gpu: devices.GpuUuid,
    other: devices.GpuUuid,
    ends: Mapping[devices.GpuUuid, Collection[devices.PciAddress]],
    places: Mapping[devices.PciAddress, devices.GpuUuid],
) -> bool:
    mine, others = set(ends.get(gpu, ())), set(ends.get(other, ()))
    direct = {places.get(end) for end in mine} | {gpu}
    back = {places.get(end) for end in others} | {other}
    switches = {end for end in mine & others if end not in places}
    return other in direct or gpu in back or bool(switches)


def _hindrance(
    gpu: devices.GpuUuid, group: tuple[devices.GpuUuid, ...], situation: Situation
) -> str | None:
    absent = [one for one in group if one not in situation.cards]
    if absent:
        what = "it" if absent == [gpu] else f"{absent[0]}, which is reset with it,"
        return f"not reset: {what} does not answer; reboot the node"
    for card in sorted((situation.cards[one] for one in group), key=lambda one: one.gpu != gpu):
        for reason in _reasons(card, situation.now):
            return reason if card.gpu == gpu else f"{card.name} is reset with it: {reason}"
    return None


def _reasons(card: Card, now: float) -> Iterator[str]:
    if card.hindrance is not None:
        yield f"not reset: {card.hindrance}"
    if card.claims:
        named = _named(sorted(card.claims))
        yield f"it is reset once no claim has a device of it; now has: {named}"
    if card.foreign:
        yield (
            "not reset, as MIG instances on it would be destroyed that this driver did not make: "
            f"GPU instances {_named(card.foreign)}. Destroy them (nvidia-smi mig -dci, -dgi), or "
            "reset it by hand"
        )
    if len([at for at in card.tries if now - at < WINDOW]) >= MOST_TRIES:
        yield (
            f"a reset was tried {MOST_TRIES} times within an hour and it needs one still, so it "
            "stays withdrawn: reboot the node, or have the card replaced"
        )


def _named(names: Collection[str]) -> str:
    listed = list(names)
    more = len(listed) - MOST_NAMED
    return ", ".join(listed[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
