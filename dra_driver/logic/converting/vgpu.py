"""Shares as HAMi and Volcano have them: a count, and of each memory and cores."""

import dataclasses
from fractions import Fraction

from dra_driver.logic.converting import annotations, asks, expressions, reading, scenes

MIB = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """What the resources of a system are called."""

    count: str
    memory: str
    percentage: str
    cores: str

    @property
    def listed(self) -> tuple[str, ...]:
        """All of them, the count first."""
        return (self.count, self.memory, self.percentage, self.cores)


def ask(
    container: reading.Container, names: Names, wanted: annotations.Wanted, scene: scenes.Scene
) -> asks.Ask | None:
    """What a container asks for with resources of these names; None if that was refused.

    Memory is in MiB, cores in percent of a GPU; without either a GPU is had whole. Without a count
    there is one.
    """
    has, said, driver = container.amounts, scene.said, scene.policy.driver
    count = reading.whole(container, names.count, said, least=1) if names.count in has else 1
    memory = reading.whole(container, names.memory, said, least=1) if names.memory in has else None
    percent, cores = _percents(container, names, scene)
    if names.memory in has and percent:
        rule = f"one of {names.memory} and {names.percentage} is allowed: leave the other out"
        said.refuse(container.where, names.percentage, has[names.percentage], rule)
    if count is None or said.problems:
        return None
    is_partition = wanted.mode is annotations.Mode.MIG
    found = asks.Ask(
        asks.Kind.SHARE,
        count,
        asked(container, *names.listed),
        memory=None if memory is None else memory * MIB,
        fraction=Fraction(percent, 100) if percent else None,
        cores=cores or None,
        selectors=wanted.selectors(driver, partition=is_partition),
        one_numa_node=wanted.one_numa_node,
    )
    if is_partition:
        return _partition(container, names, found, scene)
    if memory is None and not percent and cores:
        said.warn(container.where, f"{names.cores}: {cores}", _all_memory(names))
    is_whole = memory is None and not percent and not cores
    return whole(found, driver) if is_whole else found


def whole(found: asks.Ask, driver: str) -> asks.Ask:
    """The ask as one for GPUs that nobody else uses."""
    selectors = (expressions.is_undivided(driver), *found.selectors)
    return dataclasses.replace(found, kind=asks.Kind.WHOLE, selectors=selectors)


def asked(container: reading.Container, *resources: str) -> tuple[str, ...]:
    """What a container asks for of these resources, as it was written."""
    return tuple(
        reading.written(name, container.amounts[name])
        for name in resources
        if name in container.amounts
    )


def _percents(
    container: reading.Container, names: Names, scene: scenes.Scene
) -> tuple[int | None, int | None]:
    has, said = container.amounts, scene.said
    percent = cores = None
    if names.percentage in has:
        percent = reading.whole(container, names.percentage, said, least=0, most=100)
        if percent == 0:
            said.warn(container.where, f"{names.percentage}: 0", "nothing: as if it was not there")
    if names.cores in has:
        cores = reading.whole(container, names.cores, said, least=0)
    if cores is not None and cores > 100:
        said.warn(container.where, f"{names.cores}: {cores}", "100: that is all of a GPU")
        cores = 100
    return percent, cores


def _partition(
    container: reading.Container, names: Names, found: asks.Ask, scene: scenes.Scene
) -> asks.Ask:
    """A partition with the memory; without any, with that of a whole GPU, as a share has it."""
    if found.cores:
        scene.said.warn(
            container.where,
            f"{names.cores}: {found.cores}",
            "nothing: a partition has the multiprocessors of its profile",
        )
    fraction = found.fraction if found.fraction or found.memory else Fraction(1)
    return dataclasses.replace(found, kind=asks.Kind.PARTITION, cores=None, fraction=fraction)


def _all_memory(names: Names) -> str:
    return (
        f"all memory of a GPU, since {names.memory} is not there: nobody else fits beside it; "
        "say how much memory it needs"
    )
