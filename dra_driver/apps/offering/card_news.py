"""What the log tells of the cards of a node, when it changes."""

from collections.abc import Sequence

from dra_driver import telemetry
from dra_driver.logic.offering import catalog


def tell(
    log: telemetry.Logger, before: Sequence[catalog.Card], after: Sequence[catalog.Card]
) -> None:
    """Tell what there is now, and was not before; and the other way round."""
    old = {card.name: card for card in before}
    new = {card.name: card for card in after}
    for name, card in sorted(new.items()):
        if name not in old:
            gpu = card.gpu
            log.info("GPU found", device=name, model=gpu.product_name, uuid=gpu.uuid)
        _tell_offers(log, old.get(name), card)
    for name in sorted(old.keys() - new.keys()):
        log.warning("GPU is no longer offered", device=name, uuid=old[name].gpu.uuid)


def _tell_offers(log: telemetry.Logger, old: catalog.Card | None, new: catalog.Card) -> None:
    name = new.name
    if new.note is not None and (old is None or old.note != new.note):
        log.warning("GPU is not offered in full", device=name, reason=new.note)
    if new.vfio_note is not None and (old is None or old.vfio_note != new.vfio_note):
        log.warning("GPU is not offered to virtual machines", device=name, reason=new.vfio_note)
    if old is not None and old.offers.keys() != new.offers.keys():
        log.info("what is offered of a GPU has changed", device=name, offers=len(new.offers))
