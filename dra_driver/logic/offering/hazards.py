"""What is dangerous to publish: schedulers of some releases fail on it.

The release is the API server's; its scheduler is as old, or older. Sources: kubernetes/kubernetes
#138882, #138988 to #138990 (a panic), #139040, #139211 (devices given out twice).
"""

import dataclasses
import re

_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_PANICS = {35: 6, 36: 2}
"""By minor version, the first patch release whose scheduler does not panic at a request for All of
devices with counters. 1.34 is not affected."""
_TWICE = {34: None, 35: None, 36: 2}
"""The first that counts shares of a device with counters. There is none before 1.36."""
_NEXT = "1.36.2"

PANICS = (
    "panics when a claim asks for All of devices with counters (allocationMode: All), again and "
    "again while that claim's pod waits; nothing is scheduled meanwhile"
)
TWICE = "may allocate a partition of a card of which shares are in use, and the other way round"


@dataclasses.dataclass(frozen=True, slots=True)
class Hazards:
    """What a scheduler fails on, as the first release, such as `1.36.2`, of which that is not true.

    `counters`: devices with counters stop it, see `PANICS`. `shares_beside`: it does not count
    shares of a card beside the card's partitions, see `TWICE`. None: it is no danger.
    """

    counters: str | None = None
    shares_beside: str | None = None


NONE = Hazards()


def of(git_version: str) -> Hazards:
    """The hazards of a release, `v1.36.1`; none of what is no release of Kubernetes 1."""
    found = _RELEASE.match(git_version)
    if found is None or found[1] != "1":
        return NONE
    minor, patch = int(found[2]), int(found[3])
    sound = _PANICS.get(minor, 0)
    counts = _TWICE.get(minor, 0)
    return Hazards(
        counters=f"1.{minor}.{sound}" if patch < sound else None,
        shares_beside=_NEXT if counts is None or patch < counts else None,
    )
