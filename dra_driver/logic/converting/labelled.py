"""What labels of nodes that a pod asks for make of its asks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dra_driver.logic.converting import asks, expressions, labels, nvidia, scenes

Json = dict[str, Any]

_STAYS = "stays a condition for nodes: {} is left as it is, and gets its GPU by that"


@dataclasses.dataclass(frozen=True, slots=True)
class Labelled:
    """What is asked for, selectors for each request, and the pod's spec without the labels."""

    wishes: Sequence[asks.Wish]
    selectors: Sequence[str]
    spec: Json


def read(pod: Json, wishes: Sequence[asks.Wish], scene: scenes.Scene) -> Labelled:
    """What the labels make of what a pod wants; what cannot be said is refused.

    Where a container keeps its resource, the labels stay, too: nothing else says them for it.
    """
    partitions = any(ask.kind.is_partition for wish in wishes for ask in wish.asks)
    found = labels.read(pod["spec"], scene.policy.driver, partitions=partitions)
    scene.said.add(found.lines, found.warnings, found.problems)
    spec = found.spec
    if found.lines and _left(scene, wishes):
        spec = pod["spec"]
        for line in found.lines:
            scene.said.warn(line.where, line.asked, _STAYS.format(nvidia.GPU))
    if found.partition:
        wishes = [_of_partitions(wish, scene) for wish in wishes]
    # However they were written: equal asks have equal names.
    return Labelled(wishes, sorted(found.selectors), spec)


def warn(pod: Json, scene: scenes.Scene) -> None:
    """Warn of labels of a pod in which nothing is converted."""
    if _left(scene, ()):
        found = labels.read(pod["spec"], scene.policy.driver)
        for line in found.lines:
            scene.said.warn(line.where, line.asked, _STAYS.format(nvidia.GPU))


def _left(scene: scenes.Scene, wishes: Sequence[asks.Wish]) -> bool:
    """Whether a container keeps what it asks for as `nvidia.com/gpu`."""
    converted = {
        (wish.container.listed, wish.container.index)
        for wish in wishes
        if nvidia.GPU in wish.resources
    }
    return any(
        nvidia.GPU in container.amounts and (container.listed, container.index) not in converted
        for container in scene.pod.containers
    )


def _of_partitions(wish: asks.Wish, scene: scenes.Scene) -> asks.Wish:
    """With partitions where GPUs are asked for: the labels' selectors have the profile."""
    return dataclasses.replace(
        wish, asks=tuple(_of_partition(wish, ask, scene) for ask in wish.asks)
    )


def _of_partition(wish: asks.Wish, ask: asks.Ask, scene: scenes.Scene) -> asks.Ask:
    if ask.kind.is_partition:
        return ask
    if ask.kind is asks.Kind.WHOLE:
        undivided = expressions.is_undivided(scene.policy.driver)
        kept = tuple(one for one in ask.selectors if one != undivided)
        if not kept:
            return dataclasses.replace(ask, kind=asks.Kind.PARTITION, selectors=())
        what = "annotations choose whole cards: ask for nvidia.com/mig-<profile>"
    else:
        what = "this is for a share of a card: ask for nvidia.com/mig-<profile>.shared"
    rule = f"the labels ask for a partition, and {what}, or leave the label out"
    scene.said.refuse(wish.container.where, ", ".join(ask.asked), ask.count, rule)
    return ask
