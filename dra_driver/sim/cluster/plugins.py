"""The kubelet's plugin manager: finds DRA plugins by their sockets, registers and calls them.

Unlike the kubelet it looks at the directory instead of being told of changes, and so also notices
a socket that is renamed away; a call that the newest plugin does not answer is made to the next
older one, where the kubelet only chooses one that is connected; a registration that failed is tried
again after the same time; a driver counts as away when its registration sockets are gone, not when
its connections have ended: what a killed process leaves behind keeps its slices. Source: Kubernetes
1.36, `pkg/kubelet/pluginmanager` and `pkg/kubelet/cm/dra/plugin`.
"""

import dataclasses
import os
import pathlib
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.kubelet import dra_client, dra_grpc, dra_protocol
from dra_driver.model import claims
from dra_driver.sim.cluster import device_health

LOOK_SECONDS = 0.1
"""Between looks at the registry directory; the kubelet reconciles once a second."""
RETRY_SECONDS = 0.5
"""Until a registration that failed is tried again; the kubelet doubles this each time."""
WIPE_SECONDS = 30.0
"""How long a driver may be away before its slices are removed."""

_Identity = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Plugin:
    info: dra_grpc.PluginInfo
    version: str
    client: dra_client.Client
    health: device_health.Watch | None

    def close(self) -> None:
        self.client.close()
        if self.health is not None:
            self.health.stop()


class Plugins:
    """The DRA plugins of one node, by driver name; the newest registration is called first."""

    def __init__(
        self,
        registry: pathlib.Path,
        *,
        on_gone: Callable[[str], None],
        wipe_seconds: float = WIPE_SECONDS,
        health: device_health.Health | None = None,
    ) -> None:
        """`on_gone` is told of a driver that has had no plugin for `wipe_seconds`.

        It is told again while it fails with an `errors.DriverError`. `health` reads what plugins
        tell of their devices.
        """
        self._health = health
        self._registry = registry
        self._on_gone = on_gone
        self._wipe_seconds = wipe_seconds
        self._log = telemetry.logger("kubelet")
        self._lock = threading.Condition()
        self._by_socket: dict[pathlib.Path, tuple[_Identity, _Plugin]] = {}
        self._gone: dict[str, float] = {}
        self._not_before: dict[pathlib.Path, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plugins", daemon=True)

    def start(self) -> None:
        """Begin to look for sockets."""
        self._registry.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Forget all plugins."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for path in list(self._by_socket):
            self._drop(path)

    def wait_registered(self, name: str, seconds: float) -> bool:
        """Whether a plugin of that driver is registered within `seconds`."""
        with self._lock:
            return self._lock.wait_for(lambda: bool(self._of(name)), seconds)

    def prepare(
        self, name: str, refs: Sequence[claims.ClaimRef]
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """One call for claims of one driver.

        Raises:
            errors.DriverError: no plugin answers, or it breaks the rules of the answer.
        """
        return self._call(
            name, refs, lambda plugin: plugin.client.prepare(refs, version=plugin.version)
        )

    def unprepare(
        self, name: str, refs: Sequence[claims.ClaimRef]
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """As `prepare`, for unprepare."""
        return self._call(
            name, refs, lambda plugin: plugin.client.unprepare(refs, version=plugin.version)
        )

    def _call(
        self,
        name: str,
        refs: Sequence[claims.ClaimRef],
        call: Callable[[_Plugin], Mapping[claims.ClaimUid, dra_grpc.Answer]],
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        with self._lock:
            plugins = self._of(name)
        problem = errors.Retryable(f"DRA driver {name} is not registered")
        for plugin in plugins:
            try:
                answers = call(plugin)
            except errors.Retryable as error:
                problem = error
                continue
            asked = {ref.uid for ref in refs}
            if asked != answers.keys():
                raise errors.Rejected(
                    f"DRA driver {name} answered for claims {sorted(answers)}, "
                    f"asked were {sorted(asked)}"
                )
            return answers
        raise problem

    def _of(self, name: str) -> list[_Plugin]:
        """Newest first: later registrations are later in the mapping."""
        found = [plugin for _, plugin in self._by_socket.values()]
        return [plugin for plugin in reversed(found) if plugin.info.name == name]

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            seen = dict(_sockets(self._registry))
            for path in [p for p, (known, _) in self._by_socket.items() if seen.get(p) != known]:
                self._drop(path)
            for path, identity in seen.items():
                if path not in self._by_socket and self._not_before.get(path, 0) < time.monotonic():
                    self._register(path, identity)
            self._wipe()

    def _register(self, path: pathlib.Path, identity: _Identity) -> None:
        self._not_before[path] = time.monotonic() + RETRY_SECONDS
        try:
            with dra_client.Client(str(path)) as client:
                info = client.get_info()
                version = next((v for v in info.versions if v in dra_protocol.dra), "")
                if problem := self._problem(info, version):
                    self._log.warning("plugin is refused", reason=problem)
                    client.notify(registered=False, error=problem)
                    return
                plugin = self._connected(info, version)
                with self._lock:
                    self._by_socket[path] = identity, plugin
                    self._gone.pop(info.name, None)
                    self._lock.notify_all()
                client.notify(registered=True)
        except errors.Retryable as error:
            self._log.debug("registration failed; trying again", reason=str(error))
            if path in self._by_socket:
                self._drop(path)

    def _connected(self, info: dra_grpc.PluginInfo, version: str) -> _Plugin:
        client = dra_client.Client(info.endpoint)
        watch = self._health and self._health.watch(info.name, client, info.versions)
        return _Plugin(info, version, client, watch or None)

    def _problem(self, info: dra_grpc.PluginInfo, version: str) -> str | None:
        """Why the plugin cannot be registered."""
        if info.type != dra_grpc.PLUGIN_TYPE:
            return f"plugin type {info.type!r} is not supported; {dra_grpc.PLUGIN_TYPE} is"
        if not version:
            return (
                f"none of the services {', '.join(info.versions) or '(none)'} is supported; "
                f"supported are {', '.join(dra_protocol.dra)}"
            )
        if any(plugin.info.endpoint == info.endpoint for plugin in self._of(info.name)):
            return f"endpoint {info.endpoint} of {info.name} is already registered"
        return None

    def _drop(self, path: pathlib.Path) -> None:
        with self._lock:
            _, plugin = self._by_socket.pop(path)
            if not self._of(plugin.info.name):
                self._gone[plugin.info.name] = time.monotonic()
        plugin.close()

    def _wipe(self) -> None:
        now = time.monotonic()
        for name, since in list(self._gone.items()):
            if now - since < self._wipe_seconds:
                continue
            try:
                self._on_gone(name)
            except errors.DriverError as error:
                self._log.info("driver is gone, its slices are not", driver=name, reason=str(error))
                self._gone[name] = now - self._wipe_seconds + RETRY_SECONDS
            else:
                del self._gone[name]


def _sockets(registry: pathlib.Path) -> Iterator[tuple[pathlib.Path, _Identity]]:
    """All sockets below the directory whose names are not hidden; a link to one is one."""
    for directory, folders, names in os.walk(registry):
        folders.sort()
        for path in (pathlib.Path(directory, name) for name in sorted(names)):
            if not path.name.startswith(".") and (identity := _identity(path)) is not None:
                yield path, identity


def _identity(path: pathlib.Path) -> _Identity | None:
    """What changes when a socket is made anew; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
