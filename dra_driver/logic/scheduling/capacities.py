"""How much of a device's capacities a request takes, and whether that is left.

Source: Kubernetes 1.36 `structured/internal/incubating/consumable_capacity.go`. A name without a
domain and the same name in the driver's domain are one capacity here; 1.36 compares the bare texts.
"""

from collections.abc import Iterable, Iterator, Mapping

from dra_driver.logic.scheduling import usage
from dra_driver.model import quantities, request_policies, slices

Amounts = Mapping[str, quantities.Quantity]


class Taken(dict[str, quantities.Quantity]):
    """What a request takes of each capacity of a device; `exact` is the same to compute with."""

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self.exact: usage.Amounts = {name: amount.exact for name, amount in amounts.items()}


class Misfit(Exception):  # noqa: N818 - an answer, not an error
    """The device is not for the request, however much of it is free; the text says why."""


def consumption(device: slices.Device, driver: str, requested: Amounts) -> Taken:
    """What a request takes of each capacity of a device, rounded as its policies say.

    Raises:
        Misfit: a capacity is not there, too small, or has a policy that the amount breaks.
    """
    wanted = {_published_name(device, driver, name): amount for name, amount in requested.items()}
    taken = {}
    for name, whole in device.capacity.items():
        policy = device.policies.get(name)
        amount = _rounded(wanted.get(name), whole, policy)
        if amount > whole:
            raise Misfit(f"{name} {whole} < {amount}")
        if policy is not None and not _is_allowed(amount, policy):
            raise Misfit(f"{name} {amount} is not an amount that can be had")
        taken[name] = amount
    return Taken(taken)


class Names:
    """The names of the capacities that any of some devices has: `name in names`.

    Looking one up takes as long for many devices as for one.
    """

    def __init__(self, devices: Iterable[tuple[slices.Device, str]]) -> None:
        """Of devices with their drivers."""
        self._full: dict[str, set[str]] = {}
        for device, driver in devices:
            full = (_full(name, driver) for name in device.capacity)
            self._full.setdefault(driver, set()).update(full)

    def __contains__(self, name: str) -> bool:
        """Whether one has it, by its bare name or that in its driver's domain."""
        return any(_full(name, driver) in names for driver, names in self._full.items())


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
    device: slices.Device, driver: str, requested: Amounts, used: usage.Amounts
) -> Iterator[tuple[str, quantities.Quantity, quantities.Quantity]]:
    """The capacities of which less is left than a request takes: what is left, and what it takes.

    By the name that the request has for it, or else the device. Nothing where it asks for one that
    the device does not have.
    """
    try:
        own = {_published_name(device, driver, name): name for name in requested}
    except Misfit:
        return
    for name, whole in device.capacity.items():
        asked = requested.get(own.get(name, name))
        wanted = _rounded(asked, whole, device.policies.get(name))
        left = _left(device, name, used)
        if left < wanted.exact:
            yield own.get(name, name), quantities.of_amount(left, whole.format), wanted


def _left(device: slices.Device, name: str, used: usage.Amounts) -> quantities.Amount:
    return device.capacity[name].exact - used.get(name, 0)


def _full(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _published_name(device: slices.Device, driver: str, name: str) -> str:
    domain, _, bare = name.rpartition("/")
    other = name
    if not domain:
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
) -> quantities.Quantity:
    if requested is None:
        return whole if policy is None or policy.default is None else policy.default
    if policy is not None and policy.within is not None and policy.within.minimum is not None:
        return _stepped(requested, policy.within.minimum, policy.within.step)
    larger = [value for value in policy.values if value >= requested] if policy is not None else []
    return min(larger, default=requested)


def _stepped(
    requested: quantities.Quantity,
    least: quantities.Quantity,
    step: quantities.Quantity | None,
) -> quantities.Quantity:
    """The least amount, or steps above it. Steps are counted in whole units, as Go does it."""
    if requested < least:
        return least
    if step is None or not step.value:
        return requested
    steps = -((least.value - requested.value) // step.value)
    # Written as the API server stores it: whole powers of 1000 by their suffix.
    return quantities.parse(str(quantities.of_bytes(least.value + steps * step.value)))


def _is_allowed(amount: quantities.Quantity, policy: request_policies.RequestPolicy) -> bool:
    if amount == policy.default:
        return True
    if policy.within is not None:
        within = policy.within
        if within.maximum is not None and amount > within.maximum:
            return False
        if within.step is None or not within.step.value:
            return True
        least = within.minimum.value if within.minimum is not None else 0
        return (amount.value - least) % within.step.value == 0
    return not policy.values or amount in policy.values
