"""Locks by name, between the threads of this process and between instances of the driver.

During a rolling update two instances share one state directory. One file carries all locks, as
record locks on single bytes, so that no file is left behind for each name. The kernel drops a
dead process's locks.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator

from dra_driver import errors
from dra_driver.adapters import files

POLL = 0.005
"""Seconds between looks at a lock that the *other* instance holds; the kernel cannot wake us."""


class Locks:
    """Named locks over one file. Names are taken in sorted order, so holders cannot deadlock."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        # Closing any descriptor of the file would drop this process's locks: one stays open.
        with files.explaining("opened", path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._guard = threading.Lock()
        self._in_process: dict[str, tuple[threading.Lock, int]] = {}

    def close(self) -> None:
        """Give the file up; no lock may be held."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def hold(self, names: Iterable[str], *, seconds: float) -> Iterator[None]:
        """Hold all the names for the length of the block.

        Raises:
            errors.Retryable: one of them stayed taken for `seconds`.
        """
        deadline = time.monotonic() + seconds
        with contextlib.ExitStack() as stack:
            for name in sorted(set(names)):
                stack.enter_context(self._one(name, deadline))
            yield

    @contextlib.contextmanager
    def _one(self, name: str, deadline: float) -> Iterator[None]:
        lock = self._enter(name)
        try:
            if not lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
                raise _timeout(name, "another call")
            try:
                self._acquire_byte(name, deadline)
                try:
                    yield
                finally:
                    fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _offset(name))
            finally:
                lock.release()
        finally:
            self._leave(name)

    def _enter(self, name: str) -> threading.Lock:
        with self._guard:
            lock, users = self._in_process.get(name, (threading.Lock(), 0))
            self._in_process[name] = lock, users + 1
            return lock

    def _leave(self, name: str) -> None:
        with self._guard:
            lock, users = self._in_process.pop(name)
            if users > 1:
                self._in_process[name] = lock, users - 1

    def _acquire_byte(self, name: str, deadline: float) -> None:
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(name))
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise _timeout(name, "another instance of the driver") from None
                time.sleep(POLL)
            except OSError as error:
                raise files.explained(error, "locked", self._path) from error
            else:
                return


def _offset(name: str) -> int:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def _timeout(name: str, holder: str) -> errors.Retryable:
    return errors.Retryable(f"{name} is in use by {holder}; it is tried again with the next call")
