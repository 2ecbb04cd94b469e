"""What a container runtime makes of CDI names, and a runtime that only pretends to run.

As a runtime's CDI library does: a spec's common edits come once, before those of its first device;
what cannot be read is passed over; a name that two specs have is as unknown as one that none has.
Simplified: one directory, JSON alone; hooks and options of mounts are not looked at. Source:
https://github.com/cncf-tags/container-device-interface, `pkg/cdi/cache.go`.
"""

import dataclasses
import json
import pathlib
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
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


class PretendedRuntime:
    """Runs nothing but the stand-in for nvidia-smi, with the variables that a container gets."""

    def __init__(self, cdi_dir: pathlib.Path) -> None:
        self._cdi_dir = cdi_dir

    def start(self, container: Container, on_end: Callable[[], None]) -> Running:  # noqa: ARG002 - nothing ends by itself
        """See `Runtime`: the container "runs" until it is stopped."""
        seen = resolve(self._cdi_dir, container.cdi_ids)
        return _Pretended(dataclasses.replace(seen, output=_list_gpus(seen, container.env)))

    def close(self) -> None:
        """See `Runtime`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Pretended:
    seen: View

    def view(self) -> View:
        return self.seen

    def status(self) -> int | None:
        return None

    def stop(self) -> None:
        """Nothing runs."""


def _list_gpus(view: View, env: Mapping[str, str]) -> tuple[str, ...]:
    """What the mounted `nvidia-smi -L` prints."""
    program = next((host for host, inside in view.mounts if inside == NVIDIA_SMI), None)
    if program is None:
        return ()
    try:
        result = subprocess.run(
            ["/bin/sh", program, "-L"],
            env={**env, **view.env},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # ValueError: a NUL in the environment that the pod asks for.
        raise errors.Retryable(f"{program} -L, for {NVIDIA_SMI}: {error}") from error
    return tuple((result.stdout + result.stderr).splitlines())
