"""What containers need of the NVIDIA driver that is installed on this node."""

import threading
import time
from collections.abc import Mapping

from dra_driver import errors
from dra_driver.adapters import driver_root
from dra_driver.logic import cdi, injecting
from dra_driver.model import devices, driver

KEEP_SECONDS = 60.0
"""How long the files that were found are taken for current: looking takes tens of milliseconds,
and a socket or a hook that is installed later must be found without a restart."""


class HostDriver:
    """See `preparing.Injector`. Device nodes are looked at on each call, files now and then."""

    def __init__(self, root: driver_root.DriverRoot) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._files: driver.DriverFiles | None = None
        self._looked = 0.0

    def injection(self, gpus: Mapping[str, devices.Gpu]) -> cdi.Injection:
        """The edits for GPUs by device name."""
        version = next((gpu.driver_version for gpu in gpus.values() if gpu.driver_version), None)
        if version is None:
            raise errors.Retryable(
                "NVML does not tell the driver version: look at `nvidia-smi` on the node"
            )
        nodes = {node.path: node for node in self._nodes(gpus)}
        own = {name: f"/dev/nvidia{gpu.minor}" for name, gpu in gpus.items()}
        control = [node for path, node in nodes.items() if path not in own.values()]
        return injecting.injection(
            self._current_files(version), control, {name: nodes[own[name]] for name in own}
        )

    def _nodes(self, gpus: Mapping[str, devices.Gpu]) -> tuple[driver.DeviceNode, ...]:
        return self._root.device_nodes(gpu.minor for gpu in gpus.values())

    def _current_files(self, version: str) -> driver.DriverFiles:
        with self._lock:
            now = time.monotonic()
            files = self._files
            if files is None or files.version != version or now - self._looked > KEEP_SECONDS:
                files = self._root.files(version)
                self._files, self._looked = files, now
            return files
