"""The directory of one MPS daemon: made, described, read, and taken away.

Every method raises one of `files.TROUBLE` where the disk refuses.

Besides the directories of `mps.Daemon` it holds `daemon.json` (what is wanted), `supervisor.json`
(the process that sees to it), and `ready` (that the daemon answers and has its limits) or `problem`
(why it does not).
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import shutil
import time
from collections.abc import Iterator

import pydantic

from dra_driver import errors
from dra_driver.adapters.disk import files, stores
from dra_driver.adapters.mps import mps_log
from dra_driver.adapters.system import mounts, pids
from dra_driver.model import mps

_DESCRIPTION = "daemon.json"
_DAEMON = stores.Kind(
    "description of an MPS daemon", mps.encode, mps.decode, key=lambda daemon: daemon.id
)
_FAULT = re.compile(rb"fatal GPU error|status FAULT", re.IGNORECASE)
_NAMED_SECONDS = 10.0
_POLL_SECONDS = 0.01
_REMOVALS = 8
"""A container that the kubelet starts once more writes a file or two, and ends."""


class _Supervisor(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    pid: int
    start_time: int


class Domain:
    """One daemon's directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        """It need not exist."""
        self.directory = directory
        self.description = directory / _DESCRIPTION
        self._described = stores.Store(directory.parent, _DAEMON, within=_DESCRIPTION)
        self._supervisor = directory / "supervisor.json"
        self._ready = directory / "ready"
        self._problem = directory / "problem"

    def create(self, daemon: mps.Daemon, *, shm: bool) -> None:
        """Make what is absent, and describe the daemon; `shm` mounts the tmpfs too.

        Raises:
            errors.Rejected: `shm`, and this process may not mount.
        """
        with files.explaining("made", self.directory):
            self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            pathlib.Path(daemon.control_dir).mkdir(mode=0o700, exist_ok=True)
            for path in (daemon.pipe_dir, daemon.log_dir, daemon.shm_dir):
                pathlib.Path(path).mkdir(mode=0o755, exist_ok=True)
        if shm:
            mounts.mount_tmpfs(pathlib.Path(daemon.shm_dir), daemon.shm_bytes)
        self.describe(daemon)

    def describe(self, daemon: mps.Daemon) -> None:
        """Say what is wanted from now on."""
        files.write(self.description, mps.encode(daemon))

    def read(self) -> mps.Daemon | None:
        """What is wanted; None where nothing is.

        Raises:
            stores.Damaged: the description cannot be read, or is that of another directory.
        """
        try:
            daemon = self._described.get(self.directory.name)
        except stores.Damaged as error:
            raise stores.Damaged(f"{self.description}: {error}") from error
        if daemon is not None and daemon.directory != str(self.directory):
            raise stores.Damaged(
                f"{self.description}: it describes the MPS daemon of {daemon.directory}"
            )
        return daemon

    def keep_aside(self) -> pathlib.Path | None:
        """Keep a copy of a damaged description; None where there is no room."""
        return self._described.keep_aside(self.directory.name)

    def retire(self) -> None:
        """Nothing is wanted any more: a supervisor that starts from now on ends at once."""
        files.remove(self.description)

    def remove(self) -> None:
        """Leave nothing; absent is fine.

        Raises:
            errors.Rejected: something is mounted below that this process may not unmount.
            errors.Retryable: something in it cannot be removed, or is made anew meanwhile.
        """
        mounts.unmount(self.directory / "shm")
        for left in reversed(range(_REMOVALS)):
            try:
                shutil.rmtree(self.directory, onerror=_unless_gone)
            except OSError as error:
                if left and error.errno == errno.ENOTEMPTY:
                    continue
                raise errors.Retryable(f"{self.directory} cannot be removed: {error}") from error
            return

    def ready(self) -> mps.Ready | None:
        """Which daemon is ready, and with which limits; None: none said so."""
        text = files.read(self._ready)
        try:
            return None if text is None else mps.Ready.model_validate_json(text)
        except pydantic.ValidationError:
            return None

    def say_ready(self, process: pids.Process, limits: mps.Limits) -> None:
        """Say that this daemon answers and has these limits."""
        ready = mps.Ready(
            pid=process.pid,
            start_time=process.start_time,
            thread_percentage=limits.thread_percentage,
            memory_bytes=limits.memory_bytes,
        )
        files.write(self._ready, ready.model_dump_json() + "\n", mode=0o644, durable=False)
        self.clear_problem()

    def say_not_ready(self) -> None:
        """No daemon is ready."""
        files.remove(self._ready)

    def say_problem(self, text: str) -> None:
        """Say why none is; that stands until one is ready."""
        files.write(self._problem, text, mode=0o644, durable=False)

    def clear_problem(self) -> None:
        """Whatever was in the way is no news of the daemon that starts now."""
        files.remove(self._problem)

    def problem(self) -> str:
        """Why no daemon is ready, as its supervisor sees it; empty: it has not said."""
        try:
            return files.read(self._problem) or ""
        except (OSError, UnicodeDecodeError):
            return ""

    def has_faulted(self, daemon: mps.Daemon, seconds: float) -> bool:
        """Whether the server of the daemon has told of a fatal fault within so many seconds.

        What it says was taken from NVIDIA, "Multi-Process Service", "Error Containment": a server
        that handles a fault of a client says so in its log, and the control daemon in its own.
        """
        now = time.time()
        for name in ("server.log", "control.log"):
            path = pathlib.Path(daemon.log_dir) / name
            try:
                is_new = now - path.stat().st_mtime < seconds
                if is_new and _FAULT.search(mps_log.end_of(path)):
                    return True
            except OSError:
                continue
        return False

    def supervisor(self) -> pids.Process | None:
        """The supervisor that runs; None: none."""
        text = files.read(self._supervisor)
        if text is None:
            return None
        try:
            named = _Supervisor.model_validate_json(text)
        except pydantic.ValidationError:
            return None
        process = pids.Process(named.pid, named.start_time)
        return process if pids.is_alive(process) else None

    def processes(self) -> tuple[pids.Process, ...]:
        """What runs: the supervisor, and the daemon that was ready last."""
        ready, supervisor = self.ready(), self.supervisor()
        daemon = None if ready is None else pids.Process(ready.pid, ready.start_time)
        return tuple(
            process
            for process in (supervisor, daemon)
            if process is not None and pids.is_alive(process)
        )

    def _await_supervisor(self) -> None:
        """Whoever hears that there is another one looks for it, and is to find it."""
        deadline = time.monotonic() + _NAMED_SECONDS
        while self.supervisor() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    @contextlib.contextmanager
    def supervised(self) -> Iterator[None]:
        """Be the supervisor inside the block.

        Raises:
            errors.Rejected: another process is it, or the directory is gone.
        """
        path = self.directory / "lock"
        with files.explaining("opened", path):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError as error:
                raise errors.Rejected(f"{self.directory}: no such directory") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._await_supervisor()
                raise errors.Rejected(
                    f"MPS daemon in {self.directory}: another process supervises it"
                ) from error
            this = pids.find(os.getpid())
            if this is None:
                raise errors.Fatal("/proc does not show this process")
            named = _Supervisor(pid=this.pid, start_time=this.start_time)
            files.write(self._supervisor, named.model_dump_json() + "\n", durable=False)
            yield
        finally:
            os.close(descriptor)


def _unless_gone(_function: object, _path: str, info: tuple[object, BaseException, object]) -> None:
    """A server of the daemon that ends at last takes files of its own away."""
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]
