"""Resources of `volcano.sh`: vGPUs, and the older GPU sharing.

Source: volcano-sh/volcano, deviceshare plugin and its guides.
"""

from dra_driver.logic.converting import annotations, asks, reading, scenes, vgpu

SYSTEM = "volcano.sh"
_NAMES = vgpu.Names(
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/vgpu-cores",
)
_OLD_MEMORY = "volcano.sh/gpu-memory"
_OLD_NUMBER = "volcano.sh/gpu-number"


def is_known(resource: str) -> bool:
    """Whether a resource is an ask that is translated here."""
    return resource in (*_NAMES.listed, _OLD_MEMORY, _OLD_NUMBER)


def read(container: reading.Container, scene: scenes.Scene) -> asks.Wish | None:
    """What a container asks for; None if it asks for nothing here."""
    resources = tuple(name for name in container.amounts if is_known(name))
    if not resources:
        return None
    is_new = any(name in resources for name in _NAMES.listed)
    wanted = scene.volcano if is_new else annotations.Wanted()
    ask = _new(container, scene) if is_new else _old(container, scene)
    if is_new and (_OLD_MEMORY in resources or _OLD_NUMBER in resources):
        rule = "volcano.sh/vgpu-… and volcano.sh/gpu-… exclude each other: leave these out"
        old = _OLD_MEMORY if _OLD_MEMORY in resources else _OLD_NUMBER
        scene.said.refuse(container.where, old, container.amounts[old], rule)
    complete = () if ask is None else (ask,)
    return asks.Wish(container, SYSTEM, complete, resources, wanted.found)


def _new(container: reading.Container, scene: scenes.Scene) -> asks.Ask | None:
    if _NAMES.count not in container.amounts:
        name = next(name for name in _NAMES.listed if name in container.amounts)
        rule = f"{_NAMES.count} is missing beside it: say how many GPUs"
        scene.said.refuse(container.where, name, container.amounts[name], rule)
        return None
    return vgpu.ask(container, _NAMES, scene.volcano, scene)


def _old(container: reading.Container, scene: scenes.Scene) -> asks.Ask | None:
    """A part of one GPU in MiB, or a number of whole ones."""
    has, said = container.amounts, scene.said
    if _OLD_MEMORY in has and _OLD_NUMBER in has:
        rule = f"one of {_OLD_MEMORY} and {_OLD_NUMBER} is allowed: leave the other out"
        said.refuse(container.where, _OLD_NUMBER, has[_OLD_NUMBER], rule)
    elif _OLD_MEMORY in has:
        memory = reading.whole(container, _OLD_MEMORY, said, least=1)
        if memory is not None:
            asked = vgpu.asked(container, _OLD_MEMORY)
            return asks.Ask(asks.Kind.SHARE, 1, asked, memory=memory * vgpu.MIB)
    else:
        count = reading.whole(container, _OLD_NUMBER, said, least=1)
        if count is not None:
            ask = asks.Ask(asks.Kind.WHOLE, count, vgpu.asked(container, _OLD_NUMBER))
            return vgpu.whole(ask, scene.policy.driver)
    return None
