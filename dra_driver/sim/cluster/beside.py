"""A process beside the nodes, that is one of a cluster's own: started, looked after, ended."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable

from dra_driver import errors

STOP_SECONDS = 30.0
LOG_LINES = 5
"""Of its log, its last, that are shown where it failed."""


class Process:
    """`dra-driver …`, which writes a log; `name` is what it is called in messages."""

    def __init__(self, name: str, log: pathlib.Path) -> None:
        """Nothing is started, and no directory made."""
        self._name = name
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its number; None before it is started."""
        return None if self._process is None else self._process.pid

    def start(self, arguments: Iterable[str]) -> None:
        """Start it with the arguments of the command line that follow `dra-driver`."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dra_driver", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if key in ("PATH", "HOME")},
                # As plugins: Ctrl-C in a terminal is not for it.
                start_new_session=True,
            )

    def check_alive(self) -> None:
        """Refuse to go on without it.

        Raises:
            errors.Fatal: it has ended; the text has the end of its log.
        """
        if self._process is not None and self._process.poll() is not None:
            raise errors.Fatal(
                f"the {self._name} ended with status {self._process.returncode}; {self.log_end()}"
            )

    def lines(self) -> list[str]:
        """What it has written."""
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()

    def log_end(self) -> str:
        """The last lines of its log, for a message."""
        return "\n  ".join(["its log ends:", *self.lines()[-LOG_LINES:]])

    def stop(self) -> None:
        """End it; one that does not end is killed."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
