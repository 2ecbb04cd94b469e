"""Devices of slices with the taints that they have, and those that are not listed at all.

Taints come and go while everything else stays: no device changes its place for one.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dra_driver.logic.health import tainting
from dra_driver.logic.offering import publishing, refusals
from dra_driver.model import health, slices, taints

Json = dict[str, Any]
Taints = Sequence[Json]
"""Those of a device, as slices have them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """What is wrong with devices, by name.

    `hidden` are devices that are left out. `held` are those of claims: they are listed in any case.
    `unsure` may not be written as they are without asking: of `refused` (marks, see `refusals`)
    the server is known to refuse all.
    """

    taints: Mapping[str, Taints]
    hidden: Collection[str] = frozenset()
    held: Collection[str] = frozenset()
    unsure: Collection[str] = frozenset()
    refused: Collection[str] = frozenset()


def contents(offered: Sequence[publishing.Content], marks: Marks) -> tuple[publishing.Content, ...]:
    """The same with taints; a slice in which nothing is left is left out."""
    if not (marks.taints or marks.hidden or marks.unsure):
        return tuple(offered)
    found = (
        dataclasses.replace(one, devices=tuple(_devices(one.devices, marks))) for one in offered
    )
    return tuple(one for one in found if one.devices or one.counter_sets)


def away(found: Taints, driver_name: str) -> Taints:
    """The taints of a device whose GPU is not there: they say so, whatever else they say."""
    keys = {f"{driver_name}/{key}" for key in (health.Key.GPU_LOST, health.Key.DRIVER)}
    if any(taint["key"] in keys for taint in found):
        return found
    lost = {"key": f"{driver_name}/{health.Key.GPU_LOST}", "effect": taints.NO_SCHEDULE}
    return (lost, *found[: tainting.MOST - 1])


def _devices(listed: Sequence[slices.Device], marks: Marks) -> Iterator[slices.Device]:
    for device in listed:
        has = marks.taints.get(device.name, ())
        if device.name in marks.hidden:
            continue
        if not has and device.name not in marks.unsure:
            yield device
            continue
        form = _form(device, has, marks)
        if form is not None:
            yield form


def _form(device: slices.Device, has: Taints, marks: Marks) -> slices.Device | None:
    """The device with all its taints, or with as many as the server does not refuse.

    None where it refuses those that keep claims away, and nobody has the device.
    """
    grave = [taint for taint in has if taint["effect"] != taints.NONE]
    forms = [has, grave]
    if not grave or device.name in marks.held:
        forms.append(())
    for some in forms:
        extra = {**device.extra, "taints": [*some]} if some else device.extra
        form = dataclasses.replace(device, extra=extra)
        if not marks.refused or refusals.mark(slices.format_device(form)) not in marks.refused:
            return form
    return None
