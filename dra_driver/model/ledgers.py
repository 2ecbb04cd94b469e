"""What this driver did to the state of one GPU: how it knows what is its own.

A ledger has a page for each thing that was done. A page is written ahead of what it tells of, and
removed after that is undone: nothing is rewritten, so that an undo works on a full disk. All that a
page tells is in its name too, which is whole where its content is damaged.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pydantic

from dra_driver import errors
from dra_driver.model import mig, stored

VERSION = 1
_KEY = re.compile(
    r"(?P<gpu>[^.]+)\.(?P<boot>[0-9a-f]{8})\."
    r"(?:made-(?P<profile_id>\d+)-(?P<start>\d+)-(?P<size>\d+)|(?P<mode>mig-mode)"
    r"|time-slice-(?P<time_slice>\d+)|compute-mode-(?P<compute_mode>\d+)"
    r"|(?P<persistence>persistence-mode)"
    r"|handed-over-(?P<place>[0-9a-f]{4,8}(?:-[0-9a-f]+){3}))"
)


_LATER = ("handed_over", "persistence_off")


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
    """One GPU's ledger, or a page of it. After a reboot nothing in it is true any more.

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
    handed_over: str | None = None
    """The PCI address at which this driver took the GPU from NVIDIA's; None while it has not."""
    persistence_off: bool = False
    """Whether persistence mode was on before this driver switched it off."""
    is_page: bool = False
    """Whether it tells of one thing, and is called after that."""

    @property
    def spots(self) -> frozenset[mig.Spot]:
        """Where instances are ours."""
        return frozenset(made.spot for made in self.made)

    @property
    def is_blank(self) -> bool:
        """Whether it tells nothing."""
        return self == Ledger(gpu=self.gpu, boot_id=self.boot_id)

    @property
    def key(self) -> str:
        """What its file is called after: the GPU, and for a page the boot and what was done."""
        return f"{prefix(self.gpu)}{tag(self.boot_id)}.{self._thing}" if self.is_page else self.gpu

    @property
    def _thing(self) -> str:
        if self.mode_switched:
            return "mig-mode"
        if self.time_slice_before is not None:
            return f"time-slice-{self.time_slice_before}"
        if self.compute_mode_before is not None:
            return f"compute-mode-{self.compute_mode_before}"
        if self.persistence_off:
            return "persistence-mode"
        if self.handed_over is not None:
            return f"handed-over-{self.handed_over.replace(':', '-').replace('.', '-')}"
        return "made-" + "-".join(f"{one.profile_id}-{one.start}-{one.size}" for one in self.made)

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


def prefix(gpu: str) -> str:
    """What the keys of a GPU's pages begin with."""
    return f"{gpu}."


def tag(boot_id: str) -> str:
    """What stands for a boot in the keys of pages: eight hexadecimal digits."""
    return hashlib.sha256(boot_id.encode()).hexdigest()[:8]


def pages(ledger: Ledger) -> Iterator[Ledger]:
    """A page for each thing that the ledger tells of."""
    blank = Ledger(gpu=ledger.gpu, boot_id=ledger.boot_id, is_page=True)
    for made in ledger.made:
        yield blank.model_copy(update={"made": (made,)})
    if ledger.mode_switched:
        yield blank.switched(on=True)
    if ledger.persistence_off:
        yield blank.model_copy(update={"persistence_off": True})
    for field in ("time_slice_before", "compute_mode_before", "handed_over"):
        if getattr(ledger, field) is not None:
            yield blank.model_copy(update={field: getattr(ledger, field)})


def bound(gpu: str, boot_id: str, parts: Iterable[Ledger]) -> Ledger:
    """The ledger that these pages make, and ledgers that an earlier driver wrote as a whole."""
    ledger = Ledger(gpu=gpu, boot_id=boot_id)
    for part in parts:
        for made in part.made:
            ledger = ledger.adding(made.spot)
        changes = {
            field: value
            for field, value in part
            if field not in {"gpu", "boot_id", "made", "is_page"}
            and value is not None
            and value is not False
        }
        ledger = ledger.model_copy(update=changes)
    return ledger


def page(key: str, boot_id: str) -> Ledger | None:
    """The page that has this key; None where it is the key of none of this boot."""
    found = _KEY.fullmatch(key)
    if found is None or found["boot"] != tag(boot_id):
        return None
    blank = Ledger(gpu=found["gpu"], boot_id=boot_id, is_page=True)
    return blank.model_copy(update=_told(found))


def _told(found: re.Match[str]) -> dict[str, Any]:
    """What a key says, by field."""
    if found["mode"]:
        return {"mode_switched": True}
    if found["time_slice"]:
        return {"time_slice_before": int(found["time_slice"])}
    if found["compute_mode"]:
        return {"compute_mode_before": int(found["compute_mode"])}
    if found["persistence"]:
        return {"persistence_off": True}
    if found["place"]:
        domain, bus, slot, function = found["place"].split("-")
        return {"handed_over": f"{domain}:{bus}:{slot}.{function}"}
    return {"made": (Made(**{name: int(found[name]) for name in Made.model_fields}),)}


def is_of_another_boot(key: str, boot_id: str) -> bool:
    """Whether this is the key of a page of another boot."""
    found = _KEY.fullmatch(key)
    return found is not None and found["boot"] != tag(boot_id)


def encode(ledger: Ledger) -> str:
    """The text of a file. What came later is written where it says something only."""
    later = {field for field in _LATER if not getattr(ledger, field)}
    return stored.encode("ledger", VERSION, ledger.model_dump(mode="json", exclude=later))


def decode(text: str) -> Ledger:
    """The ledger, or page, in a file's text. Earlier drivers wrote no checksum.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    content = stored.decode(text, "ledger", (VERSION,), needs_checksum=False)
    try:
        return Ledger.model_validate(content)
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a ledger: {error}") from error
