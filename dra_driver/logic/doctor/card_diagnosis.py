"""What the doctor makes of what NVML tells of each GPU, and of what it does not tell."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.offering import abilities
from dra_driver.model import devices


def findings(gpus: Sequence[devices.Gpu], looked_at: str) -> list[diagnosis.Finding]:
    """The persistence mode of all GPUs, and notes on those that are not like others."""
    if not gpus:
        return []
    found = [_persistence(gpus, looked_at)]
    for note in _NOTES:
        if met := [gpu for gpu in gpus if note.applies(gpu)]:
            cause = f"{_listed(met)}: {note.cause}"
            found.append(diagnosis.note(note.check, looked_at, cause, note.remedy))
    return found


def time_slices(gpus: Sequence[devices.Gpu], looked_at: str, program: str) -> diagnosis.Finding:
    """Whether intervals can be set with nvidia-smi, which is there."""
    check = "time slices"
    if lacking := [gpu for gpu in gpus if gpu.time_slices is False]:
        return diagnosis.note(
            check,
            looked_at,
            f"{program} says that {_listed(lacking)} has none to set: `timeSliceCapable` is false, "
            "and claims that set one are refused",
            "leave `sharing` out of their configs: processes take turns anyway",
        )
    return diagnosis.fine(check, looked_at, program)


def _persistence(gpus: Sequence[devices.Gpu], looked_at: str) -> diagnosis.Finding:
    check = "persistence mode"
    off = [gpu for gpu in gpus if gpu.persistence_mode is False]
    if not off:
        return diagnosis.fine(check, looked_at, "it is on")
    return diagnosis.note(
        check,
        looked_at,
        f"off for {_listed(off)}: the kernel's driver lets go of a GPU that nobody has open. Each "
        "look at the GPUs then starts them anew, which is slow; and if the daemon of a claim with "
        "MPS dies, the GPU's compute mode is lost for some seconds",
        "systemctl enable --now nvidia-persistenced on the node",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Note:
    """What is told of the GPUs to which it applies."""

    check: str
    applies: Callable[[devices.Gpu], bool]
    cause: str
    remedy: str


def _has_no_memory(gpu: devices.Gpu) -> bool:
    return not gpu.memory_bytes


_NOTES = (
    _Note(
        check="memory",
        applies=_has_no_memory,
        cause="NVML does not tell how much memory it has, so it is published without the capacity "
        "`memory`, a selector that reads that fails on it, and it is not shared whatever `shares` "
        "is",
        remedy="select it by `productName`; where selectors read `memory`, have them ask first "
        "whether it is there: \"memory\" in device.capacity['gpu.nvidia.com']",
    ),
    _Note(
        check="vGPU",
        applies=abilities.is_vgpu,
        cause="a part of a GPU that the hypervisor has cut: MIG mode and instances stay as they "
        "are, and MPS is refused, since its limits are not known to hold there",
        remedy="for MIG and MPS have whole GPUs passed through to the virtual machine",
    ),
    _Note(
        check="compute mode",
        applies=abilities.is_prohibited,
        cause="the compute mode is PROHIBITED: no CUDA program can use it",
        remedy="nvidia-smi -c DEFAULT; a vGPU needs a profile with CUDA (series C or Q)",
    ),
)


def _listed(gpus: Iterable[devices.Gpu]) -> str:
    return ", ".join(f"GPU {gpu.index} ({gpu.product_name})" for gpu in gpus)
