"""nvidia-persistenced, which keeps GPUs open, where NVML of this process does not reach it.

NVML asks the daemon by its socket at one fixed path. In a container that is below the driver root:
the host's own nvidia-smi, in that root, finds it.
"""

import pathlib
import subprocess

from dra_driver.adapters.system import short_runs

SOCKET = "run/nvidia-persistenced/socket"
SECONDS = 30.0
_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"}


class PersistenceDaemon:
    """The daemon of a driver root, as this process sees that."""

    def __init__(self, root: pathlib.Path, *, chroot: str | pathlib.Path = "chroot") -> None:
        self._root = root
        self._chroot = chroot

    @property
    def is_apart(self) -> bool:
        """Whether there is one, and NVML here does not reach it."""
        return self._root != pathlib.Path("/") and (self._root / SOCKET).exists()

    def tell(self, gpu: str, *, on: bool) -> str | None:
        """Have it keep a GPU, by UUID, open, or no more; why that did not work, None if it did.

        Nothing is done where NVML reaches it, or there is none.
        """
        if not self.is_apart:
            return None
        command = [self._chroot, self._root, "nvidia-smi", "-i", gpu, "-pm", str(int(on))]
        try:
            done = short_runs.run(command, _PATH, SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        complaint = (done.stdout + done.stderr).strip()
        return f"nvidia-smi -pm {int(on)} in {self._root}: {complaint}" if done.returncode else None
