"""The directory of the names of cards: one file for each card that this node has, or had lately."""

import pathlib

from dra_driver.adapters.disk import stores
from dra_driver.model import card_names

Contents = stores.Contents[card_names.CardName]
"""All names by the UUID of their card, and for each file that cannot be read the reason."""

_NAME = stores.Kind("name", card_names.encode, card_names.decode, key=lambda name: name.gpu)


class CardNames(stores.Store[card_names.CardName]):
    """Names of one node, by UUID. Whoever writes or removes one holds the lock of names."""

    def __init__(self, directory: pathlib.Path) -> None:
        """The directory is made by the first write; its parent must exist."""
        super().__init__(directory, _NAME)

    def devices(self) -> dict[str, str]:
        """How cards are called, by UUID, as far as their files can be read."""
        return {gpu: one.device for gpu, one in self.contents().records.items()}
