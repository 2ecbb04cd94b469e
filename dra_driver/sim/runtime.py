"""What a container runtime makes of CDI names, and a runtime that only pretends to run."""

import dataclasses
import json
import pathlib
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dra_driver import errors

Json = dict[str, Any]

NVIDIA_SMI = "/usr/bin/nvidia-smi"
RUN_SECONDS = 10.0
"""How long the stand-in for nvidia-smi may take."""


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
    `output` the lines that it wrote, or that `nvidia-smi -L` would write in it.
    """

    env: Mapping[str, str]
    device_nodes: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]
    output: tuple[str, ...]


class Running(Protocol):
    """A started container."""

    def view(self) -> View:
        """What it sees now."""

    def wait(self, seconds: float) -> int | None:
        """Its exit status once it has ended by itself within `seconds`; None while it runs."""

    def stop(self) -> None:
        """End it; ended is fine."""


class Runtime(Protocol):
    """Starts containers."""

    def start(self, container: Container) -> Running:
        """Start one.

        Raises:
            errors.DriverError: a CDI name cannot be resolved, or the engine refuses.
        """


def resolve(cdi_dir: pathlib.Path, cdi_ids: Iterable[str]) -> View:
    """The edits for CDI names, merged as a runtime merges them: later values win.

    Raises:
        errors.Rejected: no spec in the directory has a device of that name.
    """
    specs = [json.loads(path.read_text("utf-8")) for path in sorted(cdi_dir.glob("*.json"))]
    env: dict[str, str] = {}
    nodes: dict[str, None] = {}
    mounts: dict[str, str] = {}
    for edits in (edits for cdi_id in cdi_ids for edits in _edits(specs, cdi_id)):
        env |= dict(item.split("=", 1) for item in edits.get("env") or ())
        nodes |= dict.fromkeys(node["path"] for node in edits.get("deviceNodes") or ())
        mounts |= {m["containerPath"]: m["hostPath"] for m in edits.get("mounts") or ()}
    return View(
        env=dict(sorted(env.items())),
        device_nodes=tuple(nodes),
        mounts=tuple((host, inside) for inside, host in mounts.items()),
        output=(),
    )


def _edits(specs: Sequence[Json], cdi_id: str) -> list[Json]:
    """The common edits of a spec and those of its device."""
    kind, _, name = cdi_id.partition("=")
    for spec in specs:
        for device in spec["devices"]:
            if spec["kind"] == kind and device["name"] == name:
                return [spec.get("containerEdits") or {}, device["containerEdits"]]
    raise errors.Rejected(f"CDI device {cdi_id!r}: unresolvable, no spec in the directory has it")


class PretendedRuntime:
    """Runs nothing but the stand-in for nvidia-smi, with the variables that a container gets."""

    def __init__(self, cdi_dir: pathlib.Path) -> None:
        self._cdi_dir = cdi_dir

    def start(self, container: Container) -> Running:
        """See `Runtime`: the container "runs" until it is stopped."""
        seen = resolve(self._cdi_dir, container.cdi_ids)
        return _Pretended(dataclasses.replace(seen, output=_list_gpus(seen, container.env)))


class _Pretended:
    def __init__(self, view: View) -> None:
        self._view = view
        self._stopped = threading.Event()

    def view(self) -> View:
        return self._view

    def wait(self, seconds: float) -> int | None:
        self._stopped.wait(seconds)
        return None

    def stop(self) -> None:
        self._stopped.set()


def _list_gpus(view: View, env: Mapping[str, str]) -> tuple[str, ...]:
    """What the mounted `nvidia-smi -L` prints."""
    program = next((host for host, inside in view.mounts if inside == NVIDIA_SMI), None)
    if program is None:
        return ()
    result = subprocess.run(
        ["/bin/sh", program, "-L"],
        env={**env, **view.env},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return tuple((result.stdout + result.stderr).splitlines())
