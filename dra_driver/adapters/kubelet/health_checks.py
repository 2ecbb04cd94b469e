"""The gRPC health service on a TCP port: what the kubelet's probes of the kind `grpc` ask.

Source: grpc/grpc `src/proto/grpc/health/v1/health.proto`; the kubelet calls `Check` alone
(Kubernetes 1.36, `pkg/probe/grpc`), and `Watch` and `List` are not served.
"""

import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from dra_driver import errors
from dra_driver.adapters.kubelet import dra_protocol, grpc_server

_WORKERS = 4
"""Calls at a time: probes are few."""
CONNECTIONS = 256
"""Connections at a time: every pod may reach the port, and the plugin needs descriptors itself."""
SILENT_SECONDS = 2
"""After which a connection ends that asks for nothing, so that it makes room."""


class Server:
    """Answers whether services serve. The port is had at once, and answers after `start`."""

    def __init__(self, address: str, services: Mapping[str, Callable[[], bool]]) -> None:
        """Have HOST:PORT; without a host it is every address of the machine.

        Args:
            address: HOST:PORT.
            services: whether each of them serves, by name; the empty one is all of them together.

        Raises:
            errors.Fatal: the address cannot be had.
        """
        host, _, port = address.rpartition(":")
        self._services = services
        self._workers = concurrent.futures.ThreadPoolExecutor(
            _WORKERS + grpc_server.REFUSING, thread_name_prefix="health"
        )
        check = grpc_server.unary(self._check, dra_protocol.probing.HealthCheckRequest)
        handler = grpc.method_handlers_generic_handler(
            dra_protocol.PROBING_SERVICE, {"Check": check(self._workers, _WORKERS)}
        )
        options = (
            # Else a port that another process listens at would be shared, without an error.
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS),
            ("grpc.max_connection_idle_ms", SILENT_SECONDS * 1000),
        )
        self._server = grpc.server(self._workers, handlers=[handler], options=options)
        try:
            self._server.add_insecure_port(f"{host or '[::]'}:{port}")
        except RuntimeError as error:
            raise errors.Fatal(
                f"cannot listen at {host or 'any address'} port {port}: {error}. "
                "Choose another address, or end who has it"
            ) from error

    def start(self) -> None:
        """Answer."""
        self._server.start()

    def stop(self) -> None:
        """Let the port go; what is asked at this moment is not answered."""
        self._server.stop(None).wait()
        self._workers.shutdown(wait=False)

    def _check(self, request: Any, context: grpc.ServicerContext) -> Any:
        serves = self._services.get(request.service)
        if serves is None:
            known = ", ".join(repr(name) for name in self._services)
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"service {request.service!r} is unknown; known: {known}"
            )
        status = dra_protocol.SERVING if serves() else dra_protocol.NOT_SERVING
        return dra_protocol.probing.HealthCheckResponse(status=status)
