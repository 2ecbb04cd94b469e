"""Why GPUs are not offered to virtual machines, in words that slices have room for."""

import enum
from typing import Self


class Word(enum.StrEnum):
    """The attribute `vfioHurdle` of a whole GPU."""

    IOMMU_OFF = "IOMMUOff"
    NO_GROUP = "NoIOMMUGroup"
    FOREIGN = "ForeignDeviceInGroup"
    VIRTUAL = "VirtualFunction"
    NO_DRIVER = "NoDriver"
    OTHER_DRIVER = "OtherDriver"
    NOT_WHOLE = "NotWhole"
    NO_COUNTERS = "NoCounters"
    OTHER = "Other"


TEXTS = {
    Word.IOMMU_OFF: "the IOMMU is off",
    Word.NO_GROUP: "it is in no IOMMU group",
    Word.FOREIGN: "something else is in its IOMMU group",
    Word.VIRTUAL: "it is a virtual function",
    Word.NO_DRIVER: "it has no driver",
    Word.OTHER_DRIVER: "another driver than nvidia or a VFIO driver has it",
    Word.NOT_WHOLE: "it is in MIG mode, or others have cut it, and cards are handed over whole",
    Word.NO_COUNTERS: "API server or scheduler of the cluster do not do for counters beside it",
    Word.OTHER: "the log of the driver on the node says why",
}
"""What each means, for people."""


class Hurdle(str):
    """Why a GPU is not handed over, as people read it; `word` stands for it in slices."""

    __slots__ = ("word",)
    word: Word

    def __new__(cls, word: Word, text: str) -> Self:
        """A text with its word."""
        made = super().__new__(cls, text)
        made.word = word
        return made


def word_of(reason: str | None) -> str | None:
    """The word of a reason; None where there is none."""
    if reason is None:
        return None
    return str(reason.word if isinstance(reason, Hurdle) else Word.OTHER)
