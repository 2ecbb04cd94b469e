"""What the node offers now: its GPUs, cut by what claims have of them."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.apps.offering import inventory, withdrawing
from dra_driver.logic.health import conditions, tainting
from dra_driver.logic.offering import (
    catalog,
    counting,
    naming,
    offering,
    packing,
    places,
    publishing,
    tainted,
)
from dra_driver.model import devices, prepared, slices


class Offers:
    """Answers the publisher. A new order of partitions comes at most every `seconds`."""

    def __init__(
        self,
        gpus: inventory.Inventory,
        known: records.Records,
        *,
        driver_name: str,
        policy: packing.Policy,
        seconds: float,
        later: Callable[[], None],
        health: Callable[[], conditions.View] = conditions.View,
        allocated: withdrawing.Allocated = tuple,
    ) -> None:
        """`later` is called when an order that had to wait may be published.

        `health` tells what is wrong with GPUs, and `allocated` which devices claims have.
        """
        self._gpus = gpus
        self._known = known
        self._driver_name = driver_name
        self._policy = policy
        self._seconds = seconds
        self._later = later
        self._health = health
        self._withdrawing = withdrawing.Withdrawing(allocated)
        self._reordered = float("-inf")
        self._timer: threading.Timer | None = None
        self._reminds_at = float("-inf")
        self._told: set[str] = set()
        self._snapshot: inventory.Snapshot | None = None
        self._listed = offering.listing(())
        self._log = telemetry.logger("offers")

    def wanted(
        self,
        published: Sequence[slices.Device],
        form: publishing.Form,
        refused: Collection[str] = frozenset(),
    ) -> Sequence[publishing.Content] | None:
        """See `publishing.Wanted`; None until the GPUs have been looked at.

        And while what is published may be all that tells how a card is called.

        Raises:
            errors.Retryable: what claims have cannot be read, so it is not known what may go.
        """
        if not self._gpus.wait_first(0):
            return None
        snapshot = self._gpus.snapshot
        nameless = snapshot.nameless.keys()
        if nameless and nameless & naming.cards(naming.published(published)):
            return None
        state = self._state(snapshot, published, form)
        if self._withdrawing.wait is not None:
            self._remind(self._withdrawing.wait)
        self._tell_unoffered(snapshot.cards, form)
        listed = self._listing(snapshot, form, refused)
        best = offering.offer(listed, state, self._policy_of(may_reorder=True))
        if not _reorders(best, published):
            return best
        wait = self._reordered + self._seconds - time.monotonic()
        if wait > 0:
            self._remind(wait)
            return offering.offer(listed, state, self._policy_of(may_reorder=False))
        self._reordered = time.monotonic()
        return best

    def stop(self) -> None:
        """Remind nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _state(
        self,
        snapshot: inventory.Snapshot,
        published: Sequence[slices.Device],
        form: publishing.Form,
    ) -> offering.State:
        """What claims have, or may have, and what is wrong with any device."""
        try:
            known = self._known.contents()
        except OSError as error:
            raise errors.Retryable(f"the records of claims cannot be read: {error}") from error
        records_ = known.records.values()
        listed = {device.name for device in published}
        held = _held(records_)
        if known.damaged:
            # What those claims have is not known: nothing that is published goes meanwhile.
            held |= listed - snapshot.offered.keys()
        lost = {**_unlisted(snapshot.cards, records_, listed), **snapshot.lost}
        there = {card.name for card in snapshot.cards}
        away = {name for name in listed | lost.keys() if devices.card_of(name) not in there}
        where = places.published(device for device in published if device.name in away)
        where = {**where, **places.of({**snapshot.lost, **snapshot.offered}, records_)}
        taints = self._taints(where)
        sick = {name for name, has in taints.items() if tainting.withdraws(has)}
        doubtful = away if form.taints else away | sick
        out = self._withdrawing.out(doubtful - (held | listed if known.damaged else held), listed)
        held |= away - out
        if form.taints:
            return offering.State(lost, held, published, taints)
        return offering.State(lost, held, published, hidden=out)

    def _taints(self, where: Mapping[str, places.Place]) -> Mapping[str, tainted.Taints]:
        """Those of all devices that are not well, by name."""
        view = self._health()
        if not view.conditions:
            return {}
        found = {
            name: tainting.of(view.at(*place), self._driver_name) for name, place in where.items()
        }
        return {name: has for name, has in found.items() if has}

    def _listing(
        self, snapshot: inventory.Snapshot, form: publishing.Form, refused: Collection[str]
    ) -> offering.Listing:
        known = (self._snapshot, self._listed.form, self._listed.refused)
        if snapshot is not known[0] or (form, refused) != known[1:]:
            self._snapshot = snapshot
            self._listed = offering.listing(snapshot.cards, form, refused)
        return self._listed

    def _policy_of(self, *, may_reorder: bool) -> offering.Policy:
        return offering.Policy(self._driver_name, self._policy, may_reorder=may_reorder)

    def _remind(self, seconds: float) -> None:
        """Have it asked again then, or earlier."""
        now = time.monotonic()
        # One that is due reminds of something earlier, and may be at it still.
        if now < self._reminds_at <= now + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reminds_at = now + seconds
        self._timer = threading.Timer(seconds, self._later)
        self._timer.daemon = True
        self._timer.start()

    def _tell_unoffered(self, cards: Sequence[catalog.Card], form: publishing.Form) -> None:
        """Say once of each card that it is not offered in all ways, and why."""
        without = {card.name: offering.why_uncut(card, form) for card in cards}
        left_out = {card.name: counting.left_out(card) for card in cards}
        without = {name: reason for name, reason in without.items() if reason and left_out[name]}
        self._told &= without.keys()
        for name, reason in without.items():
            if name not in self._told:
                self._told.add(name)
                self._log.warning(f"{left_out[name]} are not offered: {reason}", device=name)


def _held(known: Iterable[prepared.Record]) -> set[str]:
    """The devices of claims, without those that they only look at."""
    return {
        device.device for record in known for device in record.devices if not device.admin_access
    }


def _unlisted(
    cards: Iterable[catalog.Card], known: Iterable[prepared.Record], listed: Collection[str]
) -> Mapping[str, devices.Offer]:
    """What claims have and no slice tells of: it is listed as its card has it."""
    had = catalog.of_claims(cards, known)
    return {name: one for name, one in had.items() if name not in listed}


def _reorders(best: Sequence[publishing.Content], published: Sequence[slices.Device]) -> bool:
    """Whether devices that are published change places."""
    names = [device.name for content in best for device in content.devices]
    before = [device.name for device in published]
    both = set(names).intersection(before)
    return [name for name in names if name in both] != [name for name in before if name in both]
