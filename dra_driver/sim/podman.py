"""Containers that podman really runs: the check that an engine accepts our CDI specs."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Sequence

from dra_driver import errors
from dra_driver.sim import runtime

CDI_DIR = pathlib.Path("/var/run/cdi")
"""Where podman looks for specs; podman before 5 has no option for it."""
DEFAULT_COMMAND = ("/bin/sh", "-c", "nvidia-smi -L; sleep 1000000")
COMMAND_SECONDS = 30.0
_ENGINE = ("podman", "--runtime", "/usr/sbin/runc", "--cgroup-manager", "cgroupfs")
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_OVER_CDI_DIR = ("/bin/sh", "-c", f'mount --bind "$1" {CDI_DIR} && shift && exec "$@"', "sh")


class PodmanRuntime:
    """See `runtime.Runtime`.

    Images are not pulled: each container has a root of its own with busybox in it. The node's CDI
    directory is mounted over `CDI_DIR` in a mount namespace of podman's own.
    """

    def __init__(self, cdi_dir: pathlib.Path, directory: pathlib.Path) -> None:
        """`directory` is where the roots of containers are made.

        Raises:
            errors.Fatal: podman, runc or busybox is missing, or this is not root.
        """
        missing = [tool for tool in ("podman", "runc", "busybox", "unshare") if not _which(tool)]
        if missing or os.geteuid() != 0:
            raise errors.Fatal(
                f"--runtime podman needs root, and podman, runc and busybox-static; missing: "
                f"{', '.join(missing) or 'root'}. On Debian: apt-get install podman runc "
                "busybox-static"
            )
        self._cdi_dir = cdi_dir
        self._directory = directory
        CDI_DIR.mkdir(parents=True, exist_ok=True)

    def start(self, container: runtime.Container) -> runtime.Running:
        """See `runtime.Runtime`. The pod's command is run, whatever its image is."""
        seen = runtime.resolve(self._cdi_dir, container.cdi_ids)
        root = self._directory / f"{container.pod_uid}-{container.name}"
        _make_root(root)
        name = f"dra-{container.pod_uid}-{container.name}"
        command = [
            *("unshare", "--mount", *_OVER_CDI_DIR, str(self._cdi_dir)),
            *(*_ENGINE, "run", "--rm", "--network", "none", "--name", name, *_LIMITS),
            *(part for cdi_id in container.cdi_ids for part in ("--device", cdi_id)),
            *(part for key, value in container.env.items() for part in ("--env", f"{key}={value}")),
            *("--rootfs", str(root), *(container.command or DEFAULT_COMMAND)),
        ]
        return _Running(name, command, root, seen)


class _Running:
    """A podman client in the foreground, whose output is the container's."""

    def __init__(
        self, name: str, command: Sequence[str], root: pathlib.Path, seen: runtime.View
    ) -> None:
        self._name = name
        self._root = root
        self._seen = seen
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, name=f"output-{name}", daemon=True)
        self._reader.start()

    def view(self) -> runtime.View:
        return dataclasses.replace(self._seen, output=tuple(self._lines))

    def wait(self, seconds: float) -> int | None:
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(COMMAND_SECONDS)
        return status

    def stop(self) -> None:
        if self._process.poll() is None:
            subprocess.run(
                [*_ENGINE, "rm", "--force", "--time", "0", self._name],
                capture_output=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(COMMAND_SECONDS)
        self._reader.join(COMMAND_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _read(self) -> None:
        stream = self._process.stdout
        for line in stream or ():
            self._lines.append(line.rstrip("\n"))


def _make_root(root: pathlib.Path) -> None:
    """A root file system with a shell and the usual commands."""
    (root / "bin").mkdir(parents=True)
    busybox = root / "bin" / "busybox"
    shutil.copy(_which("busybox") or "/bin/busybox", busybox)
    listed = subprocess.run(
        [str(busybox), "--list"],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    for applet in listed.stdout.split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def _which(tool: str) -> str | None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/bin"
    return shutil.which(tool, path=path)
