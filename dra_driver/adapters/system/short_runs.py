"""Programs of the host that are run for what they say, and whose time is limited."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

_KILLED_SECONDS = 1.0


def run(
    command: Sequence[str | pathlib.Path], environment: Mapping[str, str], seconds: float
) -> "subprocess.CompletedProcess[str]":
    """What a program said, and its exit status. It has no shell and none of our variables.

    What it began itself ends with it, if it did not end in time.

    Raises:
        OSError: it cannot be run.
        subprocess.TimeoutExpired: it, or something that it began and that has its output, did not
            end in time.
    """
    process = subprocess.Popen(
        command,
        env=dict(environment),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        output, complaint = process.communicate(timeout=seconds)
    finally:
        _end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, complaint)


def _end(process: "subprocess.Popen[str]") -> None:
    """Leave nothing running, as far as the kernel allows: a process may hang in the driver."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
