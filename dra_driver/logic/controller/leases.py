"""Who leads, by a Lease of `coordination.k8s.io/v1`: the rules of client-go's leader election.

A candidate trusts its own clock only: a lease has run out when it did not change for its duration
since this candidate saw it change. Source: Kubernetes 1.36,
`staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go`.
"""

import dataclasses
from typing import Any

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Sighting:
    """A lease's spec, and since when this candidate knows it (monotonic seconds)."""

    spec: Json
    since: float


def seen(spec: Json, before: Sighting | None, now: float) -> Sighting:
    """What is known of the lease now; it keeps its time as long as nothing in it changes."""
    if before is not None and before.spec == spec:
        return before
    return Sighting(spec, now)


def is_free(sighting: Sighting, identity: str, now: float) -> bool:
    """Whether the candidate may take the lease, or go on having it."""
    holder = sighting.spec.get("holderIdentity") or ""
    if holder in {"", identity}:
        return True
    return now - sighting.since >= float(sighting.spec.get("leaseDurationSeconds") or 0)


def held(spec: Json, identity: str, *, seconds: int, time: str) -> Json:
    """The spec with which the candidate has the lease. `time` is now, as the API writes times."""
    same = spec.get("holderIdentity") == identity
    acquired = spec.get("acquireTime") if same else None
    transitions = int(spec.get("leaseTransitions") or 0)
    return spec | {
        "holderIdentity": identity,
        "leaseDurationSeconds": seconds,
        "acquireTime": acquired or time,
        "renewTime": time,
        "leaseTransitions": transitions if same or not spec else transitions + 1,
    }


def released(spec: Json, *, time: str) -> Json:
    """The spec that lets the next candidate begin at once."""
    return spec | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": time}
