"""Whether a config can work on the devices that it is applied to.

A fact that is not known (None) stands in nobody's way: what depends on it fails where it is done.
Sources: NVIDIA, Multi-Process Service (MPS from 3.5 on; users side by side, memory limits and
thread percentages are Volta's); `nvidia-smi compute-policy` (time slices from 7.0 on).
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from dra_driver.logic.preparing import configs
from dra_driver.model import sharing

Capability = tuple[int, int]
_MPS: Capability = (3, 5)
_VOLTA: Capability = (7, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """A device of the group that one config is applied to; a group has each device once.

    `uuid` is None for a MIG device that is still to be made. `memory` is in bytes: of a MIG
    device, its own. `time_slices` is whether the driver can set the time slice of the GPU; where
    None, the compute capability decides. `no_mps` is why it is not shared through MPS, if there is
    another reason than its generation.
    """

    name: str
    type: sharing.DeviceType
    uuid: str | None = None
    compute_capability: Capability | None = None
    memory: int | None = None
    time_slices: bool | None = None
    no_mps: str | None = None


def check(config: sharing.Config, group: Sequence[Facts], *, subject: str) -> None:
    """Refuse a config that cannot work on the devices of its group.

    Raises:
        configs.InvalidConfig: it cannot; the text is `subject` and all that is in its way.
    """
    found = problems(config, group)
    if found:
        raise configs.InvalidConfig(subject, found)


def problems(config: sharing.Config, group: Sequence[Facts]) -> tuple[configs.Problem, ...]:
    """All that is in the way of a config on the devices of its group."""
    match config.settings:
        case sharing.TimeSlicing():
            return tuple(problem for device in group for problem in _time_slicing(device))
        case sharing.Mps() as mps:
            each = (problem for device in group for problem in _mps(mps, device))
            return (*each, *_limits(mps, group))
        case _:
            return ()


def memory_limits(mps: sharing.Mps, uuids: Sequence[str]) -> Mapping[str, int]:
    """What each client may allocate on each device of the group: bytes in whole MiB, by UUID.

    Devices without a limit are left out. The keys of `mps` have been checked.
    """
    ordered = sorted(uuids)
    promised = dict.fromkeys(ordered, mps.memory_limit) if mps.memory_limit is not None else {}
    for key, limit in mps.per_device.items():
        promised[ordered[int(key)] if key.isdecimal() else key] = limit
    return {uuid: mps.client_limit(limit) for uuid, limit in sorted(promised.items())}


def _time_slicing(device: Facts) -> Iterator[configs.Problem]:
    field = "sharing.strategy"
    if device.type is not sharing.DeviceType.GPU:
        yield configs.Problem(
            field,
            f"{field}: TimeSlicing is not possible on {device.name} of type {device.type}: time "
            "slices are set on whole GPUs. Remove `sharing`, or use MPS",
        )
        return
    old = device.compute_capability is not None and device.compute_capability < _VOLTA
    if device.time_slices is False or (device.time_slices is None and old):
        reason = f"time slices can be set from compute capability {_text(_VOLTA)} on"
        yield configs.Problem(
            field,
            f"{field}: TimeSlicing is not possible on {device.name}{_of(device)}: "
            f"{reason if old else 'its driver cannot set time slices'}. Remove `sharing`: "
            "processes take turns anyway",
        )


def _mps(mps: sharing.Mps, device: Facts) -> Iterator[configs.Problem]:
    if device.no_mps is not None:
        field = "sharing.strategy"
        yield configs.Problem(
            field,
            f"{field}: MPS is not possible on {device.name}: {device.no_mps}. Remove `sharing`, or "
            "select another GPU",
        )
        return
    if device.compute_capability is None:
        return
    if device.compute_capability < _MPS:
        yield _too_old("sharing.strategy", "MPS", device, _MPS, "Remove `sharing`")
        return
    if device.compute_capability >= _VOLTA:
        return
    asked = {
        "multiUser": mps.multi_user,
        "defaultActiveThreadPercentage": mps.thread_percentage is not None,
        "defaultPinnedDeviceMemoryLimit": mps.memory_limit is not None,
        "defaultPerDevicePinnedMemoryLimit": bool(mps.per_device),
    }
    for name, is_asked in asked.items():
        if is_asked:
            field = f"sharing.mpsConfig.{name}"
            yield _too_old(field, name, device, _VOLTA, f"Remove {name}")


def _limits(mps: sharing.Mps, group: Sequence[Facts]) -> Iterator[configs.Problem]:
    field = "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"
    overridden: dict[str, str] = {}
    unsure = False
    for key, limit in mps.per_device.items():
        path = f"sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[{key}]"
        named = _named(key, group)
        if not named:
            yield configs.Problem(
                path, f"{path}: names none of the devices that the config is for: {_keys(group)}"
            )
            continue
        if len(named) > 1:
            # Which one it is shows once the MIG devices are made and have UUIDs.
            unsure, named = True, (_largest(group),)
        elif named[0].name in overridden:
            other = overridden[named[0].name]
            yield configs.Problem(
                path,
                f"{path}: names {named[0].name}, as [{other}] does: write one entry for a device",
            )
        else:
            overridden[named[0].name] = key
        yield from _too_much(path, limit, named[0])
    if mps.memory_limit is None:
        return
    for device in (_largest(group),) if unsure else group:
        if device.name not in overridden:
            yield from _too_much(field, mps.memory_limit, device)


def _named(key: str, group: Sequence[Facts]) -> tuple[Facts, ...]:
    """The devices that a key may mean: several where an index falls among UUIDs not yet known."""
    if not key.isdecimal():
        return tuple(device for device in group if device.uuid == key)
    if int(key) >= len(group):
        return ()
    uuids = [device.uuid for device in group if device.uuid is not None]
    if len(uuids) < len(group):
        return tuple(group)
    ordered = sorted(uuids)
    return tuple(device for device in group if device.uuid == ordered[int(key)])


def _largest(group: Sequence[Facts]) -> Facts:
    return max(group, key=lambda device: math.inf if device.memory is None else device.memory)


def _keys(group: Sequence[Facts]) -> str:
    uuids = sorted(device.uuid for device in group if device.uuid is not None)
    indices = "the index 0" if len(group) == 1 else f"an index from 0 to {len(group) - 1}"
    return f"write {indices}" + (f", or {' or '.join(uuids)}" if uuids else "")


def _too_much(field: str, limit: int, device: Facts) -> Iterator[configs.Problem]:
    if device.memory is not None and limit > device.memory:
        yield configs.Problem(
            field,
            f"{field}: {configs.quantity(limit)} is more than {device.name} has: write at most "
            f"{configs.quantity(device.memory)}",
        )


def _too_old(
    field: str, what: str, device: Facts, needed: Capability, advice: str
) -> configs.Problem:
    return configs.Problem(
        field,
        f"{field}: {what} is not possible on {device.name}{_of(device)}: it needs {_text(needed)} "
        f"or newer. {advice}, or select another GPU",
    )


def _of(device: Facts) -> str:
    if device.compute_capability is None:
        return ""
    return f" of compute capability {_text(device.compute_capability)}"


def _text(capability: Capability) -> str:
    return ".".join(map(str, capability))
