"""Resources of `nvidia.com`: HAMi's, and those of NVIDIA's device plugin.

Source: `docs/` of Project-HAMi/HAMi; README of NVIDIA/k8s-device-plugin.
"""

import re
from collections.abc import Iterator

from dra_driver.logic.converting import annotations, asks, notes, reading, scenes, vgpu

SYSTEM = "nvidia.com"
GPU = "nvidia.com/gpu"
PRIORITY = "nvidia.com/priority"
MPS_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
"""0 is normal, 1 below normal (NVIDIA's documentation of MPS)."""
_NAMES = vgpu.Names(GPU, "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
_COMPANIONS = (*_NAMES.listed[1:], PRIORITY)
_SHARED = ".shared"
_REPLICA = f"{GPU}{_SHARED}"
_PARTITION = "nvidia.com/mig-"
_PROFILE = re.compile(r"\d{1,2}g\.\d{1,4}gb([.-]me(\.all)?|\.gfx)?", re.ASCII)
SCHEDULER = "hami-scheduler"
"""HAMi's own."""


def is_known(resource: str) -> bool:
    """Whether a resource is an ask that is translated here."""
    plain = (GPU, _REPLICA, *_COMPANIONS)
    return resource in plain or resource.startswith(_PARTITION)


def read(container: reading.Container, scene: scenes.Scene) -> asks.Wish | None:
    """What a container asks for; None if all of that stays as it is."""
    resources = [name for name in container.amounts if is_known(name)]
    is_hami = is_of_hami(container, scene.pod)
    if not is_hami and not _is_converted(container, scene):
        resources = [name for name in resources if name != GPU]
    if not resources:
        return None
    wanted = scene.hami if is_hami else annotations.Wanted()
    listed: list[asks.Ask | None] = []
    if is_hami:
        listed.append(_of_hami(container, wanted, scene))
    elif GPU in resources:
        listed.append(_counted(container, GPU, asks.Kind.WHOLE, "", scene.said))
    if _REPLICA in resources:
        listed.append(_counted(container, _REPLICA, asks.Kind.REPLICA, "", scene.said))
    listed += _partitions(container, wanted, scene)
    return asks.Wish(
        container,
        SYSTEM,
        tuple(ask for ask in listed if ask is not None),
        tuple(resources),
        wanted.found,
        _priority(container, wanted, scene.said),
    )


def is_of_hami(container: reading.Container, pod: reading.Pod) -> bool:
    """Whether GPUs of a container are asked of HAMi: something says so beside their number."""
    if any(name in container.amounts for name in _COMPANIONS):
        return True
    said = any(name in pod.annotations for name in annotations.HAMI.listed)
    return GPU in container.amounts and (said or pod.scheduler == SCHEDULER)


def _is_converted(container: reading.Container, scene: scenes.Scene) -> bool:
    """Whether a plain number of GPUs is to be converted. None at all is no ask."""
    count = reading.quantity(container.amounts.get(GPU))
    return scene.policy.whole_gpus and not (count is not None and count.amount == 0)


def _of_hami(
    container: reading.Container, wanted: annotations.Wanted, scene: scenes.Scene
) -> asks.Ask | None:
    if not any(name in container.amounts for name in _NAMES.listed):
        rule = f"{GPU} is missing beside it: say how many GPUs"
        scene.said.refuse(container.where, PRIORITY, container.amounts[PRIORITY], rule)
        return None
    return vgpu.ask(container, _NAMES, wanted, scene)


def _priority(
    container: reading.Container, wanted: annotations.Wanted, said: notes.Notes
) -> tuple[tuple[str, str], ...]:
    if PRIORITY not in container.amounts:
        return ()
    priority = reading.whole(container, PRIORITY, said, least=0, most=1)
    if priority is None:
        return ()
    if wanted.mode is annotations.Mode.MIG:
        becomes = "nothing: who has a partition has it alone"
        said.warn(container.where, f"{PRIORITY}: {priority}", becomes)
        return ()
    return ((MPS_PRIORITY, str(priority)),)


def _partitions(
    container: reading.Container, wanted: annotations.Wanted, scene: scenes.Scene
) -> Iterator[asks.Ask | None]:
    for resource in sorted(container.amounts):
        if not resource.startswith(_PARTITION):
            continue
        profile = resource.removeprefix(_PARTITION).removesuffix(_SHARED)
        kind = asks.Kind.PART if resource.endswith(_SHARED) else asks.Kind.PARTITION
        value = container.amounts[resource]
        if not _PROFILE.fullmatch(profile):
            rule = f"{_PARTITION}<profile> is allowed, for example {_PARTITION}1g.10gb"
            scene.said.refuse(container.where, resource, value, rule)
            continue
        name = profile.replace(".me", "+me").replace(".gfx", "+gfx")
        ask = _counted(container, resource, kind, name, scene.said)
        if ask is not None and kind is asks.Kind.PART and ask.count > 1:
            rule = (
                "1 is allowed: a container reaches one MPS daemon, and each shared partition has "
                "its own; ask for a larger profile, or in another container"
            )
            scene.said.refuse(container.where, resource, value, rule)
        yield ask if ask is None else wanted.on_partitions(ask, scene.policy.driver)


def _counted(
    container: reading.Container, resource: str, kind: asks.Kind, profile: str, said: notes.Notes
) -> asks.Ask | None:
    count = reading.whole(container, resource, said, least=1)
    if count is None:
        return None
    return asks.Ask(kind, count, vgpu.asked(container, resource), profile=profile)
