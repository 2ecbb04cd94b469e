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
from collections.abc import Iterable, Iterator, Mapping

from dra_driver import errors

POLL = 0.005
"""Seconds between looks at a lock that the *other* instance holds; the kernel cannot wake us."""


class Locks:
    """Named locks over one file. Names are taken in sorted order, so holders cannot deadlock."""

    def __init__(self, path: pathlib.Path) -> None:
        # Closing any descriptor of the file would drop this process's locks: one stays open.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._guard = threading.Lock()
        self._in_process: dict[str, tuple[threading.Lock, int]] = {}

    def close(self) -> None:
        """Give the file up; no lock may be held."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def hold(self, names: Iterable[str] | Mapping[str, str], *, seconds: float) -> Iterator[None]:
        """Hold all the names for the length of the block.

        A mapping tells what messages call each, where people know it otherwise.

        Raises:
            errors.Retryable: one of them stayed taken for `seconds`.
        """
        deadline = time.monotonic() + seconds
        called = names if isinstance(names, Mapping) else {}
        with contextlib.ExitStack() as stack:
            for name in sorted(set(names)):
                stack.enter_context(self._one(name, deadline, called.get(name, name)))
            yield

    @contextlib.contextmanager
    def _one(self, name: str, deadline: float, called: str) -> Iterator[None]:
        lock = self._enter(name)
        try:
            if not lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
                raise _timeout(called, "another call")
            try:
                self._acquire_byte(name, deadline, called)
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

    def _acquire_byte(self, name: str, deadline: float, called: str) -> None:
        while True:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(name))
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise _timeout(called, "another instance of the driver") from None
                time.sleep(POLL)
            else:
                return


def _offset(name: str) -> int:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def _timeout(called: str, holder: str) -> errors.Retryable:
    return errors.Retryable(f"{called} is in use by {holder}; it is tried again with the next call")
