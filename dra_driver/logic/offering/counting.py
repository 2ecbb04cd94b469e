"""Devices of a card with the counters that they share, which keep apart what excludes another."""

import dataclasses
from collections.abc import Mapping

from dra_driver.logic.offering import attributes, catalog, placements, publishing, shares
from dra_driver.logic.passthrough import hurdles
from dra_driver.model import devices, quantities, slices

COUNTER_SET = "{card}-counter-set"
"""The peer's name of a GPU's counter set."""


def is_partition(offered: devices.Offer) -> bool:
    """Whether it is one that is made for a claim."""
    return offered.spot is not None and offered.instance is None


def is_beside(offered: devices.Offer, card: catalog.Card) -> bool:
    """Whether only counters keep it from being given out together with others of its card."""
    return is_partition(offered) or (offered.vfio is not None and len(card.offers) > 1)


def left_out(card: catalog.Card) -> str:
    """What a card does not offer without counters, in words; empty where it is all the same."""
    beside = [one for one in card.offers.values() if is_beside(one, card)]
    kinds = [
        ("partitions", any(one.vfio is None for one in beside)),
        ("VFIO devices", any(one.vfio is not None for one in beside)),
    ]
    return " and ".join(kind for kind, has in kinds if has)


def device(card: catalog.Card, offered: devices.Offer, form: publishing.Form) -> slices.Device:
    """A device of a card as slices have it, with what it draws from the card's counters."""
    amounts: Mapping[str, int] = card.counters
    if offered.vfio is not None:
        found = attributes.vfio(offered, lists=form.lists)
    elif offered.spot is None:
        partitionable = any(is_partition(one) for one in card.offers.values())
        hurdle = hurdles.word_of(card.vfio_note)
        found = attributes.device(
            offered.gpu, partitionable=partitionable, lists=form.lists, vfio_hurdle=hurdle
        )
    else:
        found = attributes.partition(offered, lists=form.lists)
        amounts = (
            placements.consumption(offered.gpu.profiles, offered.profile, offered.spot.placement)
            if offered.profile is not None and offered.instance is None
            else {}
        )
    if card.division is not None and offered.vfio is None:
        found = shares.shareable(found, card.division)
    found = attributes.fitting(found)
    return _consuming(found, card.name, amounts) if card.counters and amounts else found


def counter_set(card: catalog.Card) -> publishing.CounterSet:
    """What the devices of a card draw on, so that nobody has what another one has."""
    return publishing.CounterSet(COUNTER_SET.format(card=card.name), _quantities(card.counters))


def card_of(device: slices.Device) -> str:
    """The card whose counters a device consumes; empty where it consumes none."""
    for entry in device.extra.get("consumesCounters") or ():
        return str(entry["counterSet"]).removesuffix(COUNTER_SET.format(card=""))
    return ""


def _quantities(amounts: Mapping[str, int]) -> dict[str, quantities.Quantity]:
    return {
        name: quantities.of_bytes(amount * 2**20)
        if name == "memory"
        else quantities.of_amount(amount, quantities.Format.DECIMAL_SI)
        for name, amount in amounts.items()
    }


def _consuming(device: slices.Device, card: str, amounts: Mapping[str, int]) -> slices.Device:
    counters = {name: {"value": str(q)} for name, q in sorted(_quantities(amounts).items())}
    entry = {"counterSet": COUNTER_SET.format(card=card), "counters": counters}
    return dataclasses.replace(device, extra={**device.extra, "consumesCounters": [entry]})
