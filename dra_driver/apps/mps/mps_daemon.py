"""Watches over one MPS control daemon: it runs, has its limits, and ends when it should.

A client that finds no daemon runs without any limit, and one that comes before the limits are set
keeps what it was given. So clients wait, and nothing is called ready, until the limits hold, and a
daemon that dies is back at once, with the same ones. One that does not answer is not ready, and if
it goes on so it is started again.

SIGHUP: the description is read again. SIGTERM: the daemon ends, then this process.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.mps import mps_control, mps_domain, mps_entrance, mps_log
from dra_driver.adapters.system import mounts, patience, pids
from dra_driver.apps.mps import mps_guarding

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
_POLL_SECONDS = 0.01
"""A question costs the daemon 2 ms; it answers 13 to 40 ms after its start."""
_START_SECONDS = 15.0
_QUIT_SECONDS = 2
_QUIT_ANSWER_SECONDS = 3.0
"""Of it, the launcher and the kubelet wait for all together."""
_QUIT_SILENT_SECONDS = 0.5
_QUIT_LOOK_SECONDS = 0.05
_KILL_SECONDS = 2.0
_ASK_AGAIN_SECONDS = 0.2
_DELAYS = (0.0, 0.0, 0.2, 1.0, 5.0, 15.0)
"""Seconds before a start, by failures before it, which a run longer than the last makes good."""
_RETRY_SECONDS = 1.0
_LOOK_AT_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
_SOCKET = "control"
_SHM = pathlib.Path("/dev/shm")  # noqa: S108 - where programs look for it

_log = telemetry.logger("mps-daemon")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What to watch over.

    `file` is the `daemon.json` of a daemon's directory; `driver_root` where the NVIDIA driver is,
    as this process sees it, with `library_dirs` before the usual ones. `private_shm` gives this
    process and the daemon the daemon's shared memory in place of the machine's. `times` say how
    long answers may take.
    """

    file: pathlib.Path
    driver_root: pathlib.Path
    private_shm: bool = False
    library_dirs: tuple[str, ...] = ()
    times: mps_guarding.Times = dataclasses.field(default_factory=mps_guarding.Times)


class _Ending(Exception):  # noqa: N818 - no error
    """This process was told to end."""


class Supervisor:
    """The supervisor of one daemon. For the main thread of a process that has no other."""

    def __init__(self, options: Options) -> None:
        """Look for the control program.

        Raises:
            errors.Retryable: there is none.
        """
        self._options = options
        root = driver_root.Root(str(options.driver_root), options.driver_root)
        self._program = mps_control.find(driver_root.Layout(root, options.library_dirs))
        self._domain = mps_domain.Domain(options.file.absolute().parent)
        self._told_to_read = False
        self._guard = mps_guarding.Guard(options.times)
        self._is_open = False
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Until SIGTERM or SIGINT.

        Raises:
            errors.Rejected: no daemon is wanted there, its description is damaged, another process
                supervises it, or mounting is not allowed.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            with self._domain.supervised(), telemetry.bound(mps=self._domain.directory.name):
                # Only now: who takes the description away looks for a supervisor after that.
                self._adopt_description()
                if self._options.private_shm:
                    mounts.leave_namespace()
                    mounts.bind(pathlib.Path(self._daemon.shm_dir), _SHM)
                self._supervise()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _adopt_description(self) -> None:
        daemon = self._domain.read()
        if daemon is None:
            raise errors.Rejected(f"{self._domain.description}: no such file: no MPS daemon wanted")
        self._daemon = daemon
        self._entrance = mps_entrance.Entrance(pathlib.Path(daemon.pipe_dir) / _SOCKET)
        self._control_dir = pathlib.Path(daemon.control_dir)
        self._log = mps_log.Log(pathlib.Path(daemon.control_log))
        self._own_log = pathlib.Path(daemon.log_dir) / "supervisor.log"
        self._control = mps_control.Control(
            self._program.path,
            self._control_dir,
            pathlib.Path(daemon.log_dir),
            self._program.environment,
            devices=len(self._daemon.devices),
            seconds=self._options.times.patience,
            waits=self._await_answer,
        )

    def _supervise(self) -> None:
        failures, problem = 0, ""
        try:
            while True:
                # First of all: who comes now would run without limits. The start tries it again.
                with contextlib.suppress(OSError, *files.TROUBLE):
                    self._shut()
                if problem:
                    _log.error("MPS daemon does not run; it is started again", reason=problem)
                    with contextlib.suppress(OSError):
                        self._domain.say_problem(problem)
                self._kill()
                self._pause(_DELAYS[min(failures, len(_DELAYS) - 1)])
                since = time.monotonic()
                problem = self._run_once()
                failures = 1 if time.monotonic() - since > _DELAYS[-1] else failures + 1
        except _Ending:
            _log.info("MPS daemon ends")
        finally:
            try:
                self._domain.say_not_ready()
            finally:
                self._end()
                self._entrance.remove()

    def _shut(self) -> None:
        """Clients wait, and nothing is called ready."""
        self._is_open = False
        self._entrance.close()
        self._domain.say_not_ready()

    def _run_once(self) -> str:
        """Start a daemon, and watch it; why it does not run any more."""
        try:
            self._shut()
            self._start()
            self._watch()
        except (errors.DriverError, OSError) as error:
            # A full disk, or a file that somebody removed: without this process there is no limit.
            return str(error)
        return self._last_words()

    def _start(self) -> None:
        """Start a daemon; when this returns it answers and has its limits.

        Raises:
            errors.DriverError: it does not.
        """
        with self._log.open() as output:
            self._child = self._control.start(self._daemon.device, output)
        self._log.follow()
        self._guard.follow(self._child.pid, self._control_dir / _SOCKET)
        since = time.monotonic()
        deadline = since + _START_SECONDS
        while not self._control.answers(max(_POLL_SECONDS, deadline - time.monotonic())):
            if self._child.poll() is not None:
                raise errors.Retryable(self._last_words())
            if time.monotonic() > deadline:
                raise errors.Retryable(
                    f"no answer within {_START_SECONDS} s of its start; {self._log.last_words()}"
                )
            self._pause(patience.pause(time.monotonic() - since))
        self._control.set_defaults(self._daemon.limits)
        self._say_ready()
        _log.info(
            "MPS daemon is ready", pid=self._child.pid, device=self._daemon.device, **self._told()
        )

    def _watch(self) -> None:
        """Until the daemon is dead.

        Raises:
            errors.Retryable: it does not answer any more.
        """
        due = 0.0
        while self._child is not None and self._child.poll() is None:
            left = due - time.monotonic()
            if self._told_to_read and self._reload():
                continue
            if left <= 0 or self._told_to_read:
                self._bound_output()
                self._reap_inherited()
                self._check()
                due = time.monotonic() + self._guard.between
                continue
            self._wait(left)

    def _check(self) -> None:
        """See whether the daemon answers; if it did not before, it is ready again.

        Raises:
            errors.Retryable: it has not answered while there was patience.
        """
        since, most = time.monotonic(), self._options.times.patience
        while True:
            left = most - max(self._guard.unanswered, time.monotonic() - since)
            try:
                self._control.ask("get_server_list", seconds=max(left, _ASK_AGAIN_SECONDS))
                break
            except errors.Retryable as error:
                if self._child is None or self._child.poll() is not None:
                    return
                if left <= 0 or self._guard.unanswered >= most:
                    reason = self._guard.problem or str(error)
                    raise errors.Retryable(f"no answer within {most:g} s; {reason}") from error
            self._tell_if_unanswered()
            self._pause(_ASK_AGAIN_SECONDS)
        self._guard.answered()
        if self._is_open:
            return
        try:
            self._limit()
            self._say_ready()
        except (errors.DriverError, OSError) as error:
            _log.error("MPS daemon answers again, and is not ready yet", error=str(error))
            return
        _log.info("MPS daemon answers again", **self._told())

    def _await_answer(self, seconds: float) -> bool:
        """See `mps_control.Waits`. Raises as `_wait` does."""
        self._guard.look()
        # First of all: who is cut off is silent no more.
        self._tell_if_unanswered()
        is_cut = self._guard.cut()
        self._wait(min(seconds, self._guard.pause))
        return is_cut

    def _tell_if_unanswered(self) -> None:
        problem = self._guard.problem if self._is_open else ""
        if problem:
            _log.error("MPS daemon does not answer", reason=problem)
            # Who comes now waits where neither the daemon's end nor a silent client does harm.
            with contextlib.suppress(OSError, *files.TROUBLE):
                self._shut()
            with contextlib.suppress(OSError, *files.TROUBLE):
                self._domain.say_problem(problem)

    def _reload(self) -> bool:
        """Give the daemon the limits that are described now; False: that has to be tried again."""
        self._told_to_read = False
        try:
            wanted = self._domain.read()
        except errors.DriverError as error:
            _log.error("description not used; the limits stay", error=str(error))
            return True
        if wanted is None:
            return True
        if wanted != self._daemon.limited(wanted.limits):
            _log.error("of a daemon that runs only limits can change", wanted=str(wanted))
            return True
        try:
            if wanted == self._daemon and self._has_said_ready():
                # Told of twice: to be not ready for a moment would pass for a daemon that is down.
                return True
            self._daemon = wanted
            self._domain.say_not_ready()
            self._limit()
            self._say_ready()
        except (errors.DriverError, OSError) as error:
            # To start it again would end its clients, who did nothing.
            _log.error("limits could not be changed; tried again", error=str(error))
            self._told_to_read = True
            self._pause(_RETRY_SECONDS)
            return False
        _log.info("MPS daemon has other limits", **self._told())
        return True

    def _limit(self) -> None:
        """Give the limits to clients that connect from now on, also to servers that run."""
        self._control.set_defaults(self._daemon.limits)
        for server in self._control.servers():
            self._control.set_server_limits(server, self._daemon.limits)

    def _has_said_ready(self) -> bool:
        ready = self._domain.ready()
        return (
            ready is not None
            and self._child is not None
            and ready.pid == self._child.pid
            and ready.limits == self._daemon.limits
        )

    def _say_ready(self) -> None:
        """Let clients in, and say so."""
        process = None if self._child is None else pids.find(self._child.pid)
        if process is None:
            raise errors.Retryable(self._last_words())
        if not self._is_open:
            self._entrance.open(self._control_dir / _SOCKET)
            self._is_open = True
        self._domain.say_ready(process, self._daemon.limits)
        self._guard.answered()

    def _pause(self, seconds: float) -> None:
        """Let time pass. Raises as `_wait` does."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._wait(left)

    def _wait(self, seconds: float) -> None:
        """Wait for a signal, which a child that ends is too.

        Raises:
            _Ending: it was one to end.
        """
        received = signal.sigtimedwait(_SIGNALS, seconds)
        if received is None:
            return
        if received.si_signo in _ENDING:
            raise _Ending
        if received.si_signo == signal.SIGHUP:
            self._told_to_read = True

    def _end(self) -> None:
        """End the daemon, kindly first."""
        if self._child is not None and self._child.poll() is None:
            self._guard.answered()
            try:
                self._control.quit(_QUIT_SECONDS, _QUIT_ANSWER_SECONDS, self._await_end)
                self._child.wait(_KILL_SECONDS)
            except (subprocess.TimeoutExpired, errors.DriverError) as error:
                _log.warning("MPS daemon does not end; it is killed", error=str(error))
        self._kill()

    def _await_end(self, seconds: float) -> bool:
        """See `mps_control.Waits`.

        Raises:
            errors.Retryable: a silent client holds it up; that need not be waited for any more.
        """
        self._guard.look()
        if max(self._guard.waits(), default=0.0) >= _QUIT_SILENT_SECONDS:
            raise errors.Retryable("a client that says nothing keeps it from hearing of it")
        signal.sigtimedwait({signal.SIGCHLD}, min(seconds, _QUIT_LOOK_SECONDS))
        return False

    def _kill(self) -> None:
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None
        self._log.close()

    def _reap_inherited(self) -> None:
        """As process 1 of a container this one is left the servers of a dead daemon."""
        own = None if self._child is None else self._child.pid
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, _LOOK_AT_ENDED)) and ended.si_pid != own:
                os.waitpid(ended.si_pid, 0)

    def _last_words(self) -> str:
        status = None if self._child is None else self._child.poll()
        return f"exit status {status}; {self._log.last_words()}"

    def _bound_output(self) -> None:
        """What this process logs is its launcher's file, or that of its container's runtime."""
        with contextlib.suppress(OSError):
            mps_log.bound_output(self._own_log)

    def _told(self) -> dict[str, Any]:
        return dataclasses.asdict(self._daemon.limits)
