"""What can be done with a GPU, by what is known of it, and why not: MPS, time slices, MIG, and
whether its MIG mode changes at run time or needs a reset.

What is told of an ability here is what is published, what is offered, and what a claim is refused
for. Sources: NVIDIA's comparison of concurrency mechanisms (MPS from compute capability 3.5 on,
time slices from 7.0 on); NVIDIA, Multi-Process Service (limits from Volta, 7.0, on). A virtual
machine's vGPU is cut by its profile on the hypervisor, and its guest can change nothing of that.
"""

from dra_driver.model import devices

_MPS: tuple[int, int] = (3, 5)
_TIME_SLICES: tuple[int, int] = (7, 0)
_MPS_LIMITS: tuple[int, int] = (7, 0)
_SWITCHES_AT_RUN_TIME: tuple[int, int] = (9, 0)
"""Hopper: from it on MIG mode changes without a reset; A100 and A30 (Ampere) need one."""
_PROHIBITED = 2
"""A compute mode (nvml.h, `nvmlComputeMode_t`)."""

VGPU = "it is a vGPU, a part of a GPU that the hypervisor of this virtual machine has cut"


def is_vgpu(gpu: devices.Gpu) -> bool:
    """Whether the node is a virtual machine that has a part of the GPU."""
    return gpu.virtualization is devices.Virtualization.VGPU


def is_prohibited(gpu: devices.Gpu) -> bool:
    """Whether no CUDA program may use it; so it is with a vGPU whose profile has no CUDA."""
    return gpu.compute_mode == _PROHIBITED


def how_to_reset(gpu: devices.Gpu) -> str:
    """What resets it; of one that is passed through the hypervisor may allow no reset."""
    command = "nvidia-smi --gpu-reset"
    if gpu.virtualization is devices.Virtualization.PASSTHROUGH:
        return f"{command}; if that is not allowed, restart the virtual machine"
    return command


def cut(gpu: devices.Gpu) -> bool | None:
    """Whether it can be cut into MIG instances; None where NVML does not tell."""
    return False if is_vgpu(gpu) else gpu.mig_capable


def switches_at_run_time(gpu: devices.Gpu) -> bool:
    """Whether MIG mode can be changed without a reset: on Hopper and newer, not on A100."""
    return bool(cut(gpu)) and bool(_since(_SWITCHES_AT_RUN_TIME, gpu))


def time_slices(gpu: devices.Gpu) -> bool | None:
    """Whether its time slice can be set; None where nothing tells."""
    return _since(_TIME_SLICES, gpu) if gpu.time_slices is None else gpu.time_slices


def mps(gpu: devices.Gpu) -> bool | None:
    """Whether processes can share it through MPS; None where nothing tells."""
    return False if is_vgpu(gpu) else _since(_MPS, gpu)


def why_no_mps(gpu: devices.Gpu) -> str | None:
    """Why the GPU is not shared through MPS whatever its generation; None where it is.

    On a vGPU nobody has seen limits hold, nor what its compute mode keeps out.
    """
    return f"{VGPU}, and on those limits of MPS are not known to hold" if is_vgpu(gpu) else None


def why_no_limits(gpu: devices.Gpu) -> str | None:
    """Why MPS holds processes on the GPU to no limits; None where nothing tells that."""
    if reason := why_no_mps(gpu):
        return reason
    if _since(_MPS_LIMITS, gpu) is False and gpu.compute_capability is not None:
        found, least = (".".join(map(str, one)) for one in (gpu.compute_capability, _MPS_LIMITS))
        return f"MPS holds limits from compute capability {least} on, and it has {found}"
    return None


def _since(least: tuple[int, int], gpu: devices.Gpu) -> bool | None:
    return None if gpu.compute_capability is None else gpu.compute_capability >= least
