"""What looks like an ask, and is none that is translated: annotations, resources, and records.

A record is what a scheduler wrote on another pod, of which this one was copied.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from dra_driver.logic.converting import annotations, asks, conversion, kai, scenes, systems

_LOOKS_LIKE = ("nvidia.com/", "hami.io/", "volcano.sh/vgpu-", "tencent.com/", "aliyun.com/gpu")
_RESOURCES = (
    "nvidia.com/gpu",
    "nvidia.com/mig",
    "volcano.sh/vgpu",
    "volcano.sh/gpu",
    "tencent.com/vcuda",
    "aliyun.com/gpu",
)
_RECORD = re.compile(
    r"(hami\.io|volcano\.sh)/"
    r"(vgpu-(ids-new|node|time|devices-(to-allocate|allocated))|devices-to-allocate"
    r"|bind-(time|phase))"
    r"|tencent\.com/(gpu-assigned|predicate-(time|node|gpu-idx-\d{1,4}))"
    r"|ALIYUN_COM_GPU_MEM_[A-Z_]{1,40}",
    re.ASCII,
)
_ASKS = {*annotations.HAMI.listed, *annotations.VOLCANO.listed, *kai.NAMES}


def records(scene: scenes.Scene) -> tuple[str, ...]:
    """Annotations that tell of another pod, which the command drops."""
    found = tuple(filter(_RECORD.fullmatch, scene.pod.annotations))
    if scene.policy.door is not conversion.Door.COMMAND:
        for name in found:
            scene.said.warn("pod", f"annotation {name}", "stays: it tells where another pod was")
        return ()
    for name in found:
        scene.said.tell("pod", f"annotation {name}", "dropped: it tells where another pod was")
    return found


def warn(scene: scenes.Scene, wishes: Sequence[asks.Wish]) -> None:
    """Warn of what nobody reads."""
    for container in scene.pod.containers:
        for name in container.amounts:
            unknown = not systems.is_known(name)
            if unknown and (wishes or name.startswith(_RESOURCES)):
                scene.said.warn(container.where, name, "stays: no resource of this name is known")
    if wishes:
        read = {name for wish in wishes for name in wish.annotations}
        for name, why in _annotations(scene.pod.annotations, read):
            scene.said.warn("pod", f"annotation {name}", why)


def _annotations(given: Collection[str], read: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in given:
        if name in read or _RECORD.fullmatch(name):
            continue
        if name in _ASKS:
            yield name, "stays: it is of another system than what the containers ask for"
        elif name.startswith(_LOOKS_LIKE):
            yield name, "stays: no annotation of this name is known"
