"""GPUs as the NVML adapter finds them on simulated nodes, and what can be had of them."""

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from dra_driver.adapters.nvml import nvml
from dra_driver.logic.offering import catalog, offering, publishing
from dra_driver.model import devices, mig, slices
from dra_driver.sim.gpus import gpu_operations, gpu_state, gpus

DRIVER = "gpu.nvidia.com"
A100, H100, H200, T4 = "a100-40gb-sxm4", "h100-80gb-hbm3", "h200-141gb", "t4"
NOTHING = offering.State()
INSTANCE_UUID = "MIG-00000000-0000-4000-8000-{gi:012d}"


@functools.cache
def node(spec: str, *, mig_on: bool = False) -> tuple[devices.Gpu, ...]:
    """The GPUs of a node that is made as `--simulate-gpus` says; MIG mode as asked for."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        library = gpus.SimulatedNvml(directory, spec=spec)
        adapter = nvml.Nvml(library)
        if mig_on:
            for gpu in adapter.discover().gpus:
                _switch_on(directory, gpu.uuid)
        return adapter.discover().gpus


def gpu(model: str, *, mig_on: bool = False, **facts: object) -> devices.Gpu:
    """The only GPU of a node."""
    return dataclasses.replace(node(f"{model}:1", mig_on=mig_on)[0], **facts)


def profile(card: devices.Gpu, name: str) -> mig.Profile:
    return next(one for one in card.profiles if one.name == name)


def spot(card: devices.Gpu, name: str, start: int) -> mig.Spot:
    """The place of a partition, by the name of its profile and its first memory slice."""
    found = profile(card, name)
    return mig.Spot(found.id, next(place for place in found.placements if place.start == start))


def instance(card: devices.Gpu, name: str, start: int, *, gi: int = 1) -> mig.Instance:
    uuid = mig.MigUuid(INSTANCE_UUID.format(gi=gi))
    return mig.Instance(gi, spot(card, name, start), 0, uuid)


def device_name(card: devices.Gpu, name: str, start: int) -> str:
    return devices.mig_device_name(card.name, name, spot(card, name, start))


def dynamic(spec: str) -> list[catalog.Card]:
    """What a node offers with partitions on demand."""
    return [catalog.card(one, mig.Mode.DYNAMIC) for one in node(spec)]


def offer(
    cards: Sequence[catalog.Card],
    *,
    layout: publishing.Layout = publishing.Layout.SPLIT,
    state: offering.State = NOTHING,
    **policy: Any,
) -> tuple[publishing.Content, ...]:
    """What a node with these cards publishes."""
    listed = offering.listing(cards, publishing.Form(layout))
    return offering.offer(listed, state, offering.Policy(DRIVER, **policy))


def names(content: publishing.Content) -> list[str]:
    return [device.name for device in content.devices]


def devices_of(contents: Iterable[publishing.Content]) -> list[slices.Device]:
    """All devices, in publishing order."""
    return [device for content in contents for device in content.devices]


def _switch_on(directory: pathlib.Path, uuid: str) -> None:
    library = gpus.SimulatedNvml(directory)
    library.nvmlInit()
    try:
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
        library.nvmlDeviceSetMigMode(handle, library.NVML_FEATURE_ENABLED)
    finally:
        library.nvmlShutdown()
    state = next(one for one in gpu_state.open_file(directory).read().gpus if one.uuid == uuid)
    if not state.mig_enabled:
        gpu_operations.reset(directory, uuid)
