"""Which remembered claims the API knows nothing of any more, as far as this node is concerned.

The kubelet unprepares a claim by itself; what is stale here is what it forgot, because its state
was lost or the pod was deleted by force.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping

from dra_driver.logic.preparing import planning
from dra_driver.model import claims, prepared


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """A record that looked stale at each look since `since` (monotonic seconds).

    `ref` has the name of the claim also where the record knows its UID only, if it still exists.
    """

    record: prepared.Record
    ref: claims.ClaimRef
    reason: str
    since: float


def devices_here(found: Iterable[claims.ResourceClaim], node: planning.Node) -> frozenset[str]:
    """The names of the devices of this node that claims have."""
    return frozenset(name for claim in found for name in _devices(claim, node))


def devices_taken(found: Iterable[claims.ResourceClaim], node: planning.Node) -> frozenset[str]:
    """As `devices_here`, without those that claims only look at (admin access)."""
    return frozenset(
        result.device.device
        for claim in found
        for result in (claim.allocation.results if claim.allocation else ())
        if (result.device.driver, result.device.pool) == (node.driver_name, node.pool)
        and not result.admin_access
    )


def why_stale(
    record: prepared.Record, claim: claims.ResourceClaim | None, node: planning.Node
) -> str | None:
    """Why a record can go, in words; None where it has to stay.

    `claim` is what the API has under the record's UID or name; None where that is nothing.
    """
    if claim is None:
        return "the claim does not exist any more"
    if claim.ref.uid != record.uid:
        return f"the claim was deleted and made again, its UID is {claim.ref.uid} now"
    if claim.allocation is None:
        return "the claim is no longer allocated"
    here = _devices(claim, node)
    recorded = {device.device for device in record.devices}
    if here & recorded or (here and not recorded):
        return None
    names = ", ".join(sorted(here)) or "none of this node"
    return f"the claim is allocated to other devices now: {names}"


def suspects(
    records: Iterable[prepared.Record],
    found: Mapping[str, claims.ResourceClaim | None],
    node: planning.Node,
    before: Mapping[str, Suspect],
    *,
    now: float,
) -> dict[str, Suspect]:
    """The records that look stale, by UID; those of `before` that still do keep their time.

    `found` has for the UID of each record what the API has under that UID, or under its name. The
    records have to be older than what was found.
    """
    stale: dict[str, Suspect] = {}
    for record in records:
        claim = found[record.uid]
        reason = why_stale(record, claim, node)
        if reason is None:
            continue
        earlier = before.get(record.uid)
        # A record that has changed since is of another prepare.
        since = earlier.since if earlier is not None and earlier.record == record else now
        ref = claim.ref if claim is not None and claim.ref.uid == record.uid else record.ref
        stale[record.uid] = Suspect(record, ref, reason, since)
    return stale


def due(found: Mapping[str, Suspect], *, now: float, grace: float) -> tuple[Suspect, ...]:
    """Those that looked stale at an earlier look too, `grace` seconds ago or more; by UID."""
    return tuple(
        found[uid]
        for uid in sorted(found)
        if found[uid].since < now and now - found[uid].since >= grace
    )


def offset(name: str, span: float) -> float:
    """A node's own moment within `span` seconds, so that nodes do not all ask at once."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 * span


def _devices(claim: claims.ResourceClaim, node: planning.Node) -> set[str]:
    """The names of the devices that the claim has of this node."""
    return {
        result.device.device
        for result in (claim.allocation.results if claim.allocation else ())
        if (result.device.driver, result.device.pool) == (node.driver_name, node.pool)
    }
