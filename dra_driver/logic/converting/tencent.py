"""Resources of `tencent.com`: gpu-manager's.

Source: README of tkestack/gpu-manager. A unit of memory is 256 MiB.
"""

from dra_driver.logic.converting import asks, reading, scenes, vgpu

SYSTEM = "tencent.com"
_CORE = "tencent.com/vcuda-core"
_MEMORY = "tencent.com/vcuda-memory"
_UNIT = 256 * vgpu.MIB
_RULE = (
    f"1 to 99 with {_MEMORY} (units of 256 MiB) for a share of a GPU, or n x 100 for n whole "
    "GPUs, is allowed"
)


def is_known(resource: str) -> bool:
    """Whether a resource is an ask that is translated here."""
    return resource in (_CORE, _MEMORY)


def read(container: reading.Container, scene: scenes.Scene) -> asks.Wish | None:
    """What a container asks for; None if it asks for nothing here."""
    resources = tuple(name for name in (_CORE, _MEMORY) if name in container.amounts)
    if not resources:
        return None
    ask = _ask(container, scene)
    return asks.Wish(container, SYSTEM, () if ask is None else (ask,), resources)


def _ask(container: reading.Container, scene: scenes.Scene) -> asks.Ask | None:
    has, said = container.amounts, scene.said
    memory = reading.whole(container, _MEMORY, said, least=1) if _MEMORY in has else None
    if _CORE not in has:
        rule = f"{_CORE} is missing beside it: {_RULE} of that"
        said.refuse(container.where, _MEMORY, has[_MEMORY], rule)
        return None
    core = reading.whole(container, _CORE, said, least=1)
    if core is None or (memory is None and _MEMORY in has):
        return None
    asked = vgpu.asked(container, _CORE, _MEMORY)
    if core < 100 and memory is not None:
        return asks.Ask(asks.Kind.SHARE, 1, asked, memory=memory * _UNIT, cores=core)
    if core % 100:
        said.refuse(container.where, _CORE, has[_CORE], _RULE)
        return None
    count = core // 100
    each = None if memory is None else -(-memory // count) * _UNIT
    return vgpu.whole(asks.Ask(asks.Kind.WHOLE, count, asked, memory=each), scene.policy.driver)
