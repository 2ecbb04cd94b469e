"""What containers need of the NVIDIA driver that is installed on this node."""

import pathlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.driver import capabilities, cdi_hook, driver_root
from dra_driver.logic.preparing import cdi, injecting
from dra_driver.model import devices, driver

KEEP_SECONDS = 60.0
"""How long the files that were found are taken for current: looking takes tens of milliseconds,
and a socket or a hook that is installed later must be found without a restart."""


class Injector(Protocol):
    """Knows what a container needs to use GPUs."""

    def injection(self, grants: Mapping[str, devices.Grant]) -> cdi.Injection:
        """The edits for GPUs and instances by device name.

        Raises:
            errors.Rejected: something that they need is not as it must be.
            errors.Retryable: something that they need is missing on the node.
        """


class HostDriver:
    """See `Injector`. Device nodes are looked at on each call, files now and then."""

    def __init__(
        self,
        root: driver_root.DriverRoot,
        instances: capabilities.Capabilities,
        seen_hook: Callable[[str], pathlib.Path | None],
    ) -> None:
        """`seen_hook` gives where this process sees `nvidia-cdi-hook`, by its path on the host."""
        self._root = root
        self._instances = instances
        self._seen_hook = seen_hook
        self._hook = cdi_hook.CdiHook()
        self._log = telemetry.logger("injection")
        self._told = ""
        self._lock = threading.Lock()
        self._files: driver.DriverFiles | None = None
        self._looked = 0.0

    def injection(self, grants: Mapping[str, devices.Grant]) -> cdi.Injection:
        """The edits for GPUs and instances by device name."""
        gpus = [grant.gpu for grant in grants.values()]
        version = next((gpu.driver_version for gpu in gpus if gpu.driver_version), None)
        if version is None:
            raise errors.Retryable(
                "NVML does not tell the driver version: look at `nvidia-smi` on the node"
            )
        control = {n.path: n for n in self._root.device_nodes(gpu.minor for gpu in gpus)}
        cards = {minor: control.pop(f"/dev/nvidia{minor}") for minor in {gpu.minor for gpu in gpus}}
        own = {
            name: (cards[grant.gpu.minor], *self._nodes_of_instance(name, grant))
            for name, grant in grants.items()
        }
        return injecting.injection(self._current_files(version), control.values(), own)

    def _nodes_of_instance(self, name: str, grant: devices.Grant) -> tuple[driver.DeviceNode, ...]:
        if grant.instance is None:
            return ()
        ci, _ = injecting.compute_instance(name, grant.gpu, grant.instance)
        return self._instances.device_nodes(grant.gpu.minor, grant.instance.gi, ci)

    def _current_files(self, version: str) -> driver.DriverFiles:
        with self._lock:
            now = time.monotonic()
            files = self._files
            if files is None or files.version != version or now - self._looked > KEEP_SECONDS:
                files = self._usable(self._root.files(version))
                self._files, self._looked = files, now
            return files

    def _usable(self, files: driver.DriverFiles) -> driver.DriverFiles:
        """With what the hook has; what it lacks is told once."""
        if files.cdi_hook is None:
            return files
        answer = self._hook.ask(self._seen_hook(files.cdi_hook))
        told = injecting.lacking(files.cdi_hook, answer.commands, answer.problem)
        if told and told != self._told:
            self._log.warning(
                "nvidia-cdi-hook is not used in full",
                reason=f"{told}. Remedy: {injecting.HOOK_REMEDY}",
            )
        self._told = told
        return injecting.with_commands(files, answer.commands)
