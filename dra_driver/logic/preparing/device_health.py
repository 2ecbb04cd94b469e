"""Which devices of the node can be used, as the kubelet is told: whatever their claims are.

The kubelet tells no two shares of a device apart here (Kubernetes 1.36, `dra-health/v1alpha1`):
what is wrong with one is wrong with the device, and names the claims.
"""

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from dra_driver.logic.health import conditions
from dra_driver.logic.offering import places
from dra_driver.logic.preparing import cdi, reports
from dra_driver.model import devices, health, prepared

GONE = "its GPU is not there any more: look at the node's kernel log (dmesg | grep -i xid)"
SILENT = "its GPU does not answer: look at the node's kernel log (dmesg | grep -i xid)"

_OF_CARDS = frozenset({GONE, SILENT})
_AWAY = frozenset({health.Key.GPU_LOST, health.Key.DRIVER, health.Key.PASSTHROUGH})
"""What conditions say where a card is not there."""


def of_node(
    offered: Mapping[str, str],
    lost: Collection[str],
    known: Iterable[prepared.Record],
    *,
    troubles: Mapping[str, reports.Troubles] = MappingProxyType({}),
    problem: str | None = None,
    bound: Collection[str] = (),
) -> dict[str, str | None]:
    """What is wrong with each device, by name; None: nothing.

    `offered` are devices that can be handed out, with the names of their whole GPUs; `lost` those
    whose GPU was there earlier; `troubles` tells what is wrong with what claims have, by UID;
    `problem` why no GPU answers; `bound` are the whole GPUs that a VFIO driver has, and that are
    not to answer. Devices that claims have are told of, offered or not.
    """
    records = sorted(known, key=lambda record: record.uid)
    found = of_gpus(offered, lost, records, problem=problem, bound=bound)
    users: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for record in records:
        of_claim = troubles.get(record.uid, {})
        for device in record.devices:
            trouble = of_claim.get(cdi.device_key(device.device, device.share_id))
            if trouble is not None:
                users[device.device, trouble.message].append(record.ref.short)
    for (name, message), claims in sorted(users.items()):
        found[name] = found[name] or f"{message} (claims {', '.join(dict.fromkeys(claims))})"
    return dict(sorted(found.items()))


def conditions_of(
    view: conditions.View, where: Mapping[str, places.Place], known: Iterable[prepared.Record]
) -> dict[str, tuple[health.Condition, ...]]:
    """What is wrong with devices that are not well, by name; `where` tells where they are.

    What has hit claims, and not their devices, names them.
    """
    found = {name: view.at(*place) for name, place in where.items()}
    users: dict[tuple[str, health.Condition], list[str]] = collections.defaultdict(list)
    for record in known:
        for one in view.of_claim(record.uid):
            for name in dict.fromkeys(device.device for device in record.devices):
                users[name, one].append(record.ref.short)
    for (name, one), claims in users.items():
        message = f"{one.finding.message} (claims {', '.join(sorted(claims))})"
        hit = dataclasses.replace(one, finding=dataclasses.replace(one.finding, message=message))
        found[name] = (*found.get(name, ()), hit)
    return {name: listed for name, listed in found.items() if listed}


def with_conditions(
    troubles: Mapping[str, str | None], known: Mapping[str, Sequence[health.Condition]]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """What is wrong with each device, and what is to be told of those that can be used.

    `troubles` are those of `of_node`, `known` the conditions of devices that have any. What a
    condition says of a card is not said twice.
    """
    found, notes = dict(troubles), dict[str, str]()
    for name, listed in known.items():
        said, trouble = conditions.told(listed), found.get(name)
        is_told = trouble in _OF_CARDS and any(one.finding.key in _AWAY for one in listed)
        if trouble is not None and not is_told and trouble not in said:
            said = f"{said}; {trouble}"
        if trouble is not None or conditions.withdraws(listed):
            found[name] = said
        elif name in found:
            notes[name] = said
    return found, notes


def unseen(names: Iterable[str], bound: Mapping[str, str]) -> dict[str, str]:
    """Why nobody can tell how devices are, of those on GPUs that a VFIO driver has.

    `bound` are these, by the name of the whole GPU, with why NVML does not tell of them.
    """
    cards = {name: devices.card_of(name) for name in names}
    return {name: bound[card] for name, card in cards.items() if card in bound}


def of_gpus(
    offered: Mapping[str, str],
    lost: Collection[str],
    known: Iterable[prepared.Record],
    *,
    problem: str | None = None,
    bound: Collection[str] = (),
) -> dict[str, str | None]:
    """As `of_node`, as far as the GPUs themselves are concerned."""
    there = {*offered.values(), *bound}
    troubles: dict[str, str | None] = dict.fromkeys(offered)
    troubles |= {name: None if devices.card_of(name) in bound else problem or GONE for name in lost}
    for name in (device.device for record in known for device in record.devices):
        if name not in troubles:
            silent = devices.card_of(name) not in there
            troubles[name] = (problem or SILENT) if silent else None
    return troubles
