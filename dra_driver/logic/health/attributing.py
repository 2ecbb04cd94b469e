"""Whom an event concerns: the place of an instance, and the claims that had it."""

import dataclasses
from collections.abc import Callable, Collection, Iterable

from dra_driver.logic.health import xids
from dra_driver.model import devices, health, mig, prepared


@dataclasses.dataclass(frozen=True, slots=True)
class Blamed:
    """The place of the instance, None for the whole card; and the claims, by UID.

    `by_daemon`: these are the claims of MPS daemons, and nobody else is the worse for it.
    """

    spot: mig.Spot | None = None
    claims: tuple[str, ...] = ()
    by_daemon: bool = False


def of(
    event: health.Event,
    gpu: devices.Gpu | None,
    known: Iterable[prepared.Record],
    faulted: Callable[[Iterable[str]], Collection[str]],
) -> Blamed | None:
    """Whom an event concerns; None: an instance that nobody knows any more, and that is no loss.

    `gpu` is the card as it was seen last, `faulted` tells which MPS daemons have had a fatal fault.
    What is known of a fault of hardware in an instance that is gone concerns the card.
    """
    having = [record for record in known if event.gpu in record.cards.values()]
    if event.gi is None:
        return _with_daemons(having, event, faulted)
    partitions = [
        (record, one)
        for record in having
        for one in record.partitions
        if one.gpu == event.gpu and one.gi == event.gi
    ]
    spots = [one.spot for _, one in partitions]
    spots += [one.spot for one in (gpu.instances if gpu else ()) if one.gi == event.gi]
    if not spots:
        is_applications = (
            event.kind is health.EventKind.XID
            and xids.of(event.data).fault is health.Fault.APPLICATION
        )
        return None if is_applications else Blamed()
    return Blamed(spots[0], tuple(sorted({record.uid for record, _ in partitions})))


def _with_daemons(
    having: Iterable[prepared.Record],
    event: health.Event,
    faulted: Callable[[Iterable[str]], Collection[str]],
) -> Blamed:
    """The claims of a card; of a fault inside an MPS daemon, those of that daemon."""
    domains = {record.uid: {use.domain for use in record.sharing.mps} for record in having}
    is_fault = event.kind is health.EventKind.XID and event.data in _ENDS_SERVERS
    involved = sorted({domain for found in domains.values() for domain in found})
    blamed = set(faulted(involved)) if is_fault and involved else set()
    hit = sorted(uid for uid, found in domains.items() if found & blamed)
    return Blamed(None, tuple(hit or sorted(domains)), by_daemon=bool(hit))


_ENDS_SERVERS = frozenset({8, 13, 31, 43, 45, 69, 94, 109})
"""XIDs of faults that an MPS server does not survive, and its clients with it."""
