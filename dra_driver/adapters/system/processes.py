"""Who a process is, for people who are told that it uses a GPU."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator

_POD = re.compile(
    r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![\w-])",
)
"""The kubelet's cgroup of a pod: `kubepods-burstable-pod<uid>.slice` with the systemd driver, which
takes `-` for its own, and `kubepods/burstable/pod<uid>` with cgroupfs. The UID of a static pod is
32 digits. Source: https://github.com/kubernetes/kubernetes, `pkg/kubelet/cm`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """A process; what could not be read of it is None. `pod_uid` is as in the API."""

    pid: int
    command: str | None = None
    pod_uid: str | None = None

    def __str__(self) -> str:
        """As in messages: `python3 (pid 4711, pod 1c0f5a3e-...)`."""
        facts = [f"pid {self.pid}", *([f"pod {self.pod_uid}"] if self.pod_uid else [])]
        if self.command is None:
            return ", ".join(facts)
        return f"{self.command} ({', '.join(facts)})"


class Processes:
    """The processes of the pid namespace that a procfs belongs to.

    NVML numbers processes as the node does: without the node's own procfs (a pod needs `hostPID`),
    a number is unknown here, or is that of an unrelated process.
    """

    def __init__(self, proc_root: pathlib.Path) -> None:
        self._proc_root = proc_root

    def describe(self, pid: int) -> Process:
        """What is known of the process; only its number where it is not visible, or has ended."""
        directory = self._proc_root / str(pid)
        return Process(pid, _command(directory), _pod_uid(directory))

    def running(self, *texts: str) -> list[int]:
        """The processes of this one's user and pid namespace in whose command lines all of these
        are.

        Others may write there what they like, so that a pod could pass for one of ours; and to read
        it takes a lock of the process, which one that hangs in the kernel may hold for ever.
        """
        mine = _kin(self._proc_root / "self")
        return sorted(
            int(directory.name)
            for directory in self._proc_root.iterdir()
            if directory.name.isdecimal() and mine in {None, _kin(directory)}
            for line in [_read(directory / "cmdline")]
            if all(text in line for text in texts)
        )


def _kin(directory: pathlib.Path) -> tuple[str, int] | None:
    """The user of a process, and how deep below that of the procfs its pid namespace is; None where
    it is not visible.
    """
    lines = _read(directory / "status").splitlines()
    facts = {name: values.split() for name, _, values in (line.partition(":") for line in lines)}
    return (facts["Uid"][0], len(facts.get("NSpid", ()))) if facts.get("Uid") else None


def _command(directory: pathlib.Path) -> str | None:
    for text in _names(directory):
        # A process chooses its own name: what a terminal would obey is left out.
        name = "".join(letter for letter in text if letter.isprintable()).strip()
        if name:
            return name
    return None


def _names(directory: pathlib.Path) -> Iterator[str]:
    yield _read(directory / "comm")
    yield _read(directory / "cmdline").partition("\0")[0].rpartition("/")[2]


def _pod_uid(directory: pathlib.Path) -> str | None:
    found = _POD.search(_read(directory / "cgroup"))
    return found[1].replace("_", "-") if found else None


def _read(path: pathlib.Path) -> str:
    """The text of a file of a process, which may end at any time; empty where it is not there."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
