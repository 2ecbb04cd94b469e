"""Resources of `nvidia.com`: HAMi's, and those of NVIDIA's device plugin.

Source: `docs/` of Project-HAMi/HAMi; NVIDIA/k8s-device-plugin, `docs/`.
"""

import dataclasses
import re
from collections.abc import Iterator
from fractions import Fraction

from dra_driver.logic.converting import annotations, asks, expressions, notes, reading, scenes

SYSTEM = "nvidia.com"
GPU = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENTAGE = "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"
PRIORITY = "nvidia.com/priority"
MPS_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
"""0 is normal, 1 below normal (NVIDIA's documentation of MPS)."""
_HAMI = (MEMORY, PERCENTAGE, CORES, PRIORITY)
_PARTITION = "nvidia.com/mig-"
_PROFILE = re.compile(r"\d{1,2}g\.\d{1,4}gb((\.|-)me(\.all)?|\.gfx)?", re.ASCII)
_MIB = 2**20
_SCHEDULER = "hami-scheduler"


def is_known(resource: str) -> bool:
    """Whether a resource is an ask that is translated here."""
    return resource == GPU or resource in _HAMI or resource.startswith(_PARTITION)


def read(container: reading.Container, scene: scenes.Scene) -> asks.Wish | None:
    """What a container asks for; None if that stays as it is, or was refused."""
    wanted = [name for name in container.amounts if is_known(name)]
    is_hami = any(name in container.amounts for name in _HAMI) or (
        GPU in container.amounts and is_of_hami(scene.pod)
    )
    if not is_hami and (not scene.policy.whole_gpus or _is_zero(container.amounts.get(GPU))):
        wanted = [name for name in wanted if name != GPU]
    if not wanted:
        return None
    found = annotations.Wanted()
    listed: list[asks.Ask | None] = []
    environment: tuple[tuple[str, str], ...] = ()
    if is_hami:
        found = scene.hami
        listed.append(_of_hami(container, found, scene))
        environment = _priority(container, scene.said)
    elif GPU in wanted:
        listed.append(_whole(container, scene.said))
    listed += _partitions(container, found, scene)
    complete = tuple(ask for ask in listed if ask is not None)
    return asks.Wish(container, SYSTEM, complete, tuple(wanted), found.found, environment)


def is_of_hami(pod: reading.Pod) -> bool:
    """Whether GPUs of a pod are asked of HAMi, whatever else is said of them."""
    said = any(name in pod.annotations for name in annotations.HAMI.listed)
    return said or pod.scheduler == _SCHEDULER


def _whole(container: reading.Container, said: notes.Notes) -> asks.Ask | None:
    count = reading.whole(container, GPU, said, least=1)
    return count and asks.Ask(asks.Kind.WHOLE, count, _asked(container, GPU)) or None


def _of_hami(
    container: reading.Container, wanted: annotations.Wanted, scene: scenes.Scene
) -> asks.Ask | None:
    has, said, driver = container.amounts, scene.said, scene.policy.driver
    count = reading.whole(container, GPU, said, least=1) if GPU in has else 1
    memory = reading.whole(container, MEMORY, said, least=1) if MEMORY in has else None
    percent = _percentage(container, said)
    cores = reading.whole(container, CORES, said, least=0) if CORES in has else None
    if MEMORY in has and percent:
        rule = f"one of {MEMORY} and {PERCENTAGE} is allowed: leave the other out"
        said.refuse(container.where, PERCENTAGE, has[PERCENTAGE], rule)
    if not any(name in has for name in (GPU, MEMORY, PERCENTAGE, CORES)):
        said.refuse(container.where, PRIORITY, has[PRIORITY], f"{GPU} is missing beside it")
    if cores is not None and cores > 100:
        said.warn(container.where, f"{CORES}: {cores}", "100: more than a GPU there is not")
        cores = 100
    if count is None:
        return None
    is_partition = wanted.mode is annotations.Mode.MIG
    selectors = wanted.selectors(driver, partition=is_partition)
    ask = asks.Ask(
        asks.Kind.SHARE,
        count,
        _asked(container, GPU, MEMORY, PERCENTAGE, CORES),
        memory=None if memory is None else memory * _MIB,
        fraction=Fraction(percent, 100) if percent else None,
        cores=cores,
        selectors=selectors,
        one_numa_node=wanted.one_numa_node,
    )
    if is_partition:
        return _partition_by_memory(container, ask, said)
    if memory is None and not percent and not cores:
        whole = (expressions.is_undivided(driver), *selectors)
        return dataclasses.replace(ask, kind=asks.Kind.WHOLE, cores=None, selectors=whole)
    return ask


def _partition_by_memory(
    container: reading.Container, ask: asks.Ask, said: notes.Notes
) -> asks.Ask:
    if ask.cores:
        said.warn(container.where, f"{CORES}: {ask.cores}", "nothing: a partition has its own")
    kept = ask if ask.memory or ask.fraction else dataclasses.replace(ask, fraction=Fraction(1))
    return dataclasses.replace(kept, kind=asks.Kind.PARTITION, cores=None)


def _percentage(container: reading.Container, said: notes.Notes) -> int | None:
    if PERCENTAGE not in container.amounts:
        return None
    return reading.whole(container, PERCENTAGE, said, least=0, most=100)


def _priority(container: reading.Container, said: notes.Notes) -> tuple[tuple[str, str], ...]:
    if PRIORITY not in container.amounts:
        return ()
    priority = reading.whole(container, PRIORITY, said, least=0, most=1)
    return () if priority is None else ((MPS_PRIORITY, str(priority)),)


def _partitions(
    container: reading.Container,
    wanted: annotations.Wanted,
    scene: scenes.Scene,
) -> Iterator[asks.Ask | None]:
    said, driver = scene.said, scene.policy.driver
    for resource in sorted(container.amounts):
        if not resource.startswith(_PARTITION):
            continue
        profile = resource.removeprefix(_PARTITION)
        if not _PROFILE.fullmatch(profile):
            rule = f"{_PARTITION}<profile> is allowed, for example {_PARTITION}1g.10gb"
            said.refuse(container.where, resource, container.amounts[resource], rule)
            continue
        count = reading.whole(container, resource, said, least=1)
        yield (
            count
            and asks.Ask(
                asks.Kind.PARTITION,
                count,
                _asked(container, resource),
                profile=profile.replace(".me", "+me").replace(".gfx", "+gfx"),
                selectors=wanted.selectors(driver, partition=True),
            )
            or None
        )


def _is_zero(amount: object) -> bool:
    found = reading.quantity(amount)
    return found is not None and not found.amount


def _asked(container: reading.Container, *resources: str) -> tuple[str, ...]:
    return tuple(
        f"{name}: {container.amounts[name]}" for name in resources if name in container.amounts
    )
