"""Which devices, shares and counters are free beside what is in use, and what a search takes."""

import collections
import enum
from collections.abc import Sequence

from dra_driver.logic.scheduling import (
    candidacy,
    capacities,
    counters,
    demand,
    emulation,
    pools,
    usage,
)
from dra_driver.model import quantities


class Refusal(enum.Enum):
    """Why a device that a request means cannot be had now."""

    IN_USE = enum.auto()
    CAPACITY = enum.auto()
    COUNTERS = enum.auto()


class Reservations:
    """What is in use, and on top of it what one search has taken so far.

    `take` and `put_back` come in pairs like brackets: the last taken is the first put back.
    """

    def __init__(
        self,
        seen: Sequence[pools.Pool],
        in_use: usage.InUse,
        behaviour: emulation.Emulation = emulation.FIXED,
    ) -> None:
        """Nothing is taken."""
        self._behaviour = behaviour
        self._held = {
            pool.devices[name]: held
            for pool in seen
            for name, held in in_use.pool(pool.key).items()
            if name in pool.devices
        }
        self._counters = counters.Counters(seen, in_use, behaviour)
        self._taken: collections.Counter[candidacy.Candidate] = collections.Counter()
        self._shares: dict[candidacy.Candidate, list[capacities.Taken]] = {}
        self._room: dict[candidacy.Candidate, dict[str, quantities.Amount]] = {}
        self._drawn: dict[candidacy.Candidate, dict[str, quantities.Amount]] = {}

    def needs(self, want: demand.Want) -> bool:
        """Whether a request needs what is free, and takes it: admin access does neither."""
        return not want.spec.admin_access or self._behaviour.admin_access_takes

    def is_in_use(self, want: demand.Want, candidate: candidacy.Candidate) -> bool:
        """Whether the device, as a whole, is with somebody else."""
        if want.spec.admin_access:
            return False
        return candidate in self._taken or self.is_held(want, candidate)

    def is_held(self, want: demand.Want, candidate: candidacy.Candidate) -> bool:
        """Whether that is so before anything is taken."""
        held = self._held.get(candidate)
        return (
            held is not None
            and not want.spec.admin_access
            and bool(held.whole or self._is_barred(want, candidate, held))
        )

    def has_room(
        self, want: demand.Want, candidate: candidacy.Candidate, taken: capacities.Taken
    ) -> bool:
        """Whether the device has that much left of its capacities."""
        if not candidate.shareable or not self.needs(want):
            return True
        return capacities.has_room(self._room_of(candidate), taken)

    def refusal(
        self, want: demand.Want, candidate: candidacy.Candidate, taken: capacities.Taken
    ) -> tuple[Refusal, str] | None:
        """Why the device cannot be had beside what is in use and taken, with the detail."""
        if self.is_in_use(want, candidate):
            return Refusal.IN_USE, ""
        if not self.has_room(want, candidate, taken):
            used = self._held.get(candidate, usage.Held()).consumed
            return Refusal.CAPACITY, capacities.describe_lack(candidate.device, taken, used)
        if self._must_count(want, candidate) and not self._counters.suffices(candidate):
            return Refusal.COUNTERS, ""
        return None

    def count(self, want: demand.Want, candidate: candidacy.Candidate) -> bool | None:
        """Take the counters that the device needs; None if they are not left.

        Whether there were any to take: for a share of a device that others have shares of they are
        counted already.
        """
        if not self._must_count(want, candidate):
            return False
        return True if self._counters.take(candidate) else None

    def uncount(self, candidate: candidacy.Candidate, *, refused: bool) -> None:
        """Give the counters back, because the device was refused or is put back."""
        if self._behaviour.reservations_leak and (refused or candidate.shareable):
            return
        self._counters.put_back(candidate)

    def take(
        self, want: demand.Want, candidate: candidacy.Candidate, taken: capacities.Taken
    ) -> None:
        """Take the device or, of one that can be shared, that much."""
        if not self.needs(want):
            return
        if candidate.shareable:
            self._shares.setdefault(candidate, []).append(taken)
            room, drawn = self._room_of(candidate), self._drawn.setdefault(candidate, {})
            for name, amount in taken.exact.items():
                room[name] -= amount
                drawn[name] = drawn.get(name, 0) + amount
        else:
            self._taken[candidate] += 1

    def put_back(self, want: demand.Want, candidate: candidacy.Candidate) -> None:
        """Undo the last `take`."""
        if not self.needs(want):
            return
        if candidate.shareable:
            self._draw_back(candidate, self._shares[candidate].pop())
            if not self._shares[candidate]:
                del self._shares[candidate]
        else:
            self._taken[candidate] -= 1
            if not self._taken[candidate]:
                del self._taken[candidate]

    def _must_count(self, want: demand.Want, candidate: candidacy.Candidate) -> bool:
        if not candidate.consumes or not self.needs(want):
            return False
        return not candidate.shareable or not self._is_shared(candidate)

    def _is_barred(
        self, want: demand.Want, candidate: candidacy.Candidate, held: usage.Held
    ) -> bool:
        """Whether shares that others have keep it from being given as a whole."""
        if candidate.shareable:
            return False
        if not self._behaviour.shares_hold_nothing:
            return True
        try:
            wanted = capacities.consumption(
                candidate.device, candidate.id.driver, want.capacity, want.behaviour
            )
        except capacities.Misfit:
            return False
        return not capacities.has_room(capacities.room(candidate.device, held.consumed), wanted)

    def _is_shared(self, candidate: candidacy.Candidate) -> bool:
        """Whether the counters of a device that can be shared are taken already."""
        held = self._held.get(candidate)
        if self._behaviour.shares_count_again:
            # Only capacity is looked at, whether some is drawn.
            return candidate in self._drawn or bool(held is not None and held.consumed)
        return candidate in self._shares or (held is not None and held.shares > 0)

    def _draw_back(self, candidate: candidacy.Candidate, taken: capacities.Taken) -> None:
        """Undo what one share drew. As released, one that drew nothing stays counted."""
        room, drawn = self._room[candidate], self._drawn.get(candidate)
        for name, amount in taken.exact.items():
            room[name] += amount
            if drawn is not None:
                drawn[name] -= amount
        if taken and drawn is not None and not any(drawn.values()):
            del self._drawn[candidate]

    def _room_of(self, candidate: candidacy.Candidate) -> dict[str, quantities.Amount]:
        """What of each capacity is left, beside what others hold and the search has taken."""
        if candidate not in self._room:
            used = self._held.get(candidate, usage.Held()).consumed
            self._room[candidate] = capacities.room(candidate.device, used)
        return self._room[candidate]
