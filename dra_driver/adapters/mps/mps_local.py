"""MPS daemons as processes of this machine: they outlive the driver, which finds them again.

What runs is the supervisor, `dra-driver mps-daemon`. It says by itself who it is, in the daemon's
directory, so that nobody else needs to remember.
"""

import contextlib
import enum
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.mps import mps_domain, mps_log
from dra_driver.adapters.system import patience, pids
from dra_driver.model import mps

_COMMAND = (sys.executable, "-m", "dra_driver", "mps-daemon")
STOP_SECONDS = 10.0
"""How long a daemon may take to end by itself."""
_POLL_SECONDS = 0.01
_KILL_SECONDS = 10.0
_LAST_LINES = 3

_children: "dict[str, subprocess.Popen[bytes]]" = {}
"""Supervisors that this process started last, by directory."""
_leaving: "list[subprocess.Popen[bytes]]" = []
"""Those of daemons that were removed, until this process has taken note of their end."""


class State(enum.StrEnum):
    """How far a daemon is. RUNNING: its supervisor is there; READY: it has its limits too."""

    ABSENT = "absent"
    RUNNING = "running"
    READY = "ready"


class LocalLauncher:
    """Starts and stops daemons. All methods are idempotent; those of one daemon must not overlap.

    Args:
        driver_root: where the NVIDIA driver is, as processes of this machine see it.
        library_dirs: directories below it that come before the usual ones.
        private_shm: give each daemon a shared memory of its own; needs root.
        command: what runs a supervisor, before its flags.
    """

    def __init__(
        self,
        driver_root: pathlib.Path,
        *,
        library_dirs: Sequence[str] = (),
        private_shm: bool,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._private_shm = private_shm
        self._command = [
            *(*command, "--driver-root", str(driver_root)),
            *(["--library-dirs", ",".join(library_dirs)] if library_dirs else []),
            *(["--private-shm"] if private_shm else []),
        ]

    @property
    def private_shm(self) -> bool:
        """Whether each daemon has a shared memory of its own."""
        return self._private_shm

    def start(self, daemon: mps.Daemon) -> None:
        """Have the daemon run, with its directory; it need not be ready when this returns.

        One that runs is kept, and gets these limits.

        Raises:
            errors.Rejected: one runs that serves another device, or mounting is not allowed.
        """
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        if domain.supervisor() is not None:
            self.reload(daemon)
            return
        domain.say_not_ready()
        domain.create(daemon, shm=self._private_shm)
        domain.clear_problem()
        child = _children.get(daemon.directory)
        if child is None or child.poll() is not None:
            _children[daemon.directory] = self._spawn(daemon, domain)

    def bring_up(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Have one that is wanted begin to run; it does already."""

    def reload(self, daemon: mps.Daemon) -> None:
        """Give a daemon that runs these limits; clients that connect once it is ready have them.

        Raises:
            errors.Rejected: the one that runs is another in more than limits.
            errors.Retryable: none runs.
        """
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        running, supervisor = domain.read(), domain.supervisor()
        if running is None or supervisor is None:
            raise errors.Retryable(f"MPS daemon {daemon.id}: it does not run")
        if running == daemon and self.state(daemon) == State.READY:
            return
        if running.limited(daemon.limits) != daemon:
            raise errors.Rejected(
                f"MPS daemon {daemon.id}: it runs as {running}, which is not {daemon} with other "
                "limits; stop it first"
            )
        domain.describe(daemon)
        pids.send(supervisor, signal.SIGHUP)

    def state(self, daemon: mps.Daemon) -> State:
        """How far this daemon is, with the limits that it is asked for with."""
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        if domain.supervisor() is None:
            _reap()
            return State.ABSENT
        ready = domain.ready()
        if (
            ready is None
            or ready.limits != daemon.limits
            or not pids.is_alive(pids.Process(ready.pid, ready.start_time))
        ):
            return State.RUNNING
        return State.READY

    def is_changed(self, daemon: mps.Daemon) -> bool:
        """Whether it is wanted with other limits by now: with these it will never be ready."""
        try:
            described = mps_domain.Domain(pathlib.Path(daemon.directory)).read()
        except errors.Rejected:
            # It is damaged, and made anew by whoever looks after it.
            return False
        return described is not None and described.limits != daemon.limits

    def wait_ready(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Wait until the daemon is ready, or wanted with other limits than these.

        Raises:
            errors.Retryable: it is not while there is patience, or has ended.
        """
        since = waiting.left
        while (state := self.state(daemon)) != State.READY:
            if self.is_changed(daemon):
                return
            if state == State.ABSENT and not _is_starting(daemon):
                # It may have said who it is between the two looks.
                if self.state(daemon) == State.ABSENT:
                    raise errors.Retryable(_not_ready(daemon, "it has ended"))
                continue
            if not waiting.left:
                raise errors.Retryable(_not_ready(daemon, f"not ready within {since:.3g} s"))
            waiting.sleep(patience.pause(since - waiting.left))

    def retire(self, daemon: mps.Daemon) -> bool:
        """Have the daemon end, and not start again; whether it has ended."""
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        domain.retire()
        supervisor = domain.supervisor()
        if supervisor is not None:
            pids.send(supervisor, signal.SIGTERM)
        return not _is_starting(daemon) and not domain.processes()

    def wait_ended(
        self,
        daemon: mps.Daemon,
        waiting: patience.Patience,
        kindly: float = STOP_SECONDS,
    ) -> None:
        """Wait until one that was retired has ended. Clients that still run lose their context.

        `kindly` is how many seconds it may take to end by itself; then it is killed. One that is
        wanted again meanwhile is not waited for, and left alone.

        Raises:
            errors.Retryable: even killed it has not ended; it is to be waited for again.
        """
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        kill_at = time.monotonic() + kindly
        while (alive := domain.processes()) or _is_starting(daemon):
            # Whoever wants it again says so first: what is alive here is not theirs to be killed.
            if domain.description.exists():
                return
            now = time.monotonic()
            # A daemon ends with its supervisor, but not in the same instant.
            if now >= kill_at or (domain.supervisor() is None and not _is_starting(daemon)):
                for process in alive:
                    pids.send(process, signal.SIGKILL)
            if now > kill_at + _KILL_SECONDS or not waiting.left:
                raise errors.Retryable(_not_ended(daemon, alive))
            waiting.sleep(_POLL_SECONDS)
        _reap()

    def remove(self, daemon: mps.Daemon) -> None:
        """Leave nothing of one that has ended; absent is fine.

        Raises:
            errors.Rejected: something is mounted below that this process may not unmount.
            errors.Retryable: something in its directory cannot be removed.
        """
        mps_domain.Domain(pathlib.Path(daemon.directory)).remove()
        if (child := _children.pop(daemon.directory, None)) is not None:
            _leaving.append(child)
        _reap()

    def stop(self, daemon: mps.Daemon, kindly: float = STOP_SECONDS) -> None:
        """All of that, one after the other.

        Raises:
            errors.Retryable: even killed it has not ended; it is to be stopped again.
        """
        if not self.retire(daemon):
            self.wait_ended(daemon, patience.Patience(kindly + 2 * _KILL_SECONDS), kindly)
        self.remove(daemon)

    def _spawn(self, daemon: mps.Daemon, domain: mps_domain.Domain) -> "subprocess.Popen[bytes]":
        log = pathlib.Path(daemon.log_dir) / "supervisor.log"
        with (
            files.explaining("opened, or a supervisor started that logs there", log),
            log.open("ab") as output,
        ):
            return subprocess.Popen(
                [*self._command, "--file", str(domain.description)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )


def why(daemon: mps.Daemon) -> str:
    """Why a daemon is not ready, for a message: what its supervisor says, or else its logs."""
    said = mps_domain.Domain(pathlib.Path(daemon.directory)).problem()
    if said:
        return said
    # In a pod the supervisor has no log here.
    log = pathlib.Path(daemon.control_log)
    return f"{last_words(daemon)}; {mps_log.last_words(log)}"


def last_words(daemon: mps.Daemon) -> str:
    """The end of what the supervisor of a daemon logged, for a message."""
    try:
        text = (pathlib.Path(daemon.log_dir) / "supervisor.log").read_text(encoding="utf-8")
    except OSError as error:
        return f"no log: {os.strerror(error.errno or 0)}"
    return " | ".join(text.splitlines()[-_LAST_LINES:]) or "its log is empty"


def _is_starting(daemon: mps.Daemon) -> bool:
    """Whether this process has started a supervisor that has not said yet who it is."""
    child = _children.get(daemon.directory)
    if child is None or child.poll() is not None:
        return False
    return mps_domain.Domain(pathlib.Path(daemon.directory)).supervisor() is None


def _not_ready(daemon: mps.Daemon, what: str) -> str:
    child = _children.get(daemon.directory)
    status = None if child is None else child.poll()
    ended = "" if status is None else f", and its supervisor ended with {status}"
    return f"MPS daemon {daemon.id} on {daemon.device}: {what}{ended}: {why(daemon)}"


def _not_ended(daemon: mps.Daemon, alive: Iterable[pids.Process]) -> str:
    listed = ", ".join(str(process.pid) for process in alive) or "its supervisor"
    return f"MPS daemon {daemon.id}: {listed} was told to end, and has not: it waits for the GPU"


def _reap() -> None:
    """Take note of the end of processes that this one started."""
    for child in list(_children.values()):
        child.poll()
    for child in list(_leaving):
        if child.poll() is not None:
            with contextlib.suppress(ValueError):  # Another thread did the same.
                _leaving.remove(child)
