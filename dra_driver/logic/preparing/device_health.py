"""Which devices of the node can be used, as the kubelet is told: whatever their claims are.

The kubelet tells no two shares of a device apart here (Kubernetes 1.36, `dra-health/v1alpha1`):
what is wrong with one is wrong with the device, and names the claims.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from dra_driver.model import devices, prepared

GONE = "its GPU is not there any more: look at the node's kernel log (dmesg | grep -i xid)"
SILENT = "its GPU does not answer: look at the node's kernel log (dmesg | grep -i xid)"


def of_node(
    offered: Mapping[str, str],
    lost: Collection[str],
    known: Iterable[prepared.Record],
    *,
    down: Mapping[str, str] = MappingProxyType({}),
    problem: str | None = None,
) -> dict[str, str | None]:
    """What is wrong with each device, by name; None: nothing.

    `offered` are devices that can be handed out, with the names of their whole GPUs; `lost` those
    whose GPU was there earlier; `down` tells what is wrong with MPS daemons, by domain; `problem`
    why no GPU answers. Devices that claims have are told of, offered or not.
    """
    records = sorted(known, key=lambda record: record.uid)
    troubles = of_gpus(offered, lost, records, problem=problem)
    for domain in sorted(down):
        users = [
            (record, use) for record in records for use in record.sharing.mps
            if use.domain == domain
        ]  # fmt: skip
        claims = ", ".join(f"{record.namespace}/{record.name}" for record, _ in users)
        for name in {name for _, use in users for name in use.devices}:
            troubles[name] = troubles[name] or f"{down[domain]} (claims {claims})"
    return dict(sorted(troubles.items()))


def of_gpus(
    offered: Mapping[str, str],
    lost: Collection[str],
    known: Iterable[prepared.Record],
    *,
    problem: str | None = None,
) -> dict[str, str | None]:
    """As `of_node`, as far as the GPUs themselves are concerned."""
    there = frozenset(offered.values())
    troubles: dict[str, str | None] = dict.fromkeys(offered)
    troubles |= dict.fromkeys(lost, problem or GONE)
    for name in (device.device for record in known for device in record.devices):
        if name not in troubles:
            silent = devices.card_of(name) not in there
            troubles[name] = (problem or SILENT) if silent else None
    return troubles
