"""What this driver did to the MIG state of one GPU: how it knows what is its own.

A ledger is written ahead of what it tells of, and corrected after that is undone.
"""

import json

import pydantic

from dra_driver import errors
from dra_driver.model import mig

VERSION = 1


class Made(pydantic.BaseModel):
    """A place where an instance was, or is about to be, created. It was free before."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    profile_id: int
    start: int
    size: int

    @property
    def spot(self) -> mig.Spot:
        """Its profile and place."""
        return mig.Spot(self.profile_id, mig.Placement(self.start, self.size))

    @classmethod
    def at(cls, spot: mig.Spot) -> "Made":
        """For this profile and place."""
        return cls(profile_id=spot.profile_id, start=spot.placement.start, size=spot.placement.size)


class Ledger(pydantic.BaseModel):
    """One GPU's ledger. After a reboot nothing in it is true any more.

    `mode_switched` says that MIG mode was off before this driver switched it on.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    gpu: str
    boot_id: str
    made: tuple[Made, ...] = ()
    mode_switched: bool = False
    time_slice_before: int | None = None
    """What the time slice was before a claim set it; None while none has."""
    compute_mode_before: int | None = None
    """What the compute mode was before MPS took the GPU; None while it has not."""

    @property
    def spots(self) -> frozenset[mig.Spot]:
        """Where instances are ours."""
        return frozenset(made.spot for made in self.made)

    @property
    def is_blank(self) -> bool:
        """Whether it tells nothing."""
        return self == Ledger(gpu=self.gpu, boot_id=self.boot_id)

    def adding(self, spot: mig.Spot) -> "Ledger":
        """With one more place."""
        if spot in self.spots:
            return self
        return self.model_copy(update={"made": (*self.made, Made.at(spot))})

    def without(self, spot: mig.Spot) -> "Ledger":
        """With one place less."""
        left = tuple(made for made in self.made if made.spot != spot)
        return self.model_copy(update={"made": left})

    def switched(self, on: bool) -> "Ledger":
        """With MIG mode switched on by us, or not."""
        return self.model_copy(update={"mode_switched": on})


def encode(ledger: Ledger) -> str:
    """The text of a ledger's file."""
    return json.dumps({"version": VERSION, "ledger": ledger.model_dump()}, indent=1) + "\n"


def decode(text: str) -> Ledger:
    """The ledger in a file's text.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise errors.Rejected(f"version {document['version']!r} is not {VERSION}")
        return Ledger.model_validate(document["ledger"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise errors.Rejected(f"not a ledger: {error}") from error
