"""What is changed about claims, or about what is in use, so that they may fit: what it works on."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_driver.logic.explaining import device_hurdles
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import demand, hurdles, reservations, usage
from dra_driver.model import nodes

Part = tuple[int, str]
"""The number of a selector, and the text of one of its parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A node that does not serve the plan as it is: where each device falls, for each want."""

    node: nodes.Node
    falls: Mapping[demand.Want, Sequence[device_hurdles.Fall]]


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What is asked for, and what is in use."""

    plan: demand.Plan
    in_use: usage.InUse

    def spot(self, node: nodes.Node, snapshot: snapshots.Snapshot) -> Spot:
        """Where the devices that a node sees fall."""
        seen = snapshot.inventory.seen(node)
        free = reservations.Reservations(seen.pools, self.in_use, snapshot.behaviour)
        return Spot(
            node,
            {
                want: device_hurdles.falls(
                    want, seen.candidates, node=node, free=free, holders=snapshot.holders
                )
                for item in self.plan
                for want in item.wants
            },
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change in words, and what it makes of a state.

    Of two changes with the same `subject` the second undoes the first. `size` is of how many parts
    it consists, `lost` how many things that were asked for it gives up, `parts` are those parts of
    a selector that it drops.
    """

    told: str
    subject: tuple[str, ...]
    make: Callable[[State], State]
    size: int = 1
    lost: int = 1
    parts: frozenset[Part] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is to be changed: a plan that does not fit on these nodes."""

    plan: demand.Plan
    spots: Sequence[Spot]
    snapshot: snapshots.Snapshot

    @property
    def wants(self) -> Iterator[demand.Want]:
        """All requests and alternatives."""
        for item in self.plan:
            yield from item.wants

    def falls(self, want: demand.Want) -> Iterator[device_hurdles.Fall]:
        """Where the devices of all nodes fall."""
        for spot in self.spots:
            yield from spot.falls[want]

    @property
    def holders(self) -> tuple[snapshots.Holder, ...]:
        """The claims that have devices which are in the way, by namespace and name."""
        listed = [holder for want in self.wants for f in self.falls(want) for holder in f.holders]
        held = {(one.namespace, one.claim): one for one in listed}
        return tuple(one for _, one in sorted(held.items()))


def failing(want: demand.Want, fall: device_hurdles.Fall) -> tuple[Part, ...]:
    """The parts of all selectors of a request that a device does not meet."""
    candidate = fall.candidate
    return tuple(
        (index, part.source)
        for index, selector in enumerate(want.selectors)
        for part in selector.explain(candidate.device, candidate.id.driver)
        if part.outcome is not True
    )


def beyond(want: demand.Want, fall: device_hurdles.Fall) -> tuple[object, ...]:
    """What stops a device besides where it falls: hurdles that it has not come to."""
    parts: tuple[object, ...] = fall.failing
    if len(want.selectors) > 1 or fall.kind is hurdles.Kind.CLASS:
        parts = (*parts, *failing(want, fall))
    return (parts, fall.values, tuple(map(str, fall.candidate.taints)), fall.is_held)
