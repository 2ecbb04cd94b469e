"""Processes that are no children of ours, told apart from later ones that got the same number.

Every function raises one of `files.TROUBLE` where the operating system refuses.
"""

import contextlib
import dataclasses
import os
import pathlib
import select
import signal
from collections.abc import Iterator

from dra_driver.adapters.disk import files

_STATE, _PARENT, _START_TIME = 0, 1, 19
"""Fields of `/proc/PID/stat` after the name, which is in parentheses (proc(5))."""


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process. `start_time` is in clock ticks after boot: no other with its pid has the same."""

    pid: int
    start_time: int


def find(pid: int) -> Process | None:
    """The process that has this number now; None where there is none, or one that has ended."""
    fields = _fields(pid)
    # A zombie has ended; only its parent has not heard of it yet.
    if fields is None or fields[_STATE] in {"Z", "X"}:
        return None
    return Process(pid, int(fields[_START_TIME]))


def is_alive(process: Process) -> bool:
    """Whether it has not ended."""
    return find(process.pid) == process


def descends(pid: int, ancestor: int) -> bool:
    """Whether the process with this number is another one, or a child of it, however far down."""
    seen: set[int] = set()
    while pid != ancestor:
        fields = _fields(pid)
        if fields is None or pid in seen:
            return False
        seen.add(pid)
        pid = int(fields[_PARENT])
    return True


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal; False if the process has ended. Never reaches another process."""
    with _opened(process) as descriptor:
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True


def wait(process: Process, seconds: float) -> bool:
    """Wait until it has ended; False if it still runs after that time."""
    with _opened(process) as descriptor:
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))


def _fields(pid: int) -> list[str] | None:
    """What `/proc/PID/stat` has after the name; None where there is no such process."""
    path = pathlib.Path(f"/proc/{pid}/stat")
    with files.explaining("read", path):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
    return text.rpartition(")")[2].split()


@contextlib.contextmanager
def _opened(process: Process) -> Iterator[int | None]:
    with files.explaining("watched", f"/proc/{process.pid}"):
        try:
            descriptor: int | None = os.pidfd_open(process.pid)
        except ProcessLookupError:
            descriptor = None
    if descriptor is None:
        yield None
        return
    try:
        # Once it is open it stands for one process, and that can be looked at.
        yield descriptor if is_alive(process) else None
    finally:
        os.close(descriptor)
