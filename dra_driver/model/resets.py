"""A reset of GPUs that was begun: what has to be put back whatever becomes of it."""

import enum

import pydantic

from dra_driver import errors
from dra_driver.model import stored

VERSION = 1


class Step(enum.StrEnum):
    """How far it got; each is written before what it names is done."""

    BEGUN = "begun"
    """What the GPUs were set to is noted, and may be changed."""
    RESETTING = "resetting"
    """The reset itself may have been done, in part, or be at work."""
    ENDED = "ended"
    """It was cut short and is not at work any more; whether it was done is not known."""
    RESTORING = "restoring"
    """It was done; the GPUs are not all as they were."""


class _Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Card(_Frozen):
    """One of the GPUs, as it was.

    `locks` are those of whoever changes it. `persistence` and `mig` are the modes that it is to
    have afterwards; None: it has no such mode.
    """

    gpu: str
    name: str
    minor: int
    locks: tuple[str, ...]
    persistence: bool | None = None
    mig: bool | None = None


class Record(_Frozen):
    """A reset; its GPUs are reset at once. `boot_id` is the boot in which it was begun."""

    boot_id: str
    step: Step
    cards: tuple[Card, ...] = pydantic.Field(min_length=1)

    @property
    def key(self) -> str:
        """What its file is called after."""
        return self.cards[0].gpu

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs of the GPUs."""
        return tuple(card.gpu for card in self.cards)

    def at(self, step: Step) -> "Record":
        """The same reset at another step."""
        return self.model_copy(update={"step": step})


def encode(record: Record) -> str:
    """The text of a file."""
    return stored.encode("reset", VERSION, record.model_dump(mode="json"))


def decode(text: str) -> Record:
    """The reset in a file's text.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    content = stored.decode(text, "reset", (VERSION,))
    try:
        return Record.model_validate(content)
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a reset: {error}") from error
