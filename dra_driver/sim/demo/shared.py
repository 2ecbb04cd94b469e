"""What a pod got of devices that it shares, as people read it."""

import dataclasses
import re
from collections.abc import Mapping

from dra_driver.logic.preparing import mps_edits
from dra_driver.model import quantities

PERCENT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
_LIMIT = re.compile(r"([\w-]+)=(\d+)M")


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """A claim's share of a device: what it consumes of each capacity, as the allocation has it.

    `shares` is how many numbered shares the device has, None where they are not numbered.
    """

    id: str
    consumed: Mapping[str, str]
    shares: int | None = None

    def of(self, device: str) -> str:
        """As people call it: `share of 10Gi, 30 % of Tesla T4`, `1/4 of Tesla T4`."""
        memory, cores = self.consumed.get("memory", "0"), self.consumed.get("cores")
        amounts = [
            *([memory] if memory != "0" else []),
            *([f"{cores} %"] if cores is not None else []),
        ]
        if self.shares is None:
            return " of ".join(["share", *([", ".join(amounts)] if amounts else []), device])
        number = f"{self.consumed.get('shares', '1')}/{self.shares}"
        return f"{', '.join([number, *amounts])} of {device}"


def mps_limits(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """The limits that MPS holds each process of a container to, as `("30 %", "4Gi")`.

    None for a container that is no client of an MPS daemon; variables as CUDA knows them:
    https://docs.nvidia.com/deploy/mps, "Environment Variables".
    """
    if PIPE not in env:
        return None
    percent, memory, cap = env.get(PERCENT), env.get(MEMORY), env.get(mps_edits.CAP)
    return (
        *([f"{percent} %"] if percent is not None else []),
        *([_amounts(memory)] if memory is not None else []),
        *([f"{_amounts(f'0={cap}')} on each"] if cap is not None else []),
    )


def _amounts(text: str) -> str:
    """`GPU-1=4096M,GPU-2=8192M` as `4Gi on GPU-1, 8Gi on GPU-2`; of one device just the amount."""
    found = _LIMIT.findall(text)
    amounts = {device: str(quantities.of_bytes(int(count) * 2**20)) for device, count in found}
    if len(amounts) == 1:
        return next(iter(amounts.values()))
    return ", ".join(f"{amount} on {device}" for device, amount in amounts.items()) or text
