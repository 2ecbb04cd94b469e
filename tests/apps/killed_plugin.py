"""The driver, started like `python -m dra_driver`, that kills itself before one of its steps.

A step is whatever changes a file under the directories of `KILLED_IN` (open for writing, chmod,
fsync, rename, remove), a change of the MIG state of a GPU, what comes after that, and the answer to
a call. Steps count while the file `KILLED_ARMED` exists;
before step number `KILLED_AT` the process is gone as after `kill -9`. Each step is noted, before it
is done, in the file `KILLED_STEPS`.
"""

import os
import pathlib
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from dra_driver import cli
from dra_driver.adapters.nvml import nvidia_smi, nvml_mig, nvml_reset
from dra_driver.apps.plugin import serving

_CHANGING = {"os.rename", "os.remove", "os.chmod", "os.link", "os.truncate"}


class Killer:
    """Counts steps, and ends the process before one of them."""

    def __init__(
        self, directories: Sequence[str], armed: pathlib.Path, steps: pathlib.Path, at: int
    ) -> None:
        self._directories = tuple(directories)
        self._armed = armed
        self._steps = steps
        self._at = at
        self._count = 0
        self._inside = threading.local()

    def install(self) -> None:
        """From now on this process dies where it has to."""
        _answer_is_a_step(self)
        _fsync_is_a_step(self)
        _changes_of_gpus_are_steps(self)
        sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See `sys.addaudithook`: called before what the event names is done."""
        if event == "open":
            path, _mode, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.step("write", path)
        elif event in _CHANGING:
            self.step(event.removeprefix("os."), arguments[0])

    def step(self, what: str, target: Any) -> None:
        """One step is about to be done."""
        if getattr(self._inside, "yes", False):
            return
        self._inside.yes = True
        try:
            name = None if target is None else _name(target)
            foreign = name is not None and not name.startswith(self._directories)
            if foreign or not self._armed.exists():
                return
            self._count += 1
            with self._steps.open("a", encoding="utf-8") as file:
                file.write(what if name is None else f"{what} {pathlib.PurePath(name).name}")
                file.write("\n")
            if self._count == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            self._inside.yes = False


def _name(target: Any) -> str:
    if isinstance(target, int):
        return str(pathlib.Path(f"/proc/self/fd/{target}").readlink()) if target >= 0 else ""
    return os.fsdecode(target)


def _answer_is_a_step(killer: Killer) -> None:
    for operation in ("prepare", "unprepare"):
        original = getattr(serving.Service, operation)

        def answering(self: Any, *arguments: Any, original: Any = original) -> Any:
            answers = original(self, *arguments)
            killer.step("answer", None)
            return answers

        setattr(serving.Service, operation, answering)


def _fsync_is_a_step(killer: Killer) -> None:
    original = os.fsync

    def fsync(descriptor: int) -> None:
        killer.step("fsync", descriptor)
        original(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def _changes_of_gpus_are_steps(killer: Killer) -> None:
    for name in ("set_mode", "create", "create_compute", "destroy_compute", "destroy"):
        is_a_step(killer, nvml_mig.MigNvml, name)
    is_a_step(killer, nvml_reset.ResetNvml, "set_persistence")
    is_a_step(killer, nvidia_smi.NvidiaSmi, "reset")


def is_a_step(killer: Killer, kind: type, name: str) -> None:
    """Calls of a method count, as steps before and after it."""
    original = getattr(kind, name)

    def changing(self: Any, *arguments: Any, **options: Any) -> Any:
        killer.step(f"nvml {name}", None)
        answer = original(self, *arguments, **options)
        killer.step(f"after nvml {name}", None)
        return answer

    setattr(kind, name, changing)


def main() -> None:
    """Run the command line with the killer in place."""
    Killer(
        os.environ["KILLED_IN"].split(":"),
        pathlib.Path(os.environ["KILLED_ARMED"]),
        pathlib.Path(os.environ["KILLED_STEPS"]),
        int(os.environ["KILLED_AT"]),
    ).install()
    cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
