"""Which partitions of the NVLink fabric each GPU is in, from what Fabric Manager tells.

As the peer, one for each size: a claim that has `matchAttribute` on `partition4` gets GPUs of one
partition of four. Where a GPU is in several of a size, which the peer takes for an error of the
whole node, no number would say which others go with it: it has none of that size.
"""

import collections
import dataclasses
import re
from collections.abc import Sequence

from dra_driver.model import devices, fabric

SIZES = (1, 2, 4, 8)
"""GPUs of a partition that there is an attribute for, as the peer has them."""

_ADDRESS = re.compile(r"(?P<domain>[0-9a-f]{4,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """The GPUs with their partitions, and for people what is odd about the answer."""

    gpus: tuple[devices.Gpu, ...]
    notes: tuple[str, ...] = ()


def placed(gpus: Sequence[devices.Gpu], partitions: Sequence[fabric.Partition]) -> Placed:
    """All GPUs of a node with the partitions that they are in, of the sizes that are published."""
    members: dict[tuple[devices.GpuUuid, int], list[int]] = collections.defaultdict(list)
    notes = []
    known = collections.Counter(partition.id for partition in partitions)
    for partition in partitions:
        there = [[gpu for gpu in gpus if _is_same(gpu, one)] for one in partition.members]
        uuids = [gpu.uuid for matching in there for gpu in matching]
        if (
            known[partition.id] > 1
            or len(set(uuids)) < len(uuids)
            or any(len(matching) > 1 for matching in there)
        ):
            notes.append(
                f"partition {partition.id} of Fabric Manager is passed over: it cannot be told "
                "which GPUs are meant"
            )
            continue
        for uuid in uuids:
            members[uuid, len(partition.members)].append(partition.id)
    for (uuid, size), ids in members.items():
        if len(ids) > 1 and size in SIZES:
            listed = ", ".join(str(number) for number in sorted(ids))
            notes.append(
                f"Fabric Manager has {uuid} in several partitions of {size} GPUs ({listed}), so "
                f"it has no attribute partition{size}"
            )
    return Placed(
        tuple(
            dataclasses.replace(
                gpu,
                fabric=tuple(
                    (size, ids[0])
                    for size in SIZES
                    if len(ids := members.get((gpu.uuid, size), [])) == 1
                ),
            )
            for gpu in gpus
        ),
        tuple(dict.fromkeys(notes)),
    )


def _is_same(gpu: devices.Gpu, member: fabric.Member) -> bool:
    """Whether they are one: by the module id, and where NVML has not told that, by what else is
    known of both.
    """
    if gpu.module_id is not None:
        return member.physical_id == gpu.module_id
    return member.uuid == gpu.uuid or _address(member.address) == gpu.pci_address


def _address(text: str) -> str:
    """As sysfs writes it: Fabric Manager has 8 digits of domain, and upper case."""
    match = _ADDRESS.fullmatch(text.lower())
    return f"{int(match['domain'], 16):04x}:{match['rest']}" if match else ""
