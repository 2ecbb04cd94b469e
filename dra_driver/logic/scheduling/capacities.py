"""How much of a device's capacities a request takes, and whether that is left.

Source: Kubernetes 1.36 `structured/internal/incubating/consumable_capacity.go`. A name without a
domain and the same name in the driver's domain are one capacity, unless a release compares the bare
texts.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from dra_driver.logic.scheduling import emulation, usage
from dra_driver.model import quantities, request_policies, slices

Amounts = Mapping[str, quantities.Quantity]
Behaviour = emulation.Emulation
_MILLI = 1000


class Taken(dict[str, quantities.Quantity]):
    """What a request takes of each capacity of a device; `exact` is the same to compute with."""

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self.exact: usage.Amounts = {name: amount.exact for name, amount in amounts.items()}


class Misfit(Exception):  # noqa: N818 - an answer, not an error
    """The device is not for the request, however much of it is free; the text says why."""


def consumption(
    device: slices.Device,
    driver: str,
    requested: Amounts,
    behaviour: Behaviour = emulation.FIXED,
) -> Taken:
    """What a request takes of each capacity of a device, rounded as its policies say.

    Raises:
        Misfit: a capacity is not there, too small, or has a policy that the amount breaks.
    """
    wanted = {
        _published_name(device, driver, name, behaviour): amount
        for name, amount in requested.items()
    }
    taken = {}
    for name, whole in device.capacity.items():
        policy = device.policies.get(name)
        unit = _unit(policy, behaviour)
        amount = _rounded(wanted.get(name), whole, policy, unit)
        if amount > whole:
            raise Misfit(f"{name} {whole} < {amount}")
        if policy is not None and not _is_allowed(amount, policy, unit):
            raise Misfit(f"{name} {amount} is not an amount that can be had")
        taken[name] = amount
    return Taken(taken)


class Names:
    """The names of the capacities that any of some devices has: `name in names`.

    Looking one up takes as long for many devices as for one.
    """

    def __init__(
        self,
        devices: Iterable[tuple[slices.Device, str]],
        behaviour: Behaviour = emulation.FIXED,
    ) -> None:
        """Of devices with their drivers."""
        self._as_written = behaviour.capacity_names_as_written
        self._full: dict[str, set[str]] = {}
        for device, driver in devices:
            full = (self._sense(name, driver) for name in device.capacity)
            self._full.setdefault(driver, set()).update(full)

    def __contains__(self, name: str) -> bool:
        """Whether one has it, by its bare name or that in its driver's domain."""
        return any(self._sense(name, driver) in names for driver, names in self._full.items())

    def _sense(self, name: str, driver: str) -> str:
        return name if self._as_written or "/" in name else f"{driver}/{name}"


def room(device: slices.Device, used: usage.Amounts) -> dict[str, quantities.Amount]:
    """What of each capacity of a device is left beside what others use."""
    return {name: _left(device, name, used) for name in device.capacity}


def has_room(left: usage.Amounts, taken: Taken) -> bool:
    """Whether that much is left."""
    # Written out: a search asks this for each device that it looks at.
    for name, amount in taken.exact.items():  # noqa: SIM110 - as above
        if left[name] < amount:
            return False
    return True


def describe_lack(device: slices.Device, taken: Taken, used: usage.Amounts) -> str:
    """The first capacity that is short: `memory 8Gi left < 16Gi`."""
    for name, amount in taken.items():
        left = _left(device, name, used)
        if left < amount.exact:
            shown = quantities.of_amount(left, device.capacity[name].format)
            return f"{name} {shown} left < {amount}"
    return ""


def short(
    device: slices.Device,
    driver: str,
    requested: Amounts,
    used: usage.Amounts,
    behaviour: Behaviour = emulation.FIXED,
) -> Iterator[tuple[str, quantities.Quantity, quantities.Quantity]]:
    """The capacities of which less is left than a request takes: what is left, and what it takes.

    By the name that the request has for it, or else the device. Nothing where it asks for one that
    the device does not have.
    """
    try:
        own = {_published_name(device, driver, name, behaviour): name for name in requested}
    except Misfit:
        return
    for name, whole in device.capacity.items():
        asked = requested.get(own.get(name, name))
        policy = device.policies.get(name)
        wanted = _rounded(asked, whole, policy, _unit(policy, behaviour))
        left = _left(device, name, used)
        if left < wanted.exact:
            yield own.get(name, name), quantities.of_amount(left, whole.format), wanted


def _left(device: slices.Device, name: str, used: usage.Amounts) -> quantities.Amount:
    return device.capacity[name].exact - used.get(name, 0)


def _published_name(device: slices.Device, driver: str, name: str, behaviour: Behaviour) -> str:
    domain, _, bare = name.rpartition("/")
    other = name
    if behaviour.capacity_names_as_written:
        other = name
    elif not domain:
        other = f"{driver}/{name}"
    elif domain == driver:
        other = bare
    for known in (name, other):
        if known in device.capacity:
            return known
    raise Misfit(f"no capacity {name}")


def _rounded(
    requested: quantities.Quantity | None,
    whole: quantities.Quantity,
    policy: request_policies.RequestPolicy | None,
    unit: int,
) -> quantities.Quantity:
    if requested is None:
        return whole if policy is None or policy.default is None else policy.default
    if policy is not None and policy.within is not None and policy.within.minimum is not None:
        return _stepped(requested, policy.within.minimum, policy.within.step, unit)
    larger = [value for value in policy.values if value >= requested] if policy is not None else []
    return min(larger, default=requested)


def _stepped(
    requested: quantities.Quantity,
    least: quantities.Quantity,
    step: quantities.Quantity | None,
    unit: int,
) -> quantities.Quantity:
    """The least amount, or steps above it. Steps are counted in parts of `unit`, as Go does it."""
    if requested < least:
        return least
    if step is None or not step.value:
        return requested
    first, length = _parts(least, unit), _parts(step, unit)
    reached = first - ((first - _parts(requested, unit)) // length) * length
    # Written as the API server stores it: whole powers of 1000 by their suffix.
    found = quantities.of_amount(Fraction(reached, unit), quantities.Format.BINARY_SI)
    return quantities.parse(str(found))


def _unit(policy: request_policies.RequestPolicy | None, behaviour: Behaviour) -> int:
    """In how many parts of one a range is counted: one, or thousandths if it is not whole."""
    if behaviour.whole_steps or policy is None or policy.within is None:
        return 1
    within = policy.within
    limits = (within.minimum, within.maximum, within.step)
    parts = any(limit is not None and limit.amount.denominator != 1 for limit in limits)
    return _MILLI if parts else 1


def _parts(amount: quantities.Quantity, unit: int) -> int:
    """How many parts, rounded up."""
    if unit == 1:
        return amount.value
    return quantities.Quantity(amount.amount * unit, amount.format).value


def _is_allowed(
    amount: quantities.Quantity, policy: request_policies.RequestPolicy, unit: int
) -> bool:
    if amount == policy.default:
        return True
    if policy.within is not None:
        within = policy.within
        if within.maximum is not None and amount > within.maximum:
            return False
        if within.step is None or not within.step.value:
            return True
        least = _parts(within.minimum, unit) if within.minimum is not None else 0
        return (_parts(amount, unit) - least) % _parts(within.step, unit) == 0
    return not policy.values or amount in policy.values
