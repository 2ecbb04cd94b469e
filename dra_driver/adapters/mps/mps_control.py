"""NVIDIA's MPS control daemon, through its program `nvidia-cuda-mps-control`.

Outside facts, seen with driver 580 and in the program's `-h`: it is one process, and its servers
are its children, which end when it ends, however that comes about. With `-f` it logs to standard
output. It answers 13 to 40 ms after its start. It exits with 0 whatever it makes of a command,
and says `Unknown command`, `Invalid ...` or `Server N not found` on standard output.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Protocol

from dra_driver import errors
from dra_driver.adapters.driver import driver_programs, driver_root
from dra_driver.model import mps

PROGRAM = "nvidia-cuda-mps-control"
_SERVER = "nvidia-cuda-mps-server"
_LIBRARY = "libcuda.so.1"
_ANSWER_SECONDS = 10.0
_REFUSED = re.compile(r"^(Unknown command|Invalid|Not enough privilege).*", re.MULTILINE)
_NO_SERVER = re.compile(r"^Server \d+ not found", re.MULTILINE)
_MEMORY = re.compile(r"(\d+)([KMG]?)B?")
_UNITS = {"": 1, "K": 1024, "M": mps.MIB, "G": 1024 * mps.MIB}

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def find(layout: driver_root.Layout) -> driver_programs.Program:
    """The program of the driver that is installed under a root.

    Raises:
        errors.Retryable: the root has no such program (yet).
    """
    found = driver_programs.find(layout, PROGRAM, library=_LIBRARY)
    server = layout.program(_SERVER)
    # The daemon looks for it in the path.
    places = dict.fromkeys([found.path.parent, *([server.seen.parent] if server else [])])
    path = ":".join(map(str, (*places, "/usr/bin", "/bin")))
    return driver_programs.Program(found.path, {"PATH": path, **found.environment})


class Waits(Protocol):
    """Waits for a signal that this process has blocked, as one that a child has ended."""

    def __call__(self, seconds: float, /) -> bool:
        """Wait that long, or less; whether the answer is to have its full time once more."""


class Control:
    """Starts a control daemon, and talks to the one of a pipe directory.

    Every method that asks raises `errors.Retryable` if no daemon answers within seconds, and
    `errors.Rejected` if it does not know a command, or refuses it.
    """

    def __init__(
        self,
        program: pathlib.Path,
        pipe_dir: pathlib.Path,
        log_dir: pathlib.Path,
        environment: Mapping[str, str] | None = None,
        *,
        devices: int = 1,
        seconds: float = _ANSWER_SECONDS,
        waits: Waits | None = None,
    ) -> None:
        """`devices`: how many its daemon has. `environment`: more variables for the program.

        `seconds`: how long an answer may take. `waits`: what is called again and again until there
        is one; it may raise, and the question is over then.
        """
        self._waits = waits
        self._devices = devices
        self._program = program
        self._seconds = seconds
        self._environment = {
            "PATH": f"{program.parent}:/usr/bin:/bin",
            "CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir),
            "CUDA_MPS_LOG_DIRECTORY": str(log_dir),
            **(environment or {}),
        }

    def start(self, device: str, output: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start a daemon for clients of any user on the device with this UUID.

        It ends with this process, however that ends, which must have one thread. Its messages go
        to `output`. It does not answer yet.

        Raises:
            errors.Rejected: the program cannot be run.
        """
        parent = os.getpid()

        def as_child() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with self._running():
            return subprocess.Popen(
                [self._program, "-M", "-f"],
                env={**self._environment, "CUDA_VISIBLE_DEVICES": device},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=as_child,  # noqa: PLW1509 - one thread, as said above
            )

    def ask(self, *commands: str, seconds: float | None = None) -> str:
        """What the daemon answers to commands, all together; `seconds` as for all, or less."""
        done = self._ask(commands, self._seconds if seconds is None else seconds, self._waits)
        refused = _REFUSED.search(done)
        if refused:
            raise errors.Rejected(f"MPS control daemon, asked {'; '.join(commands)}: {refused[0]}")
        return done

    def answers(self, seconds: float | None = None) -> bool:
        """Whether a daemon is there and answers, within so many seconds."""
        try:
            self.ask("get_server_list", seconds=seconds)
        except errors.Retryable:
            return False
        return True

    def set_defaults(self, limits: mps.Limits) -> None:
        """Limit the clients of servers that are started from now on.

        Raises:
            errors.Retryable: also if the daemon does not have the limits then.
        """
        self.ask(f"set_default_active_thread_percentage {_percentage(limits)}")
        given = shown(limits)
        for number in range(self._devices):
            self.ask(f"set_default_device_pinned_mem_limit {number} {_memory(limits)}")
            held = self.defaults(number)
            if held != given:
                raise errors.Retryable(
                    f"MPS control daemon: it was given {given} as defaults of device {number}, "
                    f"and has {held}"
                )

    def defaults(self, number: int = 0) -> mps.Limits:
        """The limits of servers to come on a client's device with this number, as `shown` tells."""
        percentage = self.ask("get_default_active_thread_percentage").strip()
        memory = self.ask(f"get_default_device_pinned_mem_limit {number}").strip()
        try:
            share = round(float(percentage))
            held = _bytes(memory) if memory else None
            return mps.Limits(None if share == 100 else share, held)
        except ValueError as error:
            raise errors.Rejected(
                f"MPS control daemon: defaults {percentage!r} and {memory!r}: expected a "
                "percentage, and a size as in 4G"
            ) from error

    def servers(self) -> tuple[int, ...]:
        """The pids of the servers that run, in the daemon's own pid namespace."""
        return tuple(int(text) for text in self.ask("get_server_list").split())

    def set_server_limits(self, server: int, limits: mps.Limits) -> bool:
        """Limit the clients that connect to a server from now on; False if it is gone."""
        answer = self.ask(
            f"set_active_thread_percentage {server} {_percentage(limits)}",
            *(
                f"set_device_pinned_mem_limit {server} {number} {_memory(limits)}"
                for number in range(self._devices)
            ),
        )
        return not _NO_SERVER.search(answer)

    def quit(
        self, seconds: int, answer: float = _ANSWER_SECONDS, waits: Waits | None = None
    ) -> None:
        """End the daemon and its servers; clients get some whole seconds to end by themselves.

        Returns when servers have ended. `answer` is how many more seconds that may take, `waits`
        what is called meanwhile.

        Raises:
            errors.Retryable: there is no daemon, or it does not end.
        """
        self._ask([f"quit -t {max(1, seconds)}"], seconds + answer, waits)

    def _ask(self, commands: Sequence[str], seconds: float, waits: Waits | None) -> str:
        told = "; ".join(commands)
        # In memory: whoever inherits them cannot hold up who reads them.
        with _file() as asked, _file() as answer, _file() as complaint:
            asked.write("".join(f"{command}\n" for command in commands).encode())
            asked.seek(0)
            with self._running():
                process = subprocess.Popen(
                    [self._program],
                    env=self._environment,
                    stdin=asked,
                    stdout=answer,
                    stderr=complaint,
                )
            try:
                if not _ended(process, seconds, waits):
                    raise errors.Retryable(
                        f"MPS control daemon: no answer within {seconds:.3g} s to {told}"
                    )
            finally:
                process.kill()
                process.wait()
            said, complained = (_text(one) for one in (answer, complaint))
        if process.returncode != 0:
            raise errors.Retryable(
                f"MPS control daemon, asked {told}: exit status {process.returncode}: "
                f"{(complained or said).strip()}"
            )
        return said

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.Rejected(f"{self._program} cannot be run: {error}") from error


def _file() -> IO[bytes]:
    return os.fdopen(os.memfd_create("mps-control"), "w+b", buffering=0)


def _text(written: IO[bytes]) -> str:
    written.seek(0)
    return written.read().decode(errors="replace")


def _ended(process: "subprocess.Popen[bytes]", seconds: float, waits: Waits | None) -> bool:
    """Whether it ends within that time."""
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if waits is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(left)
        elif waits(left):
            deadline = time.monotonic() + seconds
    return True


def shown(limits: mps.Limits) -> mps.Limits:
    """Limits as the daemon tells them: 100 % is none; from 1 GiB on, memory is in whole GiB."""
    share = None if limits.thread_percentage == 100 else limits.thread_percentage
    mib = limits.memory_mib
    if mib is None:
        return mps.Limits(share, None)
    return mps.Limits(share, (mib - mib % 1024 if mib >= 1024 else mib) * mps.MIB)


def _bytes(size: str) -> int:
    found = _MEMORY.fullmatch(size)
    if found is None:
        raise ValueError(size)
    return int(found[1]) * _UNITS[found[2]]


def _percentage(limits: mps.Limits) -> int:
    return 100 if limits.thread_percentage is None else limits.thread_percentage


def _memory(limits: mps.Limits) -> str:
    """0M takes a limit away."""
    return f"{limits.memory_mib or 0}M"
