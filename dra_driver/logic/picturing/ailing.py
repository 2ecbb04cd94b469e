"""What is wrong with a GPU and its partitions: the taints of its devices, alike ones told once."""

import collections
import dataclasses
from collections.abc import Sequence

from dra_driver.logic.health import prospects
from dra_driver.logic.scheduling import candidacy
from dra_driver.model import taints


@dataclasses.dataclass(frozen=True, slots=True)
class Ailment:
    """A taint, as KEY=VALUE, that `devices` have; `is_whole` if these are all of the GPU.

    `since` is the earliest time, empty where none is told. `meaning` is empty for a taint that is
    not the driver's. `withdraws`: it keeps pods away, else it only informs.
    """

    taint: str
    effect: str
    since: str
    meaning: str
    devices: tuple[str, ...]
    is_whole: bool
    withdraws: bool

    def __str__(self) -> str:
        """As in messages, without the devices."""
        since = f" since {self.since}" if self.since else ""
        meaning = f": {self.meaning}" if self.meaning else ""
        return f"{self.taint}:{self.effect}{since}{meaning}"


def of(members: Sequence[candidacy.Candidate]) -> tuple[Ailment, ...]:
    """Those of the devices of one GPU, the gravest first."""
    found: dict[taints.Taint, dict[str, taints.Taint]] = collections.defaultdict(dict)
    for member in members:
        for taint in member.taints:
            found[taint][member.id.device] = taint
    listed = [
        Ailment(
            taint=f"{taint.key}{'=' if taint.value else ''}{taint.value}",
            effect=taint.effect,
            since=min((one.added for one in where.values() if one.added), default=""),
            meaning=prospects.meaning(taint, members[0].id.driver),
            devices=tuple(where),
            is_whole=len(where) == len(members),
            withdraws=taint.blocks,
        )
        for taint, where in found.items()
    ]
    return tuple(sorted(listed, key=_gravest))


def _gravest(one: Ailment) -> tuple[bool, bool, str]:
    return not one.withdraws, not one.is_whole, one.taint
