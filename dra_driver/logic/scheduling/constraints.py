"""matchAttribute and distinctAttribute: attributes in which the devices of a claim agree or differ.

Each object is the state of one search: `take` adds a device if it may be added, `put_back` takes
the one that was added last back out.

Source: Kubernetes 1.36 `structured/internal/incubating/allocator_incubating.go` and
`constraint.go`.
"""

from collections.abc import Sequence

from dra_driver.logic.scheduling import candidacy, emulation
from dra_driver.model import claims, slices

_Value = tuple[type, slices.AttributeValue]


class Attribute:
    """One constraint over the devices of one claim."""

    def __init__(
        self, constraint: claims.Constraint, behaviour: emulation.Emulation = emulation.FIXED
    ) -> None:
        """Start without devices."""
        self._constraint = constraint
        self._forgets = constraint.distinct and behaviour.distinct_forgets
        # One alternative of a request at a time, so that its name stands for the request.
        self._values: list[tuple[str, _Value]] = []

    def __str__(self) -> str:
        """As in the claim: matchAttribute NAME."""
        kind = "distinctAttribute" if self._constraint.distinct else "matchAttribute"
        return f"{kind} {self._constraint.attribute}"

    def concerns(self, request: str) -> bool:
        """Whether it bounds the devices of a request (`req`) or alternative (`req/alternative`)."""
        named = self._constraint.requests
        return not named or request in named or request.partition("/")[0] in named

    def take(self, request: str, candidate: candidacy.Candidate) -> bool:
        """Add the device; False, and nothing added, if it has no value or the wrong one."""
        value = lookup(candidate.device, candidate.id.driver, self._constraint.attribute)
        if value is None:
            return False
        # Version and string, 1 and true are different values.
        typed = (type(value), value)
        known = self._remembered()
        agrees = typed not in known if self._constraint.distinct else not known or typed == known[0]
        if agrees:
            self._values.append((request, typed))
        return agrees

    def put_back(self) -> None:
        """Take the device that was added last back out."""
        request, _ = self._values.pop()
        if self._forgets:
            # The one place where a request's value was kept is cleared with its last device.
            self._values = [
                (name, value) if name != request else (name, _FORGOTTEN)
                for name, value in self._values
            ]

    def _remembered(self) -> Sequence[_Value]:
        if self._forgets:
            return list(dict(self._values).values())
        return [value for _, value in self._values]


_FORGOTTEN: _Value = (type(None), "")


def lookup(device: slices.Device, driver: str, qualified: str) -> slices.AttributeValue | None:
    """A device's attribute by its full name; a bare name stands for one of the driver's domain."""
    value = device.attributes.get(qualified)
    domain, _, name = qualified.partition("/")
    return device.attributes.get(name) if value is None and domain == driver else value
