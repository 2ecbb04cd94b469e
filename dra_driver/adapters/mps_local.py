"""MPS daemons as processes of this machine: they outlive the driver, which finds them again.

What runs is the supervisor, `dra-driver mps-daemon`. It says by itself who it is, in the daemon's
directory, so that nobody else needs to remember.
"""

import enum
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from dra_driver import errors
from dra_driver.adapters import files, mps_domain, pids
from dra_driver.model import mps

_COMMAND = (sys.executable, "-m", "dra_driver", "mps-daemon")
_START_SECONDS = 20.0
_POLL_SECONDS = 0.01
_KILL_SECONDS = 10.0
_LAST_LINES = 3

_children: "dict[int, subprocess.Popen[bytes]]" = {}
"""Supervisors that this process started, for as long as it has not heard of their end."""


class State(enum.StrEnum):
    """How far a daemon is. RUNNING: its supervisor is there; READY: it has its limits too."""

    ABSENT = "absent"
    RUNNING = "running"
    READY = "ready"


class LocalLauncher:
    """Starts and stops daemons. All methods are idempotent; those of one daemon must not overlap.

    Args:
        driver_root: where the NVIDIA driver is, as processes of this machine see it.
        private_shm: give each daemon a shared memory of its own; needs root.
        command: what runs a supervisor, before its flags.
    """

    def __init__(
        self,
        driver_root: pathlib.Path,
        *,
        private_shm: bool,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._private_shm = private_shm
        self._command = [
            *(*command, "--driver-root", str(driver_root)),
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
            errors.Retryable: its supervisor ends at once, or does not start in time.
        """
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        if domain.supervisor() is not None:
            self.reload(daemon)
            return
        domain.say_not_ready()
        domain.create(daemon, shm=self._private_shm)
        child = self._spawn(daemon, domain)
        deadline = time.monotonic() + _START_SECONDS
        while domain.supervisor() is None:
            if child.poll() is not None:
                _children.pop(child.pid, None)
                if domain.supervisor() is not None:
                    return  # Another was there first, which had not said so yet.
                raise errors.Retryable(
                    f"MPS daemon {daemon.id}: its supervisor ended with {child.returncode}: "
                    f"{last_words(daemon)}"
                )
            if time.monotonic() > deadline:
                raise errors.Retryable(
                    f"MPS daemon {daemon.id}: its supervisor did not start within "
                    f"{_START_SECONDS} s"
                )
            time.sleep(_POLL_SECONDS)

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

    def wait_ready(self, daemon: mps.Daemon, seconds: float) -> None:
        """Wait until the daemon is ready.

        Raises:
            errors.Retryable: it is not in that time, or has ended.
        """
        deadline = time.monotonic() + seconds
        while (state := self.state(daemon)) != State.READY:
            if state == State.ABSENT or time.monotonic() > deadline:
                raise errors.Retryable(
                    f"MPS daemon {daemon.id} on {daemon.device}: {state} and not ready"
                    f"{'' if state == State.ABSENT else f' within {seconds} s'}: "
                    f"{last_words(daemon)}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self, daemon: mps.Daemon, seconds: float) -> None:
        """End the daemon, its supervisor and what they left; absent is fine.

        Clients that still run lose their context. `seconds` is how long it may take to end by
        itself; then it is killed.

        Raises:
            errors.Retryable: even killed it has not ended; it is to be stopped again.
        """
        domain = mps_domain.Domain(pathlib.Path(daemon.directory))
        domain.retire()
        ready, supervisor = domain.ready(), domain.supervisor()
        if supervisor is not None:
            pids.send(supervisor, signal.SIGTERM)
            if not pids.wait(supervisor, seconds):
                pids.send(supervisor, signal.SIGKILL)
                _see_end(daemon, supervisor)
        if ready is not None:
            # It is killed with its supervisor, but not in the same instant.
            process = pids.Process(ready.pid, ready.start_time)
            pids.send(process, signal.SIGKILL)
            _see_end(daemon, process)
        _reap()
        domain.remove()

    def _spawn(self, daemon: mps.Daemon, domain: mps_domain.Domain) -> "subprocess.Popen[bytes]":
        log = pathlib.Path(daemon.log_dir) / "supervisor.log"
        with (
            files.explaining("opened, or a supervisor started that logs there", log),
            log.open("ab") as output,
        ):
            child = subprocess.Popen(
                [*self._command, "--file", str(domain.description)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )
        _children[child.pid] = child
        return child


def last_words(daemon: mps.Daemon) -> str:
    """The end of what the supervisor of a daemon logged, for a message."""
    try:
        text = (pathlib.Path(daemon.log_dir) / "supervisor.log").read_text(encoding="utf-8")
    except OSError as error:
        return f"no log: {os.strerror(error.errno or 0)}"
    return " | ".join(text.splitlines()[-_LAST_LINES:]) or "its log is empty"


def _see_end(daemon: mps.Daemon, process: pids.Process) -> None:
    if not pids.wait(process, _KILL_SECONDS):
        raise errors.Retryable(
            f"MPS daemon {daemon.id}: process {process.pid} was killed, and has not ended within "
            f"{_KILL_SECONDS} s: it waits for the GPU"
        )


def _reap() -> None:
    """Take note of the end of processes that this one started."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)
