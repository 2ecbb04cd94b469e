"""How a GPU or a partition is divided into shares that many claims consume."""

import dataclasses
import enum

from dra_driver import errors


class Enforcement(enum.StrEnum):
    """Who sees to it that a share takes no more than it asked for."""

    MPS = "MPS"
    NONE = "None"


@dataclasses.dataclass(frozen=True, slots=True)
class Shares:
    """Shares by memory and cores, or `count` equal ones where that is given."""

    count: int | None = None
    enforcement: Enforcement = Enforcement.MPS


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a share may take: bytes of memory, and a percentage of the multiprocessors."""

    memory_bytes: int
    percent: int


MOST = 100
"""Shares of one device: a percent each."""


def parse_count(text: str) -> int | None:
    """How many shares `memory` (None) or a number stand for.

    Raises:
        errors.Rejected: it is neither.
    """
    if text == "memory":
        return None
    if text.isdecimal() and 1 <= int(text) <= MOST:
        return int(text)
    raise errors.Rejected(f"{text!r}: allowed are off, memory, and a number from 1 to {MOST}")
