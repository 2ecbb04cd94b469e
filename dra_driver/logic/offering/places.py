"""Where on which GPU each device of a node is."""

from collections.abc import Iterable, Mapping

from dra_driver.logic.offering import naming
from dra_driver.model import devices, mig, prepared, slices

Place = tuple[str, mig.Spot | None]
"""The UUID of a GPU, and where on it; None: all of it."""


def of(
    offers: Mapping[str, devices.Offer], known: Iterable[prepared.Record]
) -> Mapping[str, Place]:
    """By name: devices that are offered, or were, and those that claims have."""
    found: dict[str, Place] = {}
    for record in known:
        for device in record.devices:
            gpu = record.cards.get(devices.card_of(device.device))
            if gpu is not None:
                found[device.device] = (gpu, None)
        found |= {one.device: (one.gpu, one.spot) for one in record.partitions}
    return found | {name: (one.gpu.uuid, one.spot) for name, one in offers.items()}


def published(offered: Iterable[slices.Device]) -> Mapping[str, Place]:
    """By name: what slices tell of devices, also of GPUs that were never seen."""
    offered = list(offered)
    cards = naming.published(offered)
    found: dict[str, Place] = {}
    for device in offered:
        card = cards.get(devices.card_of(device.name))
        if card is not None:
            found[device.name] = (card.gpu, _spot(device))
    return found


def _spot(device: slices.Device) -> mig.Spot | None:
    parsed = devices.parse_mig_device_name(device.name)
    size = device.attributes.get("memorySlices")
    if parsed is None or not isinstance(size, int):
        return None
    return mig.Spot(parsed.profile_id, mig.Placement(parsed.start, size))
