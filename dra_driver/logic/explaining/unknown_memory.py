"""GPUs whose memory nobody knows: neither shared, nor found by those who ask for memory."""

import re
from collections.abc import Iterable, Iterator

from dra_driver.logic.offering import shares
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import candidacy, demand

_DRIVER = snapshots.DRIVER
_SHARED = frozenset({f"shared.{_DRIVER}", f"shared-mps.{_DRIVER}"})
_READS = re.compile(rf"\b{shares.MEMORY}\b")
_MOST = 3
"""Devices that are named."""


def told(plan: demand.Plan, snapshot: snapshots.Snapshot) -> Iterator[str]:
    """A sentence for each request that such GPUs are lost for."""
    lacking = {
        f"{candidate.id}": None
        for node in snapshot.nodes
        for candidate in snapshot.inventory.seen(node).candidates
        if _lacks_memory(candidate)
    }
    if not lacking:
        return
    more = len(lacking) - _MOST
    named = ", ".join([*lacking][:_MOST]) + (f" and {more} more" if more > 0 else "")
    for item in plan:
        for want in item.wants:
            if _asks_for_it(want):
                yield (
                    f'request "{want.name}": {named}: no memory is published, since NVML does not '
                    "tell how much there is: not shared, and not for those who ask for memory "
                    "(dra-driver doctor on the node; select by productName)"
                )


def explains(table: str, domain: str, name: str, devices: Iterable[candidacy.Candidate]) -> bool:
    """Whether a sentence of `told` says why none of the devices has what is asked for.

    `table` is `attributes` or `capacity`; without a domain a name is the driver's own.
    """
    is_memory = table == "capacity" and domain in ("", _DRIVER) and name == shares.MEMORY
    return is_memory and any(_lacks_memory(one) for one in devices)


def _lacks_memory(candidate: candidacy.Candidate) -> bool:
    device = candidate.device
    is_gpu = candidate.id.driver == _DRIVER and device.attributes.get("type") == "gpu"
    return is_gpu and not {shares.MEMORY, f"{_DRIVER}/{shares.MEMORY}"} & device.capacity.keys()


def _asks_for_it(want: demand.Want) -> bool:
    return (
        want.device_class.name in _SHARED
        or any(name.rpartition("/")[2] == shares.MEMORY for name in want.capacity)
        or any(_READS.search(selector.expression) for selector in want.selectors)
    )
