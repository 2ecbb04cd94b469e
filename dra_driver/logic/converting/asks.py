"""What one container asks for, in words that are the same for all systems."""

import dataclasses
import enum
from fractions import Fraction

from dra_driver.logic.converting import reading


class Kind(enum.StrEnum):
    """What of a card is asked for.

    WHOLE: all of it. SHARE: an amount or a part of its memory. REPLICA: the part that one of
    several equal users has. PARTITION: an instance of MIG, by profile or by memory. PART: a replica
    of a partition.
    """

    WHOLE = "whole"
    SHARE = "share"
    REPLICA = "replica"
    PARTITION = "partition"
    PART = "part"

    @property
    def is_partition(self) -> bool:
        """Whether it is an instance of MIG, or a part of one: no card of its own."""
        return self in {Kind.PARTITION, Kind.PART}

    @property
    def is_shared(self) -> bool:
        """Whether others are on the device, too, and an MPS daemon serves them all."""
        return self in {Kind.SHARE, Kind.REPLICA, Kind.PART}


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """`count` devices that are alike.

    Of the memory of each there is an amount in bytes, or a `fraction` of the card's, or nothing for
    what is usual. `cores` is a percentage of multiprocessors, None where nothing was said. `asked`
    is what was written: names and values. `selectors` are CEL.
    """

    kind: Kind
    count: int
    asked: tuple[str, ...]
    memory: int | None = None
    fraction: Fraction | None = None
    cores: int | None = None
    profile: str = ""
    selectors: tuple[str, ...] = ()
    one_numa_node: bool = False

    def covers(self, other: "Ask") -> bool:
        """Whether who has this has all that the other asks for."""
        alike = (
            self.kind == other.kind
            and self.profile == other.profile
            and self.selectors == other.selectors
            and self.one_numa_node >= other.one_numa_node
        )
        return alike and self.count >= other.count and self._is_as_large(other)

    def _is_as_large(self, other: "Ask") -> bool:
        if (self.memory is None) != (other.memory is None):
            return False
        if (self.fraction is None) != (other.fraction is None):
            return False
        if (self.memory or 0) < (other.memory or 0) or (self.fraction or 0) < (other.fraction or 0):
            return False
        # What nobody asked for grows with the memory.
        return self.cores == other.cores or (
            self.cores is not None and self.cores >= (100 if other.cores is None else other.cores)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """All that one container asks for, by one system.

    `resources` are taken out of its limits and requests, `annotations` out of the pod's.
    `environment` is what it gets.
    """

    container: reading.Container
    system: str
    asks: tuple[Ask, ...]
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def covers(self, other: "Wish") -> bool:
        """Whether who has the devices of this has all that the other asks for."""
        if len(self.asks) < len(other.asks):
            return False
        left = list(self.asks)
        for ask in other.asks:
            found = next((one for one in left if one.covers(ask)), None)
            if found is None:
                return False
            left.remove(found)
        return True
