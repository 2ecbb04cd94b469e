"""What was written beside an ask so that older systems work: dropped, or warned of by the webhook.

A claim's devices come by CDI: neither a runtime of its own nor a variable has a part in that, and
the pipes of MPS daemons are mounted.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver.logic.converting import asks, conversion, notes, nvidia, reading

Json = dict[str, Any]

_RUNTIMES = {"nvidia", "nvidia-cdi", "nvidia-legacy"}
"""RuntimeClasses of NVIDIA's container toolkit and operator."""
_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_STAYING = {"volcano", "kai-scheduler"}
"""Schedulers that know claims."""
_BY_CDI = "the devices of claims come by CDI"


def settle(
    pod: Json, wishes: Sequence[asks.Wish], door: conversion.Door, said: notes.Notes
) -> Json:
    """The pod without what is left over, or with a warning for each thing that stays."""
    spec = pod["spec"]
    fields = {
        field: reason
        for field, value, reason in _fields(spec, wishes)
        if _drops(field, value, reason, door, said)
    }
    kept = {name: value for name, value in spec.items() if name not in fields}
    for wish in wishes:
        _settle_environment(kept, wish.container, door, said)
    scheduler = spec.get("schedulerName")
    if isinstance(scheduler, str) and scheduler in _STAYING:
        said.tell("pod", f"schedulerName: {scheduler}", "the same: it knows claims")
    return {**pod, "spec": kept}


def _fields(spec: Json, wishes: Sequence[asks.Wish]) -> Iterator[tuple[str, str, str]]:
    """Fields of the spec that are of no use with claims: name, value and why."""
    runtime, scheduler = spec.get("runtimeClassName"), spec.get("schedulerName")
    if isinstance(runtime, str) and runtime in _RUNTIMES:
        yield "runtimeClassName", runtime, f"{_BY_CDI}, with any runtime"
    if scheduler == nvidia.SCHEDULER:
        yield "schedulerName", nvidia.SCHEDULER, "Kubernetes' own scheduler allocates claims"
    shares = any(ask.kind.is_shared for wish in wishes for ask in wish.asks)
    if spec.get("hostIPC") is True and shares:
        yield "hostIPC", "true", "MPS does not need it here; write it anew if something else does"


def _drops(
    field: str,
    value: str,
    reason: str,
    door: conversion.Door,
    said: notes.Notes,
    where: str = "pod",
) -> bool:
    if door is conversion.Door.COMMAND:
        said.tell(where, f"{field}: {value}", f"dropped: {reason}")
        return True
    said.warn(where, f"{field}: {value}", f"stays, and should not be there: {reason}")
    return False


def _settle_environment(
    spec: Json, container: reading.Container, door: conversion.Door, said: notes.Notes
) -> None:
    """Take a variable that would give devices out of a container; the spec is one that is new."""
    body = spec[container.listed][container.index]
    environment = reading.listed(body.get("env"))
    found = [one for one in environment if reading.mapping(one).get("name") == _DEVICES]
    if not found:
        return
    value = reading.mapping(found[0]).get("value")
    reason = f"{_BY_CDI}, and it could give all others, too"
    shown = value if isinstance(value, str) else "from elsewhere"
    if _drops(f"env {_DEVICES}", shown, reason, door, said, container.where):
        left = [one for one in environment if reading.mapping(one).get("name") != _DEVICES]
        # The lists of containers are new ones, and so are those that were changed in them.
        spec[container.listed][container.index] = reading.replaced(body, "env", left)
