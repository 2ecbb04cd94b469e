"""Plugin registration and the DRA plugin service over unix sockets: the driver's end.

Source for paths and timing: Kubernetes 1.36, `pkg/kubelet/pluginmanager`, `pkg/kubelet/cm/dra`.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc

from dra_driver import errors
from dra_driver.adapters.kubelet import dra_health, dra_protocol
from dra_driver.model import claims, prepared

T = TypeVar("T")

_FULL = "{most} calls are being served, and that is all that may be at once; try again"
PLUGIN_TYPE = "DRAPlugin"
PROBE_VERSION = "v1.DRAPlugin"
"""Whose messages probes use."""
CALL_LIMIT = 45.0
"""Seconds after which the kubelet gives a prepare or unprepare call up."""
WORKERS = {"NodePrepareResources": 256, "NodeUnprepareResources": 96, "NodeWatchResources": 16}
"""Calls of each method that may run or wait at once: the kubelet does not serialise pods. Prepares
may have to wait, and none of them must keep an unprepare, or a probe, from being served."""
OTHER_WORKERS = 4
REFUSING = 8
"""Workers on top, of each method: calls beyond its number are refused at once, and none is queued,
to be served after a later one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What is said of one claim: its devices, or why not."""

    devices: tuple[prepared.PreparedDevice, ...] = ()
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who waits for an answer, and for how long.

    What `when_gone` is given is called once nobody waits any more: at once where that is so
    already, and after the answer, too.
    """

    seconds: float
    when_gone: Callable[[Callable[[], None]], None] = lambda _: None


class Handler(Protocol):
    """What a driver does with the calls; each claim that was asked for must be in the answer."""

    def prepare(
        self, refs: Sequence[claims.ClaimRef], caller: Caller
    ) -> Mapping[claims.ClaimUid, Answer]:
        """Prepare claims."""

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], caller: Caller
    ) -> Mapping[claims.ClaimUid, Answer]:
        """Unprepare claims."""


@dataclasses.dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin tells of itself at registration."""

    name: str
    endpoint: str
    versions: tuple[str, ...] = tuple(dra_protocol.DRA_PACKAGES)
    type: str = PLUGIN_TYPE


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


def registration_server(
    path: pathlib.Path, info: PluginInfo, on_status: Callable[[bool, str], None]
) -> Server:
    """A server that answers the kubelet's plugin watcher, from memory."""
    messages = dra_protocol.registration
    reply = messages.PluginInfo(
        type=info.type,
        name=info.name,
        endpoint=info.endpoint,
        supported_versions=list(info.versions),
    )

    def get_info(_request: Any, _context: grpc.ServicerContext) -> Any:
        return reply

    def notify(request: Any, _context: grpc.ServicerContext) -> Any:
        on_status(request.plugin_registered, request.error)
        return messages.RegistrationStatusResponse()

    server = Server(path)
    server.add(
        dra_protocol.REGISTRATION_SERVICE,
        {
            "GetInfo": _unary(get_info, messages.InfoRequest),
            "NotifyRegistrationStatus": _unary(notify, messages.RegistrationStatus),
        },
    )
    return server


def dra_server(
    path: pathlib.Path, handler: Handler, health: dra_health.Source | None = None
) -> Server:
    """A server for prepare and unprepare, in every version, from one handler; and for health."""
    server = Server(path)
    if health is not None:
        server.add(dra_protocol.HEALTH_SERVICE, {"NodeWatchResources": _watch(health)})
    for version, messages in dra_protocol.dra.items():
        server.add(f"{dra_protocol.DRA_PACKAGES[version]}.DRAPlugin", _dra(handler, messages))
    probed = _dra(handler, dra_protocol.dra[PROBE_VERSION])
    server.add(dra_protocol.PROBE_SERVICE, probed, shared=False)
    return server


def _dra(handler: Handler, messages: dra_protocol.Messages) -> "dict[str, Method]":
    def prepare(request: Any, context: grpc.ServicerContext) -> Any:
        answers = handler.prepare(_refs(request), _caller(context))
        response = messages.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            entry.error = answer.error
            for device in answer.devices:
                _add_device(entry, device)
        return response

    def unprepare(request: Any, context: grpc.ServicerContext) -> Any:
        answers = handler.unprepare(_refs(request), _caller(context))
        response = messages.NodeUnprepareResourcesResponse()
        for uid, answer in answers.items():
            response.claims[uid].error = answer.error
        return response

    return {
        "NodePrepareResources": _unary(prepare, messages.NodePrepareResourcesRequest),
        "NodeUnprepareResources": _unary(unprepare, messages.NodeUnprepareResourcesRequest),
    }


Method = Callable[[concurrent.futures.ThreadPoolExecutor, int], "grpc.RpcMethodHandler[Any, Any]"]
"""A method of a service, once it has workers, and a number of calls that may be there at once."""


def _watch(health: dra_health.Source) -> Method:
    def watch(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(health.wake)
        return dra_health.responses(health, context.is_active)

    return lambda workers, most: grpc.unary_stream_rpc_method_handler(
        _served_by(workers, _streaming(most, watch)),
        response_serializer=lambda message: message.SerializeToString(),
    )


def _unary(method: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Method:
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


def _refs(request: Any) -> list[claims.ClaimRef]:
    return [
        claims.ClaimRef(claim.namespace, claim.name, claims.ClaimUid(claim.uid))
        for claim in request.claims
    ]


def _caller(context: grpc.ServicerContext) -> Caller:
    def when_gone(told: Callable[[], None]) -> None:
        if not context.add_callback(told):
            told()

    remaining = context.time_remaining()
    return Caller(CALL_LIMIT if remaining is None else min(remaining, CALL_LIMIT), when_gone)


def _add_device(entry: Any, device: prepared.PreparedDevice) -> None:
    message = entry.devices.add(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
    )
    if device.share_id is not None and "share_id" in message.DESCRIPTOR.fields_by_name:
        message.share_id = device.share_id
