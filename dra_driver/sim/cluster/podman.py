"""Containers that podman really runs: the check that an engine accepts our CDI specs.

Images are not pulled: each container has a root of its own with busybox in it. A container's
command and args are run, or `DEFAULT_COMMAND` where it has none, and killed without grace.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from dra_driver import errors
from dra_driver.sim.cluster import runtime

CDI_DIR = pathlib.Path("/var/run/cdi")
"""Where podman looks for specs; podman before 5 has no option for it."""
DEFAULT_COMMAND = ("/bin/sh", "-c", "nvidia-smi -L; sleep 1000000")
COMMAND_SECONDS = 30.0
LINES = 1000
"""Of a container's output that are kept: its first."""
_TOOLS = ("podman", "runc", "busybox", "unshare")
_ENGINE = ("podman", "--runtime", "/usr/sbin/runc", "--cgroup-manager", "cgroupfs")
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_OVER_CDI_DIR = ("/bin/sh", "-c", f'mount --bind "$1" {CDI_DIR} && shift && exec "$@"', "sh")


class PodmanRuntime:
    """See `runtime.Runtime`.

    The node's CDI directory is mounted over `CDI_DIR` in a mount namespace of podman's own.
    """

    def __init__(self, cdi_dir: pathlib.Path, directory: pathlib.Path) -> None:
        """`directory` is where the roots of containers are made.

        Raises:
            errors.Fatal: podman, runc or busybox is missing, or this is not root.
        """
        missing = [tool for tool in _TOOLS if not _which(tool)]
        if missing or os.geteuid() != 0:
            raise errors.Fatal(
                f"--runtime podman needs root, and podman, runc and busybox-static; missing: "
                f"{', '.join(missing) or 'root'}. On Debian: apt-get install podman runc "
                "busybox-static. Without them: --runtime pretended"
            )
        self._cdi_dir = cdi_dir
        self._directory = directory
        self._mount_point = _MountPoint()

    def start(self, container: runtime.Container, on_end: Callable[[], None]) -> runtime.Running:
        """See `runtime.Runtime`."""
        seen = runtime.resolve(self._cdi_dir, container.cdi_ids)
        name = f"dra-{container.pod_uid}-{container.name}"
        root = self._directory / name
        try:
            self._mount_point.hold()
            _make_root(root)
            return _Running(name, self._command(container, name, root), root, seen, on_end)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(root, ignore_errors=True)
            raise errors.Retryable(f"container {container.name}: {error}") from error

    def close(self) -> None:
        """See `runtime.Runtime`."""
        self._mount_point.release()

    def _command(self, container: runtime.Container, name: str, root: pathlib.Path) -> list[str]:
        return [
            *("unshare", "--mount", *_OVER_CDI_DIR, str(self._cdi_dir)),
            *(*_ENGINE, "run", "--rm", "--network", "none", "--name", name, *_LIMITS),
            *(part for cdi_id in container.cdi_ids for part in ("--device", cdi_id)),
            *(part for key, value in container.env.items() for part in ("--env", f"{key}={value}")),
            *("--rootfs", str(root), *(container.command or DEFAULT_COMMAND)),
        ]


class _MountPoint:
    """`CDI_DIR`, made if it is absent, and then removed unless another process uses it.

    Removing it would unmount what is mounted on it in other mount namespaces. So whoever uses it
    holds a shared lock on it, and its maker removes it only with the exclusive one: empty, it stays
    where another process outlives its maker.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._made = False

    def hold(self) -> None:
        """See to it that it is there, and stays."""
        with self._lock:
            while self._descriptor is None:
                if not CDI_DIR.is_dir():
                    CDI_DIR.mkdir(parents=True, exist_ok=True)
                    self._made = True
                self._descriptor = _locked(CDI_DIR)

    def release(self) -> None:
        """It may go."""
        if self._descriptor is None:
            return
        if self._made:
            # BlockingIOError: in use. Other errors: something is in it, or it is gone.
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                CDI_DIR.rmdir()
        os.close(self._descriptor)
        self._descriptor = None


def _locked(directory: pathlib.Path) -> int | None:
    """A descriptor with a shared lock on what is there; None where it was removed meanwhile."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), directory.stat()):
            return descriptor
    os.close(descriptor)
    return None


class _Running:
    """A podman client in the foreground, whose output is the container's."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        root: pathlib.Path,
        seen: runtime.View,
        on_end: Callable[[], None],
    ) -> None:
        self._name = name
        self._root = root
        self._seen = seen
        self._on_end = on_end
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C in a terminal goes to its foreground group: containers are stopped in order.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"output-{name}", daemon=True)
        self._reader.start()

    def view(self) -> runtime.View:
        return dataclasses.replace(self._seen, output=tuple(self._lines))

    def status(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        deadline = time.monotonic() + COMMAND_SECONDS
        # podman may be about to make the container: until it ends there may be one to remove.
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [*_ENGINE, "rm", "--force", "--ignore", "--time", "0", self._name],
                    capture_output=True,
                    timeout=COMMAND_SECONDS,
                    check=False,
                )
                self._process.wait(1)
        self._process.kill()
        self._reader.join(COMMAND_SECONDS)
        shutil.rmtree(self._root, ignore_errors=True)

    def _read(self) -> None:
        with self._process:
            for line in self._process.stdout or ():
                if len(self._lines) < LINES:
                    self._lines.append(line.rstrip("\n"))
        self._on_end()


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
