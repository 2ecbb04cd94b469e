"""A gRPC server on one unix socket, with places for so many calls of each method."""

import concurrent.futures
import contextlib
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import grpc

from dra_driver import errors

T = TypeVar("T")

_FULL = "{most} calls are being served, and that is all that may be at once; try again"
WORKERS = {"NodePrepareResources": 256, "NodeUnprepareResources": 96, "NodeWatchResources": 16}
"""Calls of each method that may run or wait at once: the kubelet does not serialise pods. Prepares
may have to wait, and none of them must keep an unprepare, or a probe, from being served."""
OTHER_WORKERS = 4
REFUSING = 8
"""Workers on top, of each method: calls beyond its number are refused at once, and none is queued,
to be served after a later one."""


class Server:
    """A gRPC server on one unix socket that appears, complete, under its name.

    It is bound under a hidden name and renamed, so that the kubelet, which dials as soon as it
    sees the socket, always meets a server that answers. On stop the socket file is removed only
    while it is still this server's: another instance may have taken the path over.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._hidden = path.with_name(f".{path.name}")
        self._pools: list[concurrent.futures.ThreadPoolExecutor] = []
        self._others = self._pool(path.name, OTHER_WORKERS)
        self._handlers: list[grpc.GenericRpcHandler[Any, Any]] = []
        self._server: grpc.Server | None = None
        self._made: os.stat_result | None = None

    def add(self, service: str, methods: "Mapping[str, Method]", *, shared: bool = True) -> None:
        """Serve the methods of a service, by their proto names.

        With `shared` false its methods have few workers, and none in common with other services.
        """
        handlers = {}
        for name, method in methods.items():
            most = WORKERS.get(name, OTHER_WORKERS) if shared else OTHER_WORKERS
            handlers[name] = method(self._pool(f"{service}/{name}", most + REFUSING), most)
        self._handlers.append(grpc.method_handlers_generic_handler(service, handlers))

    def _pool(self, name: str, workers: int) -> concurrent.futures.ThreadPoolExecutor:
        pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._pools.append(pool)
        return pool

    def start(self) -> None:
        """Serve, then let the socket be seen; after an error it may be started again.

        Raises:
            errors.Fatal: the socket cannot be bound.
            OSError: it does not get its name.
        """
        if self._server is not None:
            self._server.stop(None).wait()
        self._hidden.unlink(missing_ok=True)
        options = (("grpc.max_receive_message_length", 4 * 1024 * 1024),)
        self._server = grpc.server(self._others, handlers=self._handlers, options=options)
        try:
            self._server.add_insecure_port(f"unix:{self._hidden}")
        except RuntimeError as error:
            raise errors.Fatal(
                f"socket {self._path} cannot be bound: {error}. Does its directory exist, "
                "and may this process write to it?"
            ) from error
        self._server.start()
        self._hidden.chmod(0o600)
        self._made = self._hidden.stat()
        self._hidden.rename(self._path)

    def stop(self, grace: float) -> None:
        """Refuse new calls, give running ones `grace` seconds, and take the socket away."""
        if self._made is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self._path.stat(), self._made):
                    self._path.unlink()
        if self._server is not None:
            # As it ends gRPC removes the hidden name, whoever has that by then: it is waited for.
            self._server.stop(grace).wait(grace + 3)
        for pool in self._pools:
            pool.shutdown(wait=False)


Method = Callable[[concurrent.futures.ThreadPoolExecutor, int], "grpc.RpcMethodHandler[Any, Any]"]
"""A method of a service, once it has workers, and a number of calls that may be there at once."""


def streaming(method: Callable[[Any, grpc.ServicerContext], Iterator[Any]]) -> Method:
    """A method whose request says nothing, and that answers as long as the caller listens."""
    return lambda workers, most: grpc.unary_stream_rpc_method_handler(
        _served_by(workers, _streaming(most, method)),
        response_serializer=lambda message: message.SerializeToString(),
    )


def unary(method: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Method:
    """A method with one request, a message of the type `request`, and one answer."""
    return lambda workers, most: grpc.unary_unary_rpc_method_handler(
        _served_by(workers, _bounded(most, method)),
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _bounded(
    most: int, method: Callable[[Any, grpc.ServicerContext], T]
) -> Callable[[Any, grpc.ServicerContext], T]:
    """The method, for so many calls at a time."""
    places = _places(most)

    def bounded(request: Any, context: grpc.ServicerContext) -> T:
        with places(context):
            return method(request, context)

    return bounded


def _streaming(
    most: int, method: Callable[[Any, grpc.ServicerContext], Iterator[T]]
) -> Callable[[Any, grpc.ServicerContext], Iterator[T]]:
    """The same, where a call lasts as long as its answers."""
    places = _places(most)

    def bounded(request: Any, context: grpc.ServicerContext) -> Iterator[T]:
        with places(context):
            yield from method(request, context)

    return bounded


def _places(
    most: int,
) -> Callable[[grpc.ServicerContext], contextlib.AbstractContextManager[None]]:
    """What calls hold a place by; one for which there is none ends there."""
    free = threading.BoundedSemaphore(most)

    @contextlib.contextmanager
    def place(context: grpc.ServicerContext) -> Iterator[None]:
        if not free.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _FULL.format(most=most))
        try:
            yield
        finally:
            free.release()

    return place


def _served_by(
    workers: concurrent.futures.ThreadPoolExecutor,
    method: Callable[[Any, grpc.ServicerContext], T],
) -> Callable[[Any, grpc.ServicerContext], T]:
    """The method with workers of its own, which a server of grpcio has from this attribute."""

    def served(request: Any, context: grpc.ServicerContext) -> T:
        return method(request, context)

    served.experimental_thread_pool = workers  # type: ignore[attr-defined]
    return served
