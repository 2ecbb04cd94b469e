"""How long the simulated hardware takes: what a test or a bench writes into `delays.json`.

No file is no delay. What was waited is added up in `delays.log`, so that a bench can tell it from
what the driver itself took.
"""

import os
import pathlib
import time
from collections.abc import Mapping
from typing import Annotated

import pydantic

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.sim import hardware_files

FILE = "delays.json"
LOG = "delays.log"
SLOW = frozenset(
    {
        "nvmlDeviceSetMigMode",
        "nvmlDeviceCreateGpuInstance",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
    }
)
"""The functions that can be made to take time. The effect comes first, then the wait."""


class Delays(pydantic.BaseModel):
    """Seconds by the name of the NVML function that takes them."""

    model_config = pydantic.ConfigDict(extra="forbid")

    seconds: dict[str, Annotated[float, pydantic.Field(ge=0)]] = {}


class DelayFile:
    """The delays of one directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._file = hardware_files.ModelFile(directory / FILE, Delays())
        self._log = directory / LOG

    def wait(self, function: str) -> None:
        """Take as long as this function takes; the caller holds no lock."""
        wanted = self._file.read().seconds.get(function)
        if not wanted:
            return
        started = time.monotonic()
        time.sleep(wanted)
        line = f"{function} {time.monotonic() - started:.6f}\n"
        descriptor = os.open(
            self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def set_delays(directory: pathlib.Path, seconds: Mapping[str, float]) -> None:
    """From now on these functions take this long, and all others no time.

    Raises:
        errors.Rejected: one of them cannot be made to take time.
    """
    for function in seconds.keys() - SLOW:
        allowed = ", ".join(sorted(SLOW))
        raise errors.Rejected(f"delay of {function!r}: simulated are those of {allowed}")
    with hardware_files.ModelFile(directory / FILE, Delays()).edit() as delays:
        delays.seconds = Delays(seconds=dict(seconds)).seconds


def waited(directory: pathlib.Path) -> float:
    """The seconds that all calls together have waited so far, in every process."""
    lines = (files.read(directory / LOG) or "").splitlines()
    return sum(float(line.split()[1]) for line in lines)
