"""matchAttribute and distinctAttribute: attributes in which the devices of a claim agree or differ.

Each object is the state of one search: `take` adds a device if it may be added, `put_back` takes
the one that was added last back out.

Source: Kubernetes 1.36 `structured/internal/incubating/allocator_incubating.go` and
`constraint.go`.
"""

from collections.abc import Iterable

from dra_driver.logic.cel import selection
from dra_driver.logic.scheduling import candidacy, demand, emulation
from dra_driver.model import claims, slices

_Values = frozenset[tuple[type, slices.Scalar]]
"""The values of an attribute, of a list all of them. Version and string, 1 and true differ."""


class Attribute:
    """One constraint over the devices of one claim."""

    def __init__(self, constraint: claims.Constraint) -> None:
        """Start without devices."""
        self._constraint = constraint
        self._taken: list[_Values] = []

    def __str__(self) -> str:
        """As in the claim: matchAttribute NAME."""
        kind = "distinctAttribute" if self._constraint.distinct else "matchAttribute"
        return f"{kind} {self._constraint.attribute}"

    def concerns(self, request: str) -> bool:
        """Whether it bounds the devices of a request (`req`) or alternative (`req/alternative`)."""
        named = self._constraint.requests
        return not named or request in named or request.partition("/")[0] in named

    def take(self, want: demand.Want, candidate: candidacy.Candidate) -> bool:
        """Add the device; False, and nothing added, if it has no value or the wrong one.

        Raises:
            demand.Aborted: the request derives the attribute, which fails for the device.
        """
        found = values(want, candidate, self._constraint.attribute)
        if found is None:
            return False
        if self._constraint.distinct:
            if any(found & known for known in self._known()):
                return False
        elif self._taken:
            found = found & self._common()
            if not found:
                return False
        self._add(want.name, found)
        return True

    def put_back(self, request: str) -> None:  # noqa: ARG002 - as released it matters
        """Take the device that was added last, for this request, back out."""
        self._taken.pop()

    def _add(self, request: str, found: _Values) -> None:  # noqa: ARG002 - as released it matters
        self._taken.append(found)

    def _known(self) -> Iterable[_Values]:
        """What distinct values must not be among."""
        return self._taken

    def _common(self) -> _Values:
        """What all devices have in common; with each it can only become less."""
        return self._taken[-1]


class Forgetful(Attribute):
    """As released: one value for each request, that of its last device; gone with any of them.

    What all devices have in common stays as small as the last device that was added made it.
    """

    def __init__(self, constraint: claims.Constraint) -> None:
        """Start without devices."""
        super().__init__(constraint)
        self._by_request: dict[str, _Values] = {}

    def put_back(self, request: str) -> None:
        """Take a device of this request back out."""
        last = self._taken.pop()
        self._by_request.pop(request.partition("/")[0], None)
        if self._taken:
            self._taken[-1] = last

    def _add(self, request: str, found: _Values) -> None:
        super()._add(request, found)
        self._by_request[request.partition("/")[0]] = found

    def _known(self) -> Iterable[_Values]:
        return self._by_request.values() if self._taken else ()


def of(constraint: claims.Constraint, behaviour: emulation.Emulation) -> Attribute:
    """The constraint, without devices yet."""
    return Forgetful(constraint) if behaviour.distinct_forgets else Attribute(constraint)


def values(want: demand.Want, candidate: candidacy.Candidate, attribute: str) -> _Values | None:
    """What a device has of an attribute, by its full name; None if it has not.

    What the request derives stands before what the driver publishes (Kubernetes 1.37, KEP-6080).

    Raises:
        demand.Aborted: the expression fails for the device.
    """
    value = _value(want, candidate, attribute)
    if value is None:
        return None
    return frozenset((type(item), item) for item in slices.scalars(value))


def _value(
    want: demand.Want, candidate: candidacy.Candidate, attribute: str
) -> slices.AttributeValue | None:
    driver = candidate.id.driver
    derived = want.derived.get(attribute)
    if derived is None:
        return lookup(candidate.device, driver, attribute)
    try:
        return derived.value(candidate.device, driver)
    except selection.EvaluationError as error:
        told = f"{want}, derived attribute {attribute}, device {candidate.id}: {error}"
        raise demand.Aborted(told, driver) from error


def lookup(device: slices.Device, driver: str, qualified: str) -> slices.AttributeValue | None:
    """A device's attribute by its full name; a bare name stands for one of the driver's domain."""
    value = device.attributes.get(qualified)
    domain, _, name = qualified.partition("/")
    return device.attributes.get(name) if value is None and domain == driver else value
