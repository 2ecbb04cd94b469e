"""Which devices a node offers, and in which order: the scheduler takes the first that fits."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dra_driver.logic import attributes
from dra_driver.model import devices, slices


def offer(
    offered: Mapping[str, devices.Gpu],
    lost: Mapping[str, devices.Gpu],
    held: Collection[str],
    published: Sequence[slices.Device],
    *,
    driver_name: str,
) -> list[slices.Device]:
    """The devices to publish, by minor number.

    A device that a claim holds stays listed when its GPU is gone, so that whoever looks for it
    finds it: with a taint, and with the facts that are remembered or `published`.
    """
    devices_by_name = {name: attributes.device(gpu) for name, gpu in offered.items()}
    known = {device.name: device for device in published}
    for name in sorted(set(held) - offered.keys()):
        gone = attributes.device(lost[name]) if name in lost else known.get(name)
        if gone is not None:
            devices_by_name[name] = _tainted(gone, f"{driver_name}/gpu-lost")
    return sorted(devices_by_name.values(), key=_minor)


def _tainted(device: slices.Device, key: str) -> slices.Device:
    taint = {"key": key, "effect": "NoSchedule"}
    return dataclasses.replace(device, extra={**device.extra, "taints": [taint]})


def _minor(device: slices.Device) -> tuple[int, str]:
    minor = device.attributes.get("minor")
    return (minor if isinstance(minor, int) else -1, device.name)
