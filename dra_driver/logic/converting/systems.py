"""The systems whose asks are translated, and which of them a container asks."""

from collections.abc import Iterator

from dra_driver.logic.converting import (
    aliyun,
    asks,
    kai,
    nvidia,
    reading,
    scenes,
    tencent,
    volcano,
)

_BY_RESOURCES = (nvidia, volcano, tencent, aliyun)


def wishes(scene: scenes.Scene) -> Iterator[asks.Wish]:
    """What the containers of a pod ask for, in the order in which they start."""
    by_kai = kai.container(scene.pod)
    if by_kai is not None and all(one.name != by_kai for one in scene.pod.containers):
        kai.refuse_unknown(by_kai, scene)
    for container in scene.pod.containers:
        found = [module for module in _BY_RESOURCES if any(map(module.is_known, container.amounts))]
        of_kai = by_kai is not None and container.name == by_kai
        if len(found) + of_kai > 1:
            _refuse_several(container, [module.SYSTEM for module in found], scene, of_kai=of_kai)
        elif of_kai:
            yield kai.read(container, scene)
        for module in found:
            wish = module.read(container, scene)
            if wish is not None:
                yield wish


def is_known(resource: str) -> bool:
    """Whether a resource is translated."""
    return any(module.is_known(resource) for module in _BY_RESOURCES)


def _refuse_several(
    container: reading.Container, names: list[str], scene: scenes.Scene, *, of_kai: bool
) -> None:
    module = next(module for module in _BY_RESOURCES if names[-1] == module.SYSTEM)
    resource = next(name for name in container.amounts if module.is_known(name))
    others = [kai.SYSTEM] if of_kai else names[:-1]
    rule = f"asks of {' and '.join([*others, names[-1]])} exclude each other: keep one system's"
    scene.said.refuse(container.where, resource, container.amounts[resource], rule)
