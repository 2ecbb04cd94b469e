"""What a request for a share takes without asking for it: all that it does not name.

On a device that is shared by memory (`--shares memory`) the default of memory and of cores is all
of them, as Kubernetes has it for a capacity without a policy. One that asks for 10Gi of memory
alone shares its device with nobody.
"""

from collections.abc import Iterator, Sequence

from dra_driver.logic.admission import admitted
from dra_driver.logic.cel import selection
from dra_driver.logic.offering import shares
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import candidacy, capacities, demand
from dra_driver.model import claims, quantities, request_policies

_LINES = {shares.CORES: "cores: 25", shares.MEMORY: "memory: 10Gi"}
"""A line to add for each; cores are percent."""


def advised(body: admitted.Admitted, driver: str) -> Iterator[str]:
    """A sentence for each request of a class of shares that names one of memory and cores alone."""
    for asked in body.asked:
        if asked.device_class not in (f"shared.{driver}", f"shared-mps.{driver}"):
            continue
        named = {name.removeprefix(f"{driver}/") for name in asked.capacity}
        for one, other in ((shares.MEMORY, shares.CORES), (shares.CORES, shares.MEMORY)):
            if one in named and other not in named:
                yield (
                    f"{asked.path}.capacity.requests: {one} without {other} takes all {other} of a "
                    f"device that is shared by memory, and leaves nobody a share: add, "
                    f"for example, {_LINES[other]}"
                )


def told(found: Sequence[claims.ResourceClaim], snapshot: snapshots.Snapshot) -> Iterator[str]:
    """A sentence for each request that takes all of something, of a device that it would share."""
    try:
        plan = demand.plan(found, snapshot.classes, snapshot.behaviour)
    except demand.Aborted:
        return  # That is told already, and it gets no device.
    for want in (want for item in plan for want in item.wants):
        names = _whole(want, snapshot)
        if names:
            lines = ", ".join(_LINES.get(name, f"{name}: an amount") for name in names)
            yield (
                f'request "{want.name}" takes all {" and all ".join(names)} of a shared device, as '
                f"it asks for no amount: nobody gets a share beside it. To leave some, add under "
                f"capacity.requests, for example, {lines}"
            )


def _whole(want: demand.Want, snapshot: snapshots.Snapshot) -> tuple[str, ...]:
    """What it takes all of by default, on the first device that it means and could share."""
    for node in snapshot.nodes:
        for candidate in snapshot.inventory.seen(node).candidates:
            if candidate.shareable and _is_meant(want, candidate):
                return _whole_of(want, candidate)
    return ()


def _is_meant(want: demand.Want, candidate: candidacy.Candidate) -> bool:
    try:
        return all(
            selector.matches(candidate.device, candidate.id.driver)
            for selector in (*want.class_selectors, *want.selectors)
        )
    except selection.EvaluationError:
        return False


def _whole_of(want: demand.Want, candidate: candidacy.Candidate) -> tuple[str, ...]:
    device, driver = candidate.device, candidate.id.driver
    named = {name.removeprefix(f"{driver}/") for name in want.capacity}
    try:
        taken = capacities.consumption(device, driver, want.capacity, want.behaviour)
    except capacities.Misfit:
        return ()
    return tuple(
        name.removeprefix(f"{driver}/")
        for name, amount in taken.items()
        if name.removeprefix(f"{driver}/") not in named
        and _could_be_less(device.policies.get(name), amount, device.capacity[name])
    )


def _could_be_less(
    policy: request_policies.RequestPolicy | None,
    amount: quantities.Quantity,
    whole: quantities.Quantity,
) -> bool:
    if policy is None or amount != whole:
        return False
    least = policy.within.minimum if policy.within is not None else min(policy.values, default=None)
    return least is not None and least < whole
