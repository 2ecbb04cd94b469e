"""What bounds a set of devices: attributes that agree or differ, counters that run out.

Each object is the state of one search: `take` adds a device if it may be added, `put_back` takes
the one that was added last back out.

Source: Kubernetes 1.36 `structured/internal/incubating/allocator_incubating.go`. Two defects of
1.36.2 are not reproduced: distinctAttribute there remembers only the last device of a request with
a count, and counters there stay reserved when a later check refuses the device
(kubernetes/kubernetes#140436).
"""

from collections.abc import Iterable
from fractions import Fraction

from dra_driver.logic import pools
from dra_driver.model import claims, slices


class Attribute:
    """matchAttribute or distinctAttribute over the devices of one claim."""

    def __init__(self, constraint: claims.Constraint) -> None:
        """Start without devices."""
        self._constraint = constraint
        self._values: list[tuple[type, slices.AttributeValue]] = []

    def __str__(self) -> str:
        """As in the claim: matchAttribute NAME."""
        kind = "distinctAttribute" if self._constraint.distinct else "matchAttribute"
        return f"{kind} {self._constraint.attribute}"

    def concerns(self, request: str) -> bool:
        """Whether it bounds the devices of a request (`req`) or alternative (`req/alternative`)."""
        named = self._constraint.requests
        return not named or request in named or request.partition("/")[0] in named

    def take(self, candidate: pools.Candidate) -> bool:
        """Add the device; False, and nothing added, if it has no value or the wrong one."""
        value = lookup(candidate.device, candidate.id.driver, self._constraint.attribute)
        if value is None:
            return False
        # Version and string, 1 and true are different values.
        typed = (type(value), value)
        agrees = (
            typed not in self._values
            if self._constraint.distinct
            else not self._values or (typed == self._values[0])
        )
        if agrees:
            self._values.append(typed)
        return agrees

    def put_back(self) -> None:
        """Take the device that was added last back out."""
        self._values.pop()


class Counters:
    """What is left of the counters of all pools that a node sees."""

    def __init__(self, seen: Iterable[pools.Pool], in_use: pools.InUse) -> None:
        """Start with what devices in use leave over, on whatever node they are used."""
        self._left: dict[tuple[str, str, str, str], Fraction] = {}
        for pool in seen:
            for name, value in pool.counters.items():
                self._left[pool.driver, pool.name, *name] = value
            for consumer in pool.consumers if not pool.defect else ():
                if consumer.id in in_use:
                    self._add(consumer, -1)

    def suffices(self, candidate: pools.Candidate) -> bool:
        """Whether enough is left for the device."""
        owner = (candidate.id.driver, candidate.id.pool)
        return all(
            amount <= self._left[(*owner, *name)] for name, amount in candidate.consumes.items()
        )

    def take(self, candidate: pools.Candidate) -> bool:
        """Consume what the device needs; False, and nothing consumed, if that is not left."""
        if not self.suffices(candidate):
            return False
        self._add(candidate, -1)
        return True

    def put_back(self, candidate: pools.Candidate) -> None:
        """Give back what the device had consumed."""
        self._add(candidate, 1)

    def _add(self, candidate: pools.Candidate, sign: int) -> None:
        for name, amount in candidate.consumes.items():
            self._left[candidate.id.driver, candidate.id.pool, *name] += sign * amount


def lookup(device: slices.Device, driver: str, qualified: str) -> slices.AttributeValue | None:
    """A device's attribute by its full name; a bare name stands for one of the driver's domain."""
    value = device.attributes.get(qualified)
    domain, _, name = qualified.partition("/")
    return device.attributes.get(name) if value is None and domain == driver else value
