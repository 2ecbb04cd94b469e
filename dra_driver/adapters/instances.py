"""Instances of the driver on one node that share a state directory during a rolling update.

Each live instance holds a lock on a file of its own; the kernel drops it when the process ends,
however that comes about. The file's name tells when the instance started.
"""

import fcntl
import os
import pathlib
import time

_PREFIX = "instance-"


class Instances:
    """This instance among those that are alive."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Make this instance known. The directory must exist.

        The clock of the node orders instances; one that starts later has a higher number.
        """
        self._directory = directory
        self._name = f"{_PREFIX}{time.time_ns():020d}-{os.getpid()}"
        # An instance that sees the file unlocked takes it for a dead one's: it is locked first.
        hidden = directory / f".{self._name}"
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        hidden.rename(directory / self._name)

    def is_newest(self) -> bool:
        """Whether no live instance started after this one. Files of dead ones are cleared away."""
        for path in sorted(self._directory.glob(f"{_PREFIX}*"), reverse=True):
            if path.name == self._name:
                return True
            if _is_alive(path):
                return False
            path.unlink(missing_ok=True)
        return True

    def has_others(self) -> bool:
        """Whether another instance is alive, an older or a newer one."""
        return any(
            path.name != self._name and _is_alive(path)
            for path in self._directory.glob(f"{_PREFIX}*")
        )

    def close(self) -> None:
        """Leave."""
        (self._directory / self._name).unlink(missing_ok=True)
        os.close(self._descriptor)


def any_alive(directory: pathlib.Path) -> bool:
    """Whether an instance is alive that has this directory; for those who are none themselves."""
    return any(_is_alive(path) for path in directory.glob(f"{_PREFIX}*"))


def _is_alive(path: pathlib.Path) -> bool:
    try:
        # Only looked at, also by those who may not write there.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two that look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
