"""Minor numbers that have changed since the CDI spec of a claim was written.

A spec names device nodes, `/dev/nvidia0`, and a container that starts again is given those without
another prepare. Which card such a node is may change while the claim is prepared.
"""

from collections.abc import Iterable

from dra_driver.model import devices, prepared


def now(record: prepared.Record, gpus: Iterable[devices.Gpu]) -> dict[str, int]:
    """`record.minors` with the numbers that cards have now, as far as they are there."""
    minors: dict[str | None, int] = {gpu.uuid: gpu.minor for gpu in gpus}
    passed = _passed(record)
    return {
        name: minors.get(record.gpus.get(name), number) if name not in passed else number
        for name, number in record.minors.items()
    }


def are_taken(record: prepared.Record, gpus: Iterable[devices.Gpu]) -> bool:
    """Whether a node that is the claim's is that of another card by now."""
    owners = {gpu.minor: gpu.uuid for gpu in gpus}
    return any(
        owners.get(number, record.gpus.get(name)) != record.gpus.get(name)
        for name, number in record.minors.items()
        if name not in _passed(record)
    )


def _passed(record: prepared.Record) -> set[str]:
    """The cards that a virtual machine has, by VFIO: no node of theirs has such a number."""
    return {devices.card_of(one.device) for one in record.devices if one.kind == "vfio"}
