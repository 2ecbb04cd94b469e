"""What is remembered of a card's name: a file for each card, so that damage is of one card alone.

A card is a GPU with its UUID. Its name (`gpu-0`) is in slices, and claims are allocated to it: it
stays with the card for as long as anybody may mean that card by it.
"""

import pydantic

from dra_driver import errors
from dra_driver.model import devices, stored

VERSION = 1


class CardName(pydantic.BaseModel):
    """One card, and what it is called.

    `product` is for messages. `gone_since` is when the card was missed first (RFC 3339, UTC); None
    while it is there, or nobody has missed it yet.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    gpu: str
    device: str
    product: str = ""
    gone_since: str | None = None

    @pydantic.field_validator("device")
    @classmethod
    def _is_a_name(cls, device: str) -> str:
        if devices.number_of(device) is None:
            raise ValueError(f"{device!r} is no name of a whole GPU, such as gpu-0")
        return device

    def __str__(self) -> str:
        """As in messages: which card."""
        return f"{self.product} {self.gpu}".strip()


def encode(name: CardName) -> str:
    """The text of a file."""
    return stored.encode("name", VERSION, name.model_dump(mode="json"))


def decode(text: str) -> CardName:
    """What a file says.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    content = stored.decode(text, "name", (VERSION,))
    try:
        return CardName.model_validate(content)
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a name: {error}") from error
