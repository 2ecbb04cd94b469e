"""Instances of the driver on one node that share a state directory during a rolling update.

Each live instance holds a lock on a file of its own; the kernel drops it when the process ends,
however that comes about. The file's name tells when the instance started.
"""

import contextlib
import fcntl
import os
import pathlib
import time

from dra_driver.adapters.disk import files

_PREFIX = "instance-"
_BIRTH_SECONDS = 60.0
"""How long an instance may take between making its file, under a hidden name, and locking it."""


class Instances:
    """This instance among those that are alive."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Make this instance known. The directory must exist.

        The clock of the node orders instances; one that starts later has a higher number.
        """
        self._directory = directory
        self._name = f"{_PREFIX}{time.time_ns():020d}-{os.getpid()}"
        with files.explaining("made", directory / self._name):
            self._descriptor = self._make()
        self.clear_dead()

    def _make(self) -> int:
        # An instance that sees the file unlocked takes it for a dead one's: it is locked first.
        hidden = self._directory / f".{self._name}"
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            hidden.rename(self._directory / self._name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def is_newest(self) -> bool:
        """Whether no live instance started after this one."""
        return not any(_is_alive(path) for path in self._others() if path.name > self._name)

    def clear_dead(self) -> None:
        """Remove the files of instances that are dead, and what they left that died at birth."""
        for path in self._others():
            if not _is_alive(path):
                files.remove(path)
        for path in _listed(self._directory, f".{_PREFIX}"):
            if _age(path) > _BIRTH_SECONDS and not _is_alive(path):
                files.remove(path)

    def has_others(self) -> bool:
        """Whether another instance is alive, an older or a newer one."""
        return any(map(_is_alive, self._others()))

    def _others(self) -> list[pathlib.Path]:
        return [path for path in _listed(self._directory, _PREFIX) if path.name != self._name]

    def close(self) -> None:
        """Leave."""
        with contextlib.suppress(*files.TROUBLE):
            files.remove(self._directory / self._name)
        os.close(self._descriptor)


def any_alive(directory: pathlib.Path) -> bool:
    """Whether an instance is alive that has this directory; for those who are none themselves.

    Of a directory that cannot be read nothing is known.
    """
    with contextlib.suppress(*files.TROUBLE):
        return any(map(_is_alive, _listed(directory, _PREFIX)))
    return False


def _listed(directory: pathlib.Path, prefix: str) -> list[pathlib.Path]:
    return [directory / name for name in files.names(directory) if name.startswith(prefix)]


def _age(path: pathlib.Path) -> float:
    """Seconds since the file was made; none where it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_alive(path: pathlib.Path) -> bool:
    with files.explaining("opened", path):
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
