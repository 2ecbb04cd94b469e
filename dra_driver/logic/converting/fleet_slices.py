"""ResourceSlices -> the kinds of cards that a cluster has, one slice at a time."""

import dataclasses
from collections.abc import Iterable, Iterator

from dra_driver.logic.converting import fleet
from dra_driver.logic.offering import shares
from dra_driver.model import slices

_SEEN = ("productName", "profile", "type")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Seen:
    """A kind of device of a slice. `profile` is empty for a whole card."""

    product: str
    profile: str
    memory: int
    shared: str


def of_slice(found: slices.ResourceSlice) -> frozenset[Seen]:
    """The kinds of devices of a slice, each once."""
    return frozenset(_of_devices(found.devices))


def together(seen: Iterable[Iterable[Seen]]) -> fleet.Fleet:
    """The fleet that has these devices; partitions are those of cards of the same product."""
    kinds = {one for each in seen for one in each}
    profiles: dict[str, set[tuple[str, int]]] = {}
    for one in kinds:
        if one.profile:
            profiles.setdefault(one.product, set()).add((one.profile, one.memory))
    return fleet.of(
        fleet.CardKind(
            one.product,
            one.memory,
            one.shared,
            tuple(sorted(profiles.get(one.product, ()))),
        )
        for one in kinds
        if not one.profile
    )


def _of_devices(found: Iterable[slices.Device]) -> Iterator[Seen]:
    for device in found:
        product, profile, kind = (device.attributes.get(name) for name in _SEEN)
        memory = device.capacity.get(shares.MEMORY)
        if memory is None or not isinstance(product, str) or kind not in ("gpu", "mig"):
            continue
        shared = ""
        if device.extra.get("allowMultipleAllocations"):
            shared = "count" if shares.SHARES in device.capacity else "memory"
        yield Seen(product, profile if isinstance(profile, str) else "", memory.value, shared)
