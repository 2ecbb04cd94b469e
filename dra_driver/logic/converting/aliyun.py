"""Resources of `aliyun.com`: gpushare's, and what Alibaba Cloud's clusters add.

Source: AliyunContainerService/gpushare-scheduler-extender, `docs/userguide.md`; Alibaba Cloud's
guide to multi-card sharing: memory is in GiB, and is had in equal parts from so many GPUs.
"""

from dra_driver.logic.converting import asks, reading, scenes, vgpu

SYSTEM = "aliyun.com"
_MEMORY = "aliyun.com/gpu-mem"
_COUNT = "aliyun.com/gpu-count"
"""A label of the pod; an annotation and a resource of that name count, too."""
_CORES = "aliyun.com/gpu-core.percentage"
_GIB = 2**30


def is_known(resource: str) -> bool:
    """Whether a resource is an ask that is translated here."""
    return resource in (_MEMORY, _COUNT, _CORES)


def read(container: reading.Container, scene: scenes.Scene) -> asks.Wish | None:
    """What a container asks for; None if it asks for nothing here."""
    resources = tuple(name for name in (_MEMORY, _COUNT, _CORES) if name in container.amounts)
    if not resources:
        return None
    ask = _ask(container, scene)
    found = (_COUNT,) if _COUNT in scene.pod.annotations else ()
    return asks.Wish(container, SYSTEM, () if ask is None else (ask,), resources, found)


def _ask(container: reading.Container, scene: scenes.Scene) -> asks.Ask | None:
    has, said = container.amounts, scene.said
    if _MEMORY not in has:
        name = next(name for name in (_CORES, _COUNT) if name in has)
        rule = f"{_MEMORY} is missing beside it: say how many GiB"
        said.refuse(container.where, name, has[name], rule)
        return None
    memory = reading.whole(container, _MEMORY, said, least=1)
    count = _count(container, scene)
    cores = reading.whole(container, _CORES, said, least=1, most=100) if _CORES in has else None
    if memory is None or count is None or said.problems:
        return None
    if memory % count:
        rule = f"a multiple of {_COUNT}, which is {count}, is allowed: each GPU has an equal part"
        said.refuse(container.where, _MEMORY, has[_MEMORY], rule)
        return None
    if count > 1 and cores is not None:
        rule = f"it is for one GPU, and {_COUNT} is {count}: leave one of them out"
        said.refuse(container.where, _CORES, has[_CORES], rule)
        return None
    asked = vgpu.asked(container, _MEMORY, _COUNT, _CORES)
    if _COUNT not in has and count > 1:
        asked = (*asked, f"{_COUNT}: {count}")
    return asks.Ask(asks.Kind.SHARE, count, asked, memory=memory // count * _GIB, cores=cores)


def _count(container: reading.Container, scene: scenes.Scene) -> int | None:
    if _COUNT in container.amounts:
        return reading.whole(container, _COUNT, scene.said, least=1)
    for what, texts in (("label", scene.pod.labels), ("annotation", scene.pod.annotations)):
        if _COUNT in texts:
            return reading.number("pod", f"{what} {_COUNT}", texts[_COUNT], scene.said, 1)
    return 1
