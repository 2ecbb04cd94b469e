"""What is left of the counters of the pools that a node sees, during one search.

Source: Kubernetes 1.36 `structured/internal/incubating/allocator_incubating.go`,
checkAvailableCounters.
"""

from collections.abc import Hashable, Iterable, Mapping

from dra_driver.logic.scheduling import candidacy, emulation, pools, usage
from dra_driver.model import quantities

_Left = dict[tuple[str, str], quantities.Amount]


class Counters:
    """Starts with what devices in use leave over, on whatever node they are used."""

    def __init__(
        self,
        seen: Iterable[pools.Pool],
        in_use: usage.InUse,
        behaviour: emulation.Emulation = emulation.FIXED,
    ) -> None:
        """Nothing is computed for pools whose devices are never asked for."""
        self._pools: Mapping[usage.PoolKey, pools.Pool] = {pool.key: pool for pool in seen}
        self._in_use = in_use
        self._by_name = behaviour.counters_by_pool_name
        self._left: dict[Hashable, _Left] = {}
        self._overdrawn: set[Hashable] = set()

    def suffices(self, candidate: candidacy.Candidate) -> bool:
        """Whether enough is left for the device.

        Never where devices in use have taken more from the pool than there is, of any counter.
        """
        if not candidate.consumes:
            return True
        left = self._of(candidate)
        if self._overdrawn and self._key(candidate) in self._overdrawn:
            return False
        # Written out: a search asks this for each device that it looks at.
        for name, amount in candidate.consumes.items():  # noqa: SIM110 - as above
            if left.get(name, amount) < amount:
                return False
        return True

    def take(self, candidate: candidacy.Candidate) -> bool:
        """Consume what the device needs; False, and nothing consumed, if that is not left."""
        if not self.suffices(candidate):
            return False
        self._add(candidate, -1)
        return True

    def put_back(self, candidate: candidacy.Candidate) -> None:
        """Give back what the device had consumed."""
        self._add(candidate, 1)

    def _add(self, candidate: candidacy.Candidate, sign: int) -> None:
        if candidate.consumes:
            _consume(self._of(candidate), candidate, sign)

    def _key(self, candidate: candidacy.Candidate) -> Hashable:
        return candidate.pool[1] if self._by_name else candidate.pool

    def _of(self, candidate: candidacy.Candidate) -> _Left:
        key = self._key(candidate)
        if key not in self._left:
            pool = self._pools[candidate.pool]
            left = self._left[key] = dict(pool.counters)
            for name in self._in_use.pool(candidate.pool):
                if (holder := pool.devices.get(name)) is not None:
                    _consume(left, holder, -1)
            if any(amount < 0 for amount in left.values()):
                self._overdrawn.add(key)
        return self._left[key]


def _consume(left: _Left, candidate: candidacy.Candidate, sign: int) -> None:
    for name, amount in candidate.consumes.items():
        # Only where pools of one name mix there are counters that the other does not have.
        if name in left:
            left[name] += sign * amount
