"""Where on which GPU each device of a node is."""

from collections.abc import Iterable, Mapping

from dra_driver.model import devices, mig, prepared

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
