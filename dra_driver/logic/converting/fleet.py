"""What kinds of GPUs a cluster has: what percentages and sizes are resolved with."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class CardKind:
    """Cards that are alike. `memory` is in bytes, as published (of shared ones whole MiB).

    `shared` is how many claims share one: `memory` (by amounts), `count` (numbered shares), or
    empty for a card that one claim has. `profiles` are the partitions that are offered of such
    cards, with the bytes of memory of each; empty where it is not cut.
    """

    product: str
    memory: int
    shared: str = ""
    profiles: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    """The kinds of cards of a cluster, each once."""

    kinds: tuple[CardKind, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of memory of cards that are shared by amounts, each once, the smallest first."""
        return tuple(sorted({kind.memory for kind in self.kinds if kind.shared == "memory"}))


def of(kinds: Iterable[CardKind]) -> Fleet:
    """The fleet with these cards, in an order of its own."""
    return Fleet(tuple(sorted(set(kinds))))
