"""Faults of simulated GPUs on demand: what a test writes into `<directory>/faults.json`.

Every process that uses the directory sees them with its next call.
"""

import pathlib
from typing import Annotated

import pydantic

from dra_driver import errors
from dra_driver.sim import hardware_files
from dra_driver.sim.gpus import gpu_errors

FILE = "faults.json"
LOST = gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"]


class _Fault(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Failing(_Fault):
    """Calls that fail with an NVML error: of one function or all, about one GPU or any.

    `times` is how often it still happens; None is always.
    """

    function: str | None = None
    uuid: str | None = None
    error: int
    times: Annotated[int, pydantic.Field(ge=1)] | None = None

    def hits(self, function: str, uuid: str | None) -> bool:
        """Whether this call fails. A call that is about no GPU has no `uuid`."""
        return self.function in {None, function} and self.uuid in {None, uuid}


class Absent(_Fault):
    """GPUs that have fallen off the bus."""

    absent: list[str]


class Renumbered(_Fault):
    """A GPU that gets this minor number with the next switch of its MIG mode."""

    renumbered: str
    minor: int


class Faults(_Fault):
    """What is wrong; of several that fit a call the first counts."""

    faults: list[Failing | Absent | Renumbered] = []

    @property
    def absent(self) -> frozenset[str]:
        """The UUIDs of all GPUs that are not there."""
        return frozenset(
            uuid for fault in self.faults if isinstance(fault, Absent) for uuid in fault.absent
        )

    @property
    def failing(self) -> list[Failing]:
        """The calls that fail."""
        return [fault for fault in self.faults if isinstance(fault, Failing)]


class FaultFile:
    """The faults of one directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._file = hardware_files.ModelFile(directory / FILE, Faults())

    def read(self) -> Faults:
        """What is wrong now."""
        return self._file.read()

    def take(self, function: str, uuid: str | None) -> int | None:
        """The error that this call meets, counted off; None if it meets none."""
        hit = next((fault for fault in self.read().failing if fault.hits(function, uuid)), None)
        if hit is None or hit.times is None:
            return hit.error if hit else None
        with self._file.edit() as faults:
            for fault in faults.failing:
                if fault.hits(function, uuid):
                    _count_off(faults, fault)
                    return fault.error
        return None

    def take_minor(self, uuid: str) -> int | None:
        """The minor number that a GPU gets now; None if it keeps its own."""
        with self._file.edit() as faults:
            for fault in faults.faults:
                if isinstance(fault, Renumbered) and fault.renumbered == uuid:
                    faults.faults.remove(fault)
                    return fault.minor
        return None


def inject(
    directory: pathlib.Path,
    *,
    error: int,
    function: str | None = None,
    uuid: str | None = None,
    times: int | None = None,
) -> None:
    """From now on calls fail, see `Failing`; earlier faults stay and come first.

    A driver that is not loaded is error 9 of `nvmlInitWithFlags`; a lost GPU is error 15 of every
    function with its `uuid`.

    Raises:
        errors.Rejected: there is no such error.
    """
    if error not in gpu_errors.CODES.values():
        known = ", ".join(f"{code} {name}" for name, code in gpu_errors.CODES.items())
        raise errors.Rejected(f"NVML error {error} does not exist; there are: {known}")
    fault = Failing(function=function, uuid=uuid, error=error, times=times)
    with hardware_files.ModelFile(directory / FILE, Faults()).edit() as faults:
        faults.faults.append(fault)


def remove(directory: pathlib.Path, *uuids: str) -> None:
    """These GPUs fall off the bus; they are back after `clear`."""
    with hardware_files.ModelFile(directory / FILE, Faults()).edit() as faults:
        faults.faults.append(Absent(absent=sorted(uuids)))


def lose(directory: pathlib.Path, uuid: str) -> None:
    """The GPU falls off the bus while NVML is open: it answers to nothing, and is still listed."""
    if uuid not in lost(directory):
        inject(directory, error=LOST, uuid=uuid)


def lost(directory: pathlib.Path) -> frozenset[str]:
    """The UUIDs of the GPUs that have."""
    return frozenset(
        uuid for fault in FaultFile(directory).read().failing if (uuid := _lost(fault))
    )


def bring_back(directory: pathlib.Path, *uuids: str) -> None:
    """These GPUs are there again, whether they were lost or removed."""
    with hardware_files.ModelFile(directory / FILE, Faults()).edit() as faults:
        kept: list[Failing | Absent | Renumbered] = []
        for fault in faults.faults:
            if isinstance(fault, Absent):
                left = [uuid for uuid in fault.absent if uuid not in uuids]
                kept += [Absent(absent=left)] if left else []
            elif not (isinstance(fault, Failing) and _lost(fault) in uuids):
                kept.append(fault)
        faults.faults = kept


def renumber(directory: pathlib.Path, uuid: str, minor: int) -> None:
    """The next switch of its MIG mode gives a GPU this minor number, as NVML says that it may."""
    with hardware_files.ModelFile(directory / FILE, Faults()).edit() as faults:
        faults.faults.append(Renumbered(renumbered=uuid, minor=minor))


def clear(directory: pathlib.Path) -> None:
    """Everything works again."""
    hardware_files.ModelFile(directory / FILE, Faults()).clear()


def _lost(fault: Failing) -> str | None:
    """The GPU for which nothing works any more because of this; None: it is another fault."""
    is_all = fault.function is None and fault.times is None
    return fault.uuid if is_all and fault.error == LOST else None


def _count_off(faults: Faults, fault: Failing) -> None:
    if fault.times is None:
        return
    if fault.times == 1:
        faults.faults.remove(fault)
    else:
        fault.times -= 1
