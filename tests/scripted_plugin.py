"""A DRA plugin on real sockets that answers as a test says, and remembers what it was asked."""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polling

from dra_driver.adapters.kubelet import dra_grpc, dra_health, grpc_server
from dra_driver.model import claims, prepared

DRIVER = "gpu.example.com"
DEADLINE = 60.0
"""Seconds until a call that a test holds goes on all the same."""

Script = Callable[[claims.ClaimRef], dra_grpc.Answer]


def device(ref: claims.ClaimRef, name: str = "gpu-0", *requests: str, driver: str = DRIVER):
    """What a driver says of a device that it has prepared."""
    return prepared.PreparedDevice(
        requests=requests, pool="node-1", device=name,
        cdi_ids=(f"k8s.{driver}/claim={ref.uid}-{name}",),
    )  # fmt: skip


class ScriptedPlugin:
    """One instance of a driver.

    `calls` are pairs of method and claim names, `statuses` what the kubelet told of the
    registration, `on_prepare` and `on_unprepare` what is answered for a claim. `health` are the
    sources of device health by service.
    """

    def __init__(
        self, registry: pathlib.Path, *, name: str = DRIVER, instance: str = "", **info: object
    ) -> None:
        self.name = name
        self.calls: list[tuple[str, list[str]]] = []
        self.statuses: list[tuple[bool, str]] = []
        self.on_prepare: Script = lambda ref: dra_grpc.Answer((device(ref, driver=name),))
        self.on_unprepare: Script = lambda _ref: dra_grpc.Answer()
        self.health: dict[str, dra_health.Source] = {}
        self._service = registry.parent / f"{name}{instance}.sock"
        self.socket = registry / f"{name}{instance}-reg.sock"
        self._info = dra_grpc.PluginInfo(name, **({"endpoint": str(self._service)} | info))
        self._hold: threading.Event | None = None
        self._servers: list[grpc_server.Server] = []

    def start(self) -> "ScriptedPlugin":
        """Serve, then let the kubelet see it."""
        self.start_service()
        self.start_registration()
        return self

    def start_service(self) -> None:
        server = dra_grpc.dra_server(self._service, self)
        for service, source in self.health.items():
            server.add(service, {"NodeWatchResources": _watch(source)})
        self._start(server)

    def start_registration(self) -> None:
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self._start(
            dra_grpc.registration_server(
                self.socket, self._info, lambda *status: self.statuses.append(status)
            )
        )

    def _start(self, server: grpc_server.Server) -> None:
        server.start()
        self._servers.append(server)

    def stop(self) -> None:
        """Stop; the sockets go."""
        while self._servers:
            self._servers.pop().stop(0)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Calls that come inside the block are answered when it ends."""
        self._hold = threading.Event()
        try:
            yield
        finally:
            self._hold.set()
            self._hold = None

    def names(self, method: str) -> list[list[str]]:
        """The claims of each call of a method."""
        return [names for name, names in self.calls if name == method]

    def prepare(
        self, refs: Sequence[claims.ClaimRef], _seconds: float
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """See `dra_grpc.Handler`."""
        return self._answer("prepare", refs, self.on_prepare)

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], _seconds: float
    ) -> Mapping[claims.ClaimUid, dra_grpc.Answer]:
        """See `dra_grpc.Handler`."""
        return self._answer("unprepare", refs, self.on_unprepare)

    def _answer(
        self, method: str, refs: Sequence[claims.ClaimRef], script: Script
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        hold = self._hold
        self.calls.append((method, [ref.name for ref in refs]))
        if hold is not None:
            hold.wait(DEADLINE)
        return {ref.uid: script(ref) for ref in refs}


def _watch(source: dra_health.Source) -> grpc_server.Method:
    def watch(_request: Any, context: Any) -> Iterator[Any]:
        context.add_callback(source.wake)
        return dra_health.responses(source, context.is_active)

    return grpc_server.streaming(watch)


def wait_registered(plugin: ScriptedPlugin) -> None:
    """Wait until the kubelet has told the plugin, once, that it is registered."""
    polling.until(lambda: plugin.statuses == [(True, "")], what=f"{plugin.name} is registered")
