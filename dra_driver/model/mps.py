"""An MPS control daemon: which devices it serves, where it lives, and what its clients may take.

One daemon serves one GPU or MIG instance, or several GPUs of a claim, for one trust domain. Its
directory, `ROOT/ID`, holds the description of this module in `daemon.json`, and the directories
below.
"""

import dataclasses
import json
import re
from typing import Annotated, Literal

import pydantic

from dra_driver import errors

VERSION = 1
MIB = 1024**2
_ID = re.compile(r"[0-9a-f]{16}")
_SOCKET_PATH_BYTES = 107
_LONGEST_NAME = "control_privileged"
_DEVICES = re.compile(r"MIG-[0-9A-Za-z/-]+|GPU-[0-9A-Za-z/-]+(,GPU-[0-9A-Za-z/-]+)*")


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What each client of a daemon gets at most; None is all there is.

    `thread_percentage` is a share of the multiprocessors, from 1 to 100; 100 is no limit.
    `memory_bytes` is memory of each device for one client process: the daemon knows whole MiB, and
    rounds down. All devices of a daemon have the same: it numbers its limits, and the numbers are
    those of the client's own order of devices (seen with driver 580), so that a client that hides a
    device, or turns the order, would have the limit of another one.

    Raises:
        errors.Rejected: a value is out of its range.
    """

    thread_percentage: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        percentage = self.thread_percentage
        if percentage is not None and not 1 <= percentage <= 100:
            raise errors.Rejected(
                f"active thread percentage {percentage}: expected a number from 1 to 100"
            )
        if self.memory_bytes is not None and self.memory_bytes < MIB:
            raise errors.Rejected(
                f"pinned device memory limit of {self.memory_bytes} bytes: expected at least 1Mi"
            )

    @property
    def memory_mib(self) -> int | None:
        """The memory of each device in MiB, rounded down."""
        return None if self.memory_bytes is None else self.memory_bytes // MIB


@dataclasses.dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon. `device` is the UUID of a GPU or MIG instance, or those of several GPUs with
    commas between them, as in `CUDA_VISIBLE_DEVICES`; directories are absolute.

    `pipe_dir` is what clients need: their `CUDA_MPS_PIPE_DIRECTORY` is a mount of it, which may be
    read-only. `shm_dir` is where a tmpfs of `shm_bytes` is mounted that daemon and clients have as
    `/dev/shm`.

    Raises:
        errors.Rejected: the id or the UUID is none, or the directory is not absolute, or too long.
    """

    id: str
    device: str
    directory: str
    shm_bytes: int
    limits: Limits

    def __post_init__(self) -> None:
        """Check what becomes a path or a variable."""
        if not _ID.fullmatch(self.id):
            raise errors.Rejected(f"MPS daemon id {self.id!r}: expected 16 hexadecimal digits")
        if not _DEVICES.fullmatch(self.device):
            raise errors.Rejected(
                f"MPS daemon {self.id}: device {self.device!r}: expected the UUID of a GPU (GPU-…) "
                "or MIG instance (MIG-…), or those of several GPUs"
            )
        if not self.directory.startswith("/"):
            raise errors.Rejected(
                f"MPS daemon {self.id}: directory {self.directory!r}: expected an absolute path"
            )
        if len(f"{self.control_dir}/{_LONGEST_NAME}".encode()) > _SOCKET_PATH_BYTES:
            raise errors.Rejected(
                f"MPS daemon {self.id}: directory {self.directory!r}: too long for sockets in it, "
                f"whose paths may have {_SOCKET_PATH_BYTES} bytes; choose a shorter state directory"
            )

    @property
    def devices(self) -> tuple[str, ...]:
        """The UUIDs of the devices that it serves."""
        return tuple(self.device.split(","))

    @property
    def pipe_dir(self) -> str:
        """Where clients find its socket."""
        return f"{self.directory}/pipe"

    @property
    def control_dir(self) -> str:
        """Where its own sockets are, which are for root alone: its `CUDA_MPS_PIPE_DIRECTORY`."""
        return f"{self.directory}/daemon"

    @property
    def log_dir(self) -> str:
        """Where it, and what watches over it, log."""
        return f"{self.directory}/log"

    @property
    def control_log(self) -> str:
        """What it says itself."""
        return f"{self.log_dir}/control.log"

    @property
    def shm_dir(self) -> str:
        """Where its shared memory is."""
        return f"{self.directory}/shm"

    def limited(self, limits: Limits) -> "Daemon":
        """The same daemon with other limits."""
        return dataclasses.replace(self, limits=limits)


def is_id(text: str) -> bool:
    """Whether this is the id of a daemon, and so the name of its directory."""
    return _ID.fullmatch(text) is not None


def daemon(
    *, root: str, daemon_id: str, device: str, shm_bytes: int, limits: Limits | None = None
) -> Daemon:
    """The daemon that lives in `root/daemon_id`. Raises as `Daemon` does."""
    return Daemon(
        id=daemon_id,
        device=device,
        directory=f"{root.rstrip('/')}/{daemon_id}",
        shm_bytes=shm_bytes,
        limits=limits or Limits(),
    )


_ByDevice = Annotated[tuple[int | None, ...], pydantic.Field(exclude=True)]
"""Of an earlier form: a limit for each number, in place of one for all. It is read, not written."""


def _largest(memory: int | None, by_device: tuple[int | None, ...]) -> int | None:
    """What the earlier form allowed at most on one of the devices."""
    known = [one for one in by_device if one is not None]
    if not by_device:
        return memory
    return max(known) if len(known) == len(by_device) else None


class _StoredLimits(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    thread_percentage: int | None
    memory_bytes: int | None
    memory_by_device: _ByDevice = ()


class _StoredDaemon(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    device: str
    directory: str
    shm_bytes: int = pydantic.Field(ge=0)
    limits: _StoredLimits


class _Stored(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1]
    daemon: _StoredDaemon


def encode(described: Daemon) -> str:
    """The text of a daemon's description file."""
    document = {"version": VERSION, "daemon": dataclasses.asdict(described)}
    return json.dumps(document, indent=1) + "\n"


def decode(text: str) -> Daemon:
    """The daemon in a description file's text.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    try:
        stored = _Stored.model_validate_json(text).daemon
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"not the description of an MPS daemon: {error}") from error
    return Daemon(
        id=stored.id,
        device=stored.device,
        directory=stored.directory,
        shm_bytes=stored.shm_bytes,
        limits=Limits(
            stored.limits.thread_percentage,
            _largest(stored.limits.memory_bytes, stored.limits.memory_by_device),
        ),
    )


class Ready(pydantic.BaseModel):
    """What is said of a daemon that answers and has its limits: the process, and these limits.

    `start_time` is that of `/proc/PID/stat`, in clock ticks after boot.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    pid: int
    start_time: int
    thread_percentage: int | None
    memory_bytes: int | None
    memory_by_device: _ByDevice = ()

    @property
    def limits(self) -> Limits:
        """The limits that a client gets which connects now."""
        return Limits(self.thread_percentage, _largest(self.memory_bytes, self.memory_by_device))
