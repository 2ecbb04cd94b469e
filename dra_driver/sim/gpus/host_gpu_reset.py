"""What the stand-in for `nvidia-smi --gpu-reset` does, and the faults that a reset may meet.

Texts are those of the program of driver 580.159.04; what a refusal looks like, and its status, is
from NVIDIA/NVSentinel issue 1690, where persistence mode counts as a client, too. Before Ampere
cards that NVLink connects are reset together only (nvidia-smi(1), `--gpu-reset`).
"""

import pathlib
import time
from collections.abc import Collection, Sequence

import pydantic

from dra_driver.sim import hardware_files
from dra_driver.sim.gpus import (
    gpu_clients,
    gpu_faults,
    gpu_models,
    gpu_operations,
    gpu_session,
    gpu_state,
)

REFUSED = 255
"""The exit status."""
_AMPERE = (8, 0)
_NOT_ALONE = (
    "GPU Reset couldn't progress because the specified devices do not meet the reset criterion "
    "(e.g. NVLink connected GPUs must be reset together). Please append the following device "
    "indexes to the command line and retry."
)
_IN_USE = "In use by another client"
_MANY = "these devices"


class Fault(pydantic.BaseModel):
    """What the next resets meet, of whichever card."""

    model_config = pydantic.ConfigDict(extra="forbid")

    hangs: bool = False
    fails: str | None = None
    """The reason that the program tells."""
    loses: bool = False
    """The card falls off the bus."""
    is_idle: bool = False
    """It says that it was done, and nothing was."""


def inject(directory: pathlib.Path, fault: Fault) -> None:
    """From now on resets are like this; `Fault()` is as usual."""
    with _faults(directory).edit() as known:
        for name in Fault.model_fields:
            setattr(known, name, getattr(fault, name))


def run(directory: pathlib.Path, uuids: Sequence[str]) -> tuple[int, str]:
    """Reset cards of a node; exit status, and what is said."""
    fault = _faults(directory).read()
    if fault.hangs:
        gpu_clients.attach(directory, uuids)
        time.sleep(3600)
    with gpu_clients.alone(directory, uuids) as taken:
        if missing := _missing(directory, uuids):
            return REFUSED, f"{_NOT_ALONE}\n{','.join(map(str, missing))}\n"
        refused = {uuid: fault.fails for uuid in uuids if fault.fails}
        refused |= dict.fromkeys(_used(directory, uuids, taken), _IN_USE)
        if refused:
            return REFUSED, _refusal(directory, refused)
        for uuid in () if fault.is_idle else uuids:
            gpu_operations.reset(directory, uuid)
            if fault.loses:
                gpu_faults.remove(directory, uuid)
    done = [f"GPU {_address(directory, uuid)} was successfully reset." for uuid in uuids]
    return 0, "\n".join((*done, "All done."))


def _used(directory: pathlib.Path, uuids: Sequence[str], taken: Collection[str]) -> list[str]:
    """The cards that have a client."""
    state = gpu_state.open_file(directory).read()
    cards = [gpu_session.find(state, uuid) for uuid in uuids]
    return [
        card.uuid for card in cards if card.processes or card.persistence_mode or card.uuid in taken
    ]


def _missing(directory: pathlib.Path, uuids: Sequence[str]) -> list[int]:
    """The indexes of cards that are reset with these only, and are not among them."""
    state = gpu_state.open_file(directory).read()
    needed = {
        other
        for uuid in uuids
        for card in [gpu_session.find(state, uuid)]
        if not _is_for_itself(card)
        for other in card.linked
    }
    ordered = sorted(state.gpus, key=lambda card: card.pci_address)
    return [
        index
        for index, card in enumerate(ordered)
        if card.uuid in needed and card.uuid not in uuids
    ]


def _is_for_itself(card: gpu_state.Gpu) -> bool:
    return gpu_models.load(card.model).compute_capability >= _AMPERE


def _refusal(directory: pathlib.Path, refused: dict[str, str]) -> str:
    lines = [f"  GPU {_address(directory, uuid)}: {reason}" for uuid, reason in refused.items()]
    text = "\n".join(("The following GPUs could not be reset:", *lines, ""))
    used = list(refused.values()).count(_IN_USE)
    if not used:
        return text
    which, these = ("1 device is", "this device") if used == 1 else (f"{used} devices are", _MANY)
    return (
        f"{text}\n{which} currently being used by one or more other processes (e.g., Fabric "
        "Manager, CUDA application, graphics application such as an X server, or a monitoring "
        "application such as another instance of nvidia-smi). Please first kill all processes "
        f"using {these} and all compute applications running in the system.\n"
    )


def _address(directory: pathlib.Path, uuid: str) -> str:
    state = gpu_state.open_file(directory).read()
    return f"0000{gpu_session.find(state, uuid).pci_address}".upper()


def _faults(directory: pathlib.Path) -> hardware_files.ModelFile[Fault]:
    return hardware_files.ModelFile(directory / "reset.json", Fault())
