"""Annotations of KAI's scheduler: a part of a GPU for one container of the pod.

Source: kai-scheduler/KAI-Scheduler, `docs/gpu-sharing/`.
"""

import re
from fractions import Fraction

from dra_driver.logic.converting import asks, reading, scenes, vgpu

SYSTEM = "KAI"
_FRACTION = "gpu-fraction"
_MEMORY = "gpu-memory"
_DEVICES = "gpu-fraction-num-devices"
_CONTAINER = "gpu-fraction-container-name"
NAMES = (_FRACTION, _MEMORY, _DEVICES, _CONTAINER)
_DECIMAL = re.compile(r"0?\.\d{1,9}", re.ASCII)


def container(pod: reading.Pod) -> str | None:
    """The name of the container whose part of a GPU the annotations ask for; None without them."""
    if _FRACTION not in pod.annotations and _MEMORY not in pod.annotations:
        return None
    regular = [one.name for one in pod.containers if one.listed == "containers"]
    return pod.annotations.get(_CONTAINER, regular[0] if regular else "")


def read(container: reading.Container, scene: scenes.Scene) -> asks.Wish:
    """What the annotations ask for, for this container."""
    has, said = scene.pod.annotations, scene.said
    found = tuple(name for name in NAMES if name in has)
    fraction = memory = None
    count: int | None = 1
    if _FRACTION in has and _MEMORY in has:
        rule = f"one of {_FRACTION} and {_MEMORY} is allowed: leave the other out"
        said.refuse("pod", f"annotation {_MEMORY}", has[_MEMORY], rule)
    elif _MEMORY in has:
        memory = reading.number("pod", f"annotation {_MEMORY}", has[_MEMORY], said, 1)
    else:
        fraction = _fraction(has[_FRACTION], scene)
    if _DEVICES in has:
        count = reading.number("pod", f"annotation {_DEVICES}", has[_DEVICES], said, 1)
    listed: tuple[asks.Ask, ...] = ()
    if count is not None and (fraction or memory):
        ask = asks.Ask(
            asks.Kind.SHARE,
            count,
            tuple(f"annotation {name}: {has[name]}" for name in found),
            memory=memory * vgpu.MIB if memory else None,
            fraction=fraction,
        )
        listed = (ask,)
    return asks.Wish(container, SYSTEM, listed, annotations=found)


def refuse_unknown(name: str, scene: scenes.Scene) -> None:
    """Refuse annotations for a container that the pod does not have."""
    names = ", ".join(one.name for one in scene.pod.containers[:10])
    rule = f"one of the pod's containers is allowed: {names}"
    scene.said.refuse("pod", f"annotation {_CONTAINER}", name, rule)


def _fraction(text: str, scene: scenes.Scene) -> Fraction | None:
    if _DECIMAL.fullmatch(text.strip()) and Fraction(text.strip()):
        return Fraction(text.strip())
    rule = "a number between 0 and 1 is allowed, for example 0.5"
    scene.said.refuse("pod", f"annotation {_FRACTION}", text, rule)
    return None
