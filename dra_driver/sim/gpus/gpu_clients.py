"""Who has a simulated card open, in whatever process: the clients of the kernel's driver.

With persistence mode off the driver forgets the compute mode of a card once its last client is
gone (NVIDIA, Driver Persistence, "Data Persistence"); MIG mode, instances and time slices it keeps
for as long as its module is loaded. Clients are open NVML sessions, each of which opens all cards,
and MPS daemons, each of which has its own cards open from its start on (both seen on H200, driver
580), and the processes on a card.

Only the standard library is imported: the stand-in for the MPS daemon uses this, too.
"""

import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

FOLDER = "clients"
STATE = "gpus.json"
"""As `gpu_state` writes it."""
_DEFAULT = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Opened:
    """The cards that a client has open: descriptors by UUID."""

    directory: pathlib.Path
    descriptors: dict[str, int]


def attach(directory: pathlib.Path, uuids: Iterable[str]) -> Opened:
    """Become a client of these cards of the node in `directory`.

    The first client of a card finds what the driver forgot when the last one was killed.
    """
    folder = directory / FOLDER
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptors = {uuid: os.open(f"{folder}/{uuid}", flags, 0o600) for uuid in uuids}
    opened = Opened(directory, descriptors)
    _forget(opened)
    for descriptor in descriptors.values():
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return opened


def detach(opened: Opened) -> None:
    """Be a client no more."""
    _forget(opened)
    for descriptor in opened.descriptors.values():
        os.close(descriptor)


def file(directory: pathlib.Path, uuid: str) -> pathlib.Path:
    """What every client of a card has open, as a device node of a real one."""
    return directory / FOLDER / uuid


@contextlib.contextmanager
def alone(directory: pathlib.Path, uuids: Iterable[str]) -> Iterator[list[str]]:
    """Be the one client of these cards for the length of the block; those that others have."""
    opened = attach(directory, uuids)
    try:
        yield [uuid for uuid, one in opened.descriptors.items() if not _is_alone(one)]
    finally:
        detach(opened)


def cards_of(directory: pathlib.Path, devices: Iterable[str]) -> list[str]:
    """The UUIDs of the cards that these devices, whole or MIG, are of."""
    wanted = set(devices)
    found: list[str] = []
    for gpu in _read(directory)["gpus"]:
        parts = {ci["uuid"] for gi in gpu["gpu_instances"] for ci in gi["compute_instances"]}
        if wanted & {gpu["uuid"], *parts}:
            found.append(gpu["uuid"])
    return found


def _is_alone(descriptor: int) -> bool:
    """Whether nobody else has the card open; nobody opens it as long as the lock is held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _forget(opened: Opened) -> None:
    """Have forgotten what no other client keeps; nobody opens those cards until they are let go."""
    directory = opened.directory
    alone = {uuid for uuid, descriptor in opened.descriptors.items() if _is_alone(descriptor)}
    if not any(_forgets(gpu, alone) for gpu in (_seen(_text(directory)) if alone else ())):
        return
    with _locked(directory):
        state = _read(directory)
        for gpu in state["gpus"]:
            if _forgets(gpu, alone):
                gpu["compute_mode"] = _DEFAULT
        aside = directory / f".{STATE}.{os.getpid()}"
        aside.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        aside.rename(directory / STATE)


def _forgets(gpu: dict[str, Any], alone: set[str]) -> bool:
    return (
        gpu["uuid"] in alone
        and not gpu["persistence_mode"]
        and not gpu["processes"]
        and gpu["compute_mode"] != _DEFAULT
    )


def _read(directory: pathlib.Path) -> dict[str, Any]:
    found = json.loads(_text(directory))
    assert isinstance(found, dict)  # noqa: S101 - as it is written
    return found


def _text(directory: pathlib.Path) -> str:
    try:
        return (directory / STATE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return '{"gpus": []}'


@functools.lru_cache(maxsize=8)
def _seen(text: str) -> tuple[dict[str, Any], ...]:
    """The cards in a text of the state, not to be changed. Most looks find the text of before."""
    return tuple(json.loads(text)["gpus"])


@contextlib.contextmanager
def _locked(directory: pathlib.Path) -> Iterator[None]:
    """As `hardware_files.locked` does."""
    descriptor = os.open(directory / f".{STATE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
