"""What of other claims is in the way of a plan."""

import dataclasses
from collections.abc import Iterable, Iterator

from dra_driver.logic.offering import shares
from dra_driver.logic.preparing import planning, sharing_plan
from dra_driver.model import claims, devices, mig, prepared, quantities, slices


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """A device that is wanted, and one that excludes it, maybe the same, that another claim has."""

    wanted: str
    device: str
    holder: claims.ClaimRef


def holdings(
    plan: planning.Plan, uid: str, records: Iterable[prepared.Record]
) -> tuple[Holding, ...]:
    """Which devices of other claims are in the way; admin access neither holds nor minds.

    Shares of one device are not in each other's way.
    A partition is in the way of those that overlap it and of the whole GPU, and the other way
    round.
    """
    others = [record for record in records if record.uid != uid]
    return tuple(
        Holding(entry.device, held.device, record.ref)
        for entry in plan.entries
        if not entry.admin_access
        for record in others
        for held in record.devices
        if not held.admin_access
        and held.pool == entry.pool
        and not (entry.device == held.device and entry.share_id and held.share_id)
        and _excludes(entry.device, plan.offers[entry.device], held.device, record)
    )


def _excludes(name: str, offer: devices.Offer, held: str, record: prepared.Record) -> bool:
    if name == held:
        return True
    if devices.card_of(held) != offer.card:
        return False
    if offer.spot is None or devices.parse_mig_device_name(held) is None:
        return True
    places = [one.spot.placement for one in record.partitions if one.device == held]
    # A record that was rebuilt without its GPU has names only.
    places = places or list(_places(held, offer.gpu))
    return any(place.overlaps(offer.spot.placement) for place in places)


def _places(name: str, gpu: devices.Gpu) -> Iterator[mig.Placement]:
    """Where a partition of the GPU sits, by its name."""
    parsed = devices.parse_mig_device_name(name)
    for profile in gpu.profiles if parsed else ():
        for place in profile.placements:
            if parsed and (profile.id, place.start) == (parsed.profile_id, parsed.start):
                yield place


@dataclasses.dataclass(frozen=True, slots=True)
class Contradiction:
    """What claims cannot have both, and who the others are: none where it is one claim."""

    problem: str
    remedy: str
    holdings: tuple[Holding, ...]


def over_use(
    plan: planning.Plan, records: Iterable[prepared.Record], divisions: sharing_plan.Divisions
) -> Iterator[Contradiction]:
    """Of which devices other claims' shares leave too little, and of what.

    The scheduler counts too; this is for when it counted with less than there is now. Like it,
    shares with admin access are not counted.
    """
    takers = [one for one in plan.entries if not one.admin_access]
    known = [(record, one) for record in records for one in record.devices if not one.admin_access]
    for name in dict.fromkeys(one.device for one in takers if one.share_id is not None):
        division = divisions.get(name)
        if division is None:
            continue
        own = [one for one in takers if one.device == name]
        others = [(record, one) for record, one in known if one.device == name]
        users = tuple(Holding(name, name, record.ref) for record, _ in others)
        for capacity, amount in shares.capacity_of(plan.offers[name], division).items():
            used = sum(
                quantities.parse(one.consumed[capacity]).value
                for one in [*own, *(other for _, other in others)]
                if capacity in one.consumed
            )
            if used > amount.value:
                yield Contradiction(
                    f"device {name!r}, capacity {capacity}: {amount} is what it has, and its "
                    f"claims together have {quantities.of_amount(used, amount.format)}",
                    "Delete the pods of some of its claims",
                    users,
                )


_ONE_INTERVAL = "Use another card, or the same interval"


def interval_conflicts(
    plan: planning.Plan, records: Iterable[prepared.Record]
) -> Iterator[Contradiction]:
    """Which cards are to have two time slices at a time."""
    known = list(records)
    wanted = plan.needs.remembered.time_slices
    for one in wanted:
        numbers = {other.number for other in wanted if other.gpu == one.gpu}
        if len(numbers) > 1:
            yield Contradiction(
                f"device {one.device!r}: time slices {sorted(numbers)} are wanted for the same "
                "card; allowed is one interval for a card",
                _ONE_INTERVAL,
                (),
            )
        for record in known:
            for other in record.sharing.time_slices:
                if other.gpu == one.gpu and other.number != one.number:
                    yield Contradiction(
                        f"device {one.device!r}: time slice {one.number} is wanted, and claim "
                        f"{record.ref} has set {other.number} on the same card; allowed is the "
                        "same interval",
                        _ONE_INTERVAL,
                        (Holding(one.device, other.device, record.ref),),
                    )


def is_held_in_earnest(
    holding: Holding, claim: claims.ResourceClaim | None, node: planning.Node
) -> bool:
    """Whether the API, too, says that the holder has the device; `claim` is None where it is gone.

    A holder that does not is on its way out: its unprepare has not arrived yet.
    """
    if claim is None or claim.ref.uid != holding.holder.uid or claim.allocation is None:
        return False
    device = slices.DeviceId(node.driver_name, node.pool, holding.device)
    return any(result.device == device for result in claim.allocation.results)
