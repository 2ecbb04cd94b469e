"""What a container runtime makes of CDI names, and a runtime that only pretends to run.

As a runtime's CDI library does: a spec's common edits come once, before those of its first device;
what cannot be read is passed over; a name that two specs have is as unknown as one that none has.
Simplified: one directory, JSON alone; hooks and options of mounts are not looked at. Source:
https://github.com/cncf-tags/container-device-interface, `pkg/cdi/cache.go`.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from dra_driver import errors

Json = dict[str, Any]

NVIDIA_SMI = "/usr/bin/nvidia-smi"
_SIMULATED = re.compile(r"SIMULATED_[A-Z0-9_]+", re.ASCII)
RUN_SECONDS = 10.0
"""How long the stand-in for nvidia-smi may take."""
FOREVER_SECONDS = 86400.0
"""A sleep as long as this is there to keep a container running."""


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """A container that is to be started. `cdi_ids` are fully qualified CDI names."""

    pod_uid: str
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cdi_ids: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """What a container sees of its devices.

    `env` are the variables that were added, `mounts` pairs of (host path, container path),
    `output` the lines that it wrote, or that `nvidia-smi -L` would write in it, or the VFIO nodes.
    """

    env: Mapping[str, str]
    device_nodes: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]
    output: tuple[str, ...]


class Running(Protocol):
    """A started container."""

    def view(self) -> View:
        """What it sees now."""

    def status(self) -> int | None:
        """Its exit status once it has ended by itself; None while it runs."""

    def stop(self) -> None:
        """End it; ended is fine."""


class Runtime(Protocol):
    """Starts containers."""

    def start(self, container: Container, on_end: Callable[[], None]) -> Running:
        """Start one. `on_end` is called, from any thread, when it has ended by itself.

        Raises:
            errors.DriverError: a CDI name cannot be resolved, or the engine refuses.
        """

    def close(self) -> None:
        """Remove what starting containers has left; all of them have been stopped."""


def resolve(cdi_dir: pathlib.Path, cdi_ids: Iterable[str]) -> View:
    """The edits for CDI names, merged as a runtime merges them: later values win.

    Raises:
        errors.Rejected: not exactly one spec in the directory has a device of that name.
    """
    env: dict[str, str] = {}
    nodes: dict[str, None] = {}
    mounts: dict[str, str] = {}
    for edits in _edits(cdi_dir, cdi_ids):
        env |= dict(item.split("=", 1) for item in edits.get("env") or ())
        nodes |= dict.fromkeys(node["path"] for node in edits.get("deviceNodes") or ())
        mounts |= {m["containerPath"]: m["hostPath"] for m in edits.get("mounts") or ()}
    return View(
        env=dict(sorted(env.items())),
        device_nodes=tuple(nodes),
        mounts=tuple((host, inside) for inside, host in mounts.items()),
        output=(),
    )


def _edits(cdi_dir: pathlib.Path, cdi_ids: Iterable[str]) -> Iterator[Json]:
    """The edits in the order in which they are applied."""
    specs = dict(_specs(cdi_dir))
    common: set[pathlib.Path] = set()
    for cdi_id in cdi_ids:
        kind, _, name = cdi_id.partition("=")
        found = [
            (path, device.get("containerEdits") or {})
            for path, spec in specs.items()
            for device in spec["devices"]
            if spec.get("kind") == kind and device.get("name") == name
        ]
        if len(found) != 1:
            raise errors.Rejected(
                f"CDI device {cdi_id!r}: unresolvable, {len(found)} specs in {cdi_dir} have it"
            )
        [(path, edits)] = found
        if path not in common:
            common.add(path)
            yield specs[path].get("containerEdits") or {}
        yield edits


def _specs(cdi_dir: pathlib.Path) -> Iterator[tuple[pathlib.Path, Json]]:
    for path in sorted(cdi_dir.glob("*.json")):
        try:
            spec = json.loads(path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            # A spec of another claim may go, or be broken: that is no matter of this container.
            continue
        if isinstance(spec, dict) and isinstance(spec.get("devices"), list):
            yield path, spec


def sleep_seconds(command: Sequence[str]) -> float | None:
    """How long a command runs that ends with a sleep; None where it does not, or sleeps forever.

    Understood are `sleep 5`, and a shell's `-c` with a last command of that form: `work; sleep 5`.
    """
    words = _last_words(command)
    if len(words) != _SLEEP_WORDS or pathlib.PurePath(words[0]).name != "sleep":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", words[1])
    seconds = float(found[1]) * _UNITS[found[2]] if found else FOREVER_SECONDS
    return seconds if seconds < FOREVER_SECONDS else None


def end_of(command: Sequence[str]) -> tuple[float, int] | None:
    """After how many seconds a command ends, and with which status; None where it runs on.

    Understood are sleeps, and as the last command `exit N` and those that are done at once.
    """
    seconds = sleep_seconds(command)
    if seconds is not None:
        return seconds, 0
    words = _last_words(command)
    if not words:
        return None
    name = pathlib.PurePath(words[0]).name
    if name == "exit" and len(words) == 2 and re.fullmatch("[0-9]{1,3}", words[1]):
        return 0.0, int(words[1]) % 256
    return (0.0, _AT_ONCE[name]) if name in _AT_ONCE else None


_AT_ONCE = {"nvidia-smi": 0, "echo": 0, "true": 0, "false": 1}


def _last_words(command: Sequence[str]) -> list[str]:
    """The command, or the last one of a shell's `-c`."""
    words = list(command)
    if len(words) == _WITH_SCRIPT and words[1] == "-c":
        with contextlib.suppress(ValueError):  # Quotes that are not closed: the shell would fail.
            words = shlex.split(re.split(r"[;&|\n]+", words[2].rstrip("; \n"))[-1])
    return words


_WITH_SCRIPT, _SLEEP_WORDS = 3, 2
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class PretendedRuntime:
    """Runs nothing but the stand-in for nvidia-smi, with the variables that a container gets.

    A container whose command ends with a sleep ends by itself after that time, with status 0; see
    `end_of` for what else ends.
    """

    def __init__(self, cdi_dir: pathlib.Path) -> None:
        self._cdi_dir = cdi_dir

    def start(self, container: Container, on_end: Callable[[], None]) -> Running:
        """See `Runtime`: the container "runs" until its sleep is over, or until it is stopped."""
        seen = resolve(self._cdi_dir, container.cdi_ids)
        seen = dataclasses.replace(seen, output=_list_gpus(seen, container.env))
        return _Pretended(seen, end_of(container.command), on_end)

    def close(self) -> None:
        """See `Runtime`."""


class _Pretended:
    def __init__(
        self, seen: View, end: tuple[float, int] | None, on_end: Callable[[], None]
    ) -> None:
        self._seen = seen
        self._on_end = on_end
        self._status: int | None = None
        seconds, self._ends_with = end or (0.0, 0)
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        if end is not None:
            self._timer.start()

    def view(self) -> View:
        return self._seen

    def status(self) -> int | None:
        return self._status

    def stop(self) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        self._status = self._ends_with
        self._on_end()


def _simulated(env: Mapping[str, str]) -> dict[str, str]:
    """What the stand-in reads, and nothing else: who may make a pod chooses its variables, and a
    shell, and what loads it, obey many.
    """
    return {name: value for name, value in env.items() if _SIMULATED.fullmatch(name)}


def _handed_over(view: View) -> tuple[str, ...]:
    """What a virtual machine's program finds; in a simulation a file is mounted for a node."""
    nodes = {*view.device_nodes, *(inside for _, inside in view.mounts)}
    return tuple(sorted(node for node in nodes if node.startswith(("/dev/vfio/", "/dev/iommu"))))


def _list_gpus(view: View, env: Mapping[str, str]) -> tuple[str, ...]:
    """What the mounted `nvidia-smi -L` prints; without it, the nodes of VFIO that there are."""
    program = next((host for host, inside in view.mounts if inside == NVIDIA_SMI), None)
    if program is None:
        return _handed_over(view)
    try:
        result = subprocess.run(
            ["/bin/sh", program, "-L"],
            env=_simulated({**env, **view.env}),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # ValueError: a NUL in a variable that the pod asks for.
        raise errors.Retryable(f"{program} -L, for {NVIDIA_SMI}: {error}") from error
    return tuple((result.stdout + result.stderr).splitlines())
