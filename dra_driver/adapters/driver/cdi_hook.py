"""The host's `nvidia-cdi-hook`: which of its commands it has. It may be of any version.

One before 1.18 ends with an error at a command that it does not know, and so no container starts;
a later one passes over it. Source: https://github.com/NVIDIA/nvidia-container-toolkit,
`cmd/nvidia-cdi-hook`.
"""

import dataclasses
import pathlib
import re
import subprocess
import threading

from dra_driver import errors
from dra_driver.adapters.system import short_runs
from dra_driver.model import driver

_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Which commands the program has. `problem`: why it could not be asked; then they are a guess.

    What could not be asked is taken to have what the first release had.
    """

    commands: frozenset[str]
    problem: str | None = None


class CdiHook:
    """Asks a program once, and again when another file is in its place."""

    def __init__(self, *, seconds: float = _SECONDS) -> None:
        """`seconds`: how long it may take to answer."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._asked: tuple[tuple[object, ...], Answer] | None = None

    def ask(self, seen: pathlib.Path | None) -> Answer:
        """Which commands the program has that this process sees there; None: it sees it nowhere."""
        if seen is None:
            return _guess("this process does not see it")
        with self._lock:
            try:
                facts = seen.stat()
            except OSError as error:
                return _guess(f"{seen}: {error.strerror}")
            signature = seen, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
            if self._asked is not None and self._asked[0] == signature:
                return self._asked[1]
            answer = self._help(seen)
            # What kept it from answering may pass.
            self._asked = (signature, answer) if answer.problem is None else None
            return answer

    def _help(self, program: pathlib.Path) -> Answer:
        try:
            text = _output(program, self._seconds)
        except errors.Retryable as error:
            return _guess(str(error))
        return Answer(frozenset(name for name in driver.HOOK_COMMANDS if _lists(text, name)))


def _output(program: pathlib.Path, seconds: float) -> str:
    """What it says of itself.

    Raises:
        errors.Retryable: it cannot be run, or does not end well in time.
    """
    try:
        done = short_runs.run([program, "--help"], {}, seconds)
    except subprocess.TimeoutExpired as error:
        raise errors.Retryable(f"{program} --help did not end within {seconds:g} s") from error
    except OSError as error:
        raise errors.Retryable(f"{program} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise errors.Retryable(
            f"{program} --help ended with {done.returncode}: {done.stderr.strip()[:200]}"
        )
    return done.stdout


def _lists(text: str, name: str) -> bool:
    """Whether a help text has a line for this command, maybe after other names of it."""
    return bool(re.search(rf"^\s+(?:[\w-]+, )*{re.escape(name)}(?:,|\s|$)", text, re.MULTILINE))


def _guess(problem: str) -> Answer:
    return Answer(driver.NEEDED_HOOK_COMMANDS, problem)
