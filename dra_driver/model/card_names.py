"""What is remembered of a card's name: a file for each card, so that damage is of one card alone.

A card is a GPU with its UUID. Its name (`gpu-0`) is in slices, and claims are allocated to it: it
stays with the card for as long as anybody may mean that card by it.

One that another driver has is known by its place alone: `site` is where NVML told of it last. An
older driver does without it, so it stands beside the content. Of a card that NVML has never told
of, what stands for the UUID is made of the place (`pci.unseen_gpu`); to an older driver it is a
card that is gone.
"""

import pydantic

from dra_driver import errors
from dra_driver.model import devices, stored

VERSION = 1
_SITE = "site"


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
    site: devices.Site | None = None

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
    said = name.model_dump(mode="json")
    site = said.pop(_SITE)
    return stored.encode("name", VERSION, said, {_SITE: site} if site else {})


def decode(text: str) -> CardName:
    """What a file says.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    content = stored.decode(text, "name", (VERSION,))
    beside = {key: value for key, value in stored.beside(text).items() if key == _SITE}
    try:
        return CardName.model_validate(content | beside)
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a name: {error}") from error
