"""The embedded API server: start, where it is, stop."""

import asyncio
import contextlib
import pathlib
import socket
import ssl
import threading
import time
from typing import Any, Self

import uvicorn

from dra_driver import errors
from dra_driver.adapters.serving import tls
from dra_driver.sim.api.kinds import resource_gates, rules, served_kinds
from dra_driver.sim.api.serving import access, discovery, handling, kubeconfig, options, serving
from dra_driver.sim.api.storing import registry, seeding, store

Options = options.Options
Fault = options.Fault

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_FAREWELL_SECONDS = 0.1
_ACCEPT_TURNS = 8
"""Turns of asyncio's loop in which what was accepted has become a connection; it needs three."""


class ApiServer:
    """An API server on loopback. It is built, started once and stopped once.

    Whom it answers is in the options: see `access`.

    What it stores is in memory. Other threads may use `registry` and `store` beside the clients.
    """

    def __init__(self, settings: Options | None = None) -> None:
        """A server that does not listen yet.

        Raises:
            errors.Rejected: The options name a feature gate or a version that there is not.
        """
        self.options = settings or Options()
        # Higher than any version of a server that ran here before: its clients are told to list.
        first_version = time.time_ns() // 1_000_000
        self.store = store.Store(history=self.options.history, first_version=first_version)
        self._settings = _registry_settings(self.options)
        table = served_kinds.Table(self.options.resource_versions, self._settings.minor)
        self.registry = registry.Registry(self.store, self._settings, table)
        seeding.seed(self.registry)
        handler = handling.Handler(
            self.registry,
            git_version=self.options.kubernetes_version,
            pod_log=self.options.pod_log,
        )
        config = uvicorn.Config(
            serving.App(handler, self.options, self._cut),
            http="httptools",
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,
            # A connection that a client holds on to is closed by the client or by `stop`.
            timeout_keep_alive=24 * 3600,
        )
        config.load()
        # Not from files, as the library would read it.
        config.ssl = _context(self.options.credentials)
        self._uvicorn = _Uvicorn(config)
        self._thread: threading.Thread | None = None
        self._address: tuple[str, int] | None = None

    @property
    def url(self) -> str:
        """Where the server listens, for example `https://127.0.0.1:36123`."""
        if self._address is None:
            raise errors.Fatal("the API server has no address yet: start it first")
        scheme = "https" if self.options.credentials else "http"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    def is_on(self, gate: str) -> bool:
        """Whether a feature gate is on: by default in this version, or by the options."""
        return gate not in self._settings.disabled_gates

    def start(self) -> None:
        """Begins to listen; returns when requests are accepted.

        Raises:
            errors.Fatal: The port is taken, or the server does not come up.
        """
        listener = _listen(self.options.port)
        self._address = listener.getsockname()[:2]
        self._thread = threading.Thread(
            target=self._uvicorn.run, args=([listener],), name="api-server", daemon=True
        )
        self._thread.start()
        if not self._uvicorn.accepts.wait(_START_SECONDS):
            raise errors.Fatal(f"the API server did not come up within {_START_SECONDS} s")

    def stop(self) -> None:
        """Ends all watches and connections; returns when the port is free. May be called again.

        Raises:
            errors.Fatal: The server does not come to an end.
        """
        self.store.close()
        if self._thread is None:
            return
        self._uvicorn.stop()
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            raise errors.Fatal(f"the API server did not stop within {_STOP_SECONDS} s")
        self._thread = None

    def write_kubeconfig(self, path: pathlib.Path) -> None:
        """Writes a file for `kubectl --kubeconfig` and for client libraries."""
        kubeconfig.write(path, self.url, self.options.credentials)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _cut(self, client: Any) -> None:
        connections: list[Any] = list(self._uvicorn.server_state.connections)
        for connection in connections:
            if connection.client == client:
                connection.transport.abort()


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that is told when to stop, instead of looking ten times a second."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.accepts = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    async def main_loop(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.accepts.set()
        await self._stopping.wait()

    def stop(self) -> None:
        """Makes `main_loop` return. From any thread, once it `accepts`."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets running requests end; their watches have been ended before."""
        del sockets
        secured: list[Any] = []
        # What asyncio is about to accept when its server is closed, it forgets without closing it.
        for listening in self.servers:
            for each in listening.sockets:
                asyncio.get_running_loop().remove_reader(each)
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        for listening in self.servers:
            listening.close()
        # Known now: a connection that ends does not tell any more.
        open_ones = list(self.server_state.connections)
        if self.config.ssl is not None:
            secured = [each.transport.get_extra_info("socket") for each in open_ones]
        for connection in open_ones:
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_STOP_SECONDS / 2)
        for connection in list(self.server_state.connections):
            connection.transport.close()
        if secured:
            await self._cut(secured)
        for listening in self.servers:
            # Who has connected and not begun to speak TLS is in nobody's list.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(listening.wait_closed(), _FAREWELL_SECONDS)

    async def _cut(self, sockets: list[Any]) -> None:
        """A client that keeps its connection for later takes no part in a farewell of TLS."""
        await asyncio.sleep(_FAREWELL_SECONDS)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)


def _context(needed: access.Access | None) -> ssl.SSLContext | None:
    if needed is None:
        return None
    certificate = tls.Certificate()
    certificate.use(needed.certificate, needed.key)
    return certificate.context


def _listen(port: int) -> socket.socket:
    try:
        listener = socket.create_server((access.ADDRESS, port), backlog=1024)
    except OSError as error:
        raise errors.Fatal(
            f"the API server cannot listen on 127.0.0.1:{port}: {error}; "
            "choose another port, or 0 for any that is free"
        ) from error
    # Accepted sockets inherit it. An answer is written in two parts, which would else wait for the
    # client's delayed acknowledgement: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _registry_settings(settings: Options) -> registry.Settings:
    minor = discovery.minor_of(settings.kubernetes_version)
    return registry.Settings(
        rules=rules.ALL,
        minor=minor,
        disabled_gates=resource_gates.disabled(
            minor, off=settings.disabled_gates, on=settings.enabled_gates
        ),
        expression_check=settings.expression_check,
        derivation_check=settings.derivation_check,
        webhook=settings.webhook,
    )
