"""Plugin registration and the DRA plugin service over unix sockets: both ends.

The kubelet is the client, the driver the server; the embedded cluster uses the client end.
Source for paths and timing: Kubernetes 1.36, `pkg/kubelet/pluginmanager`, `pkg/kubelet/cm/dra`.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import socket
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import grpc

from dra_driver import errors
from dra_driver.adapters import dra_health, dra_protocol
from dra_driver.model import claims, prepared

PLUGIN_TYPE = "DRAPlugin"
MAX_SOCKET_PATH = 107
"""Bytes: `sun_path` holds 108 with its terminating NUL."""
CALL_LIMIT = 45.0
"""Seconds after which the kubelet gives a prepare or unprepare call up."""
PROBE_SECONDS = 1.0
"""How long a listener may take to accept a connection; the kernel does it at once."""
WORKERS = 64
"""Calls that may run or wait at once: the kubelet does not serialise pods."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What is said of one claim: its devices, or why not."""

    devices: tuple[prepared.PreparedDevice, ...] = ()
    error: str = ""


class Handler(Protocol):
    """What a driver does with the calls; each claim that was asked for must be in the answer."""

    def prepare(
        self, refs: Sequence[claims.ClaimRef], seconds: float
    ) -> Mapping[claims.ClaimUid, Answer]:
        """Prepare claims within `seconds`."""

    def unprepare(
        self, refs: Sequence[claims.ClaimRef], seconds: float
    ) -> Mapping[claims.ClaimUid, Answer]:
        """Unprepare claims within `seconds`."""


@dataclasses.dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin tells of itself at registration."""

    name: str
    endpoint: str
    versions: tuple[str, ...] = tuple(dra_protocol.DRA_PACKAGES)
    type: str = PLUGIN_TYPE


def check_socket_path(path: pathlib.Path, *, setting: str) -> None:
    """Refuse a path that no unix socket can have.

    Raises:
        errors.Fatal: the path, or the hidden name it is bound under first, is too long.
    """
    length = len(os.fsencode(path)) + 1
    if length > MAX_SOCKET_PATH:
        raise errors.Fatal(
            f"socket path {path} has {length - 1} bytes; at most {MAX_SOCKET_PATH - 1} are "
            f"possible for a unix socket that is bound under a hidden name first. "
            f"Choose a shorter {setting}"
        )


def clear_dead_sockets(directory: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """Remove sockets that nobody listens on: instances that were killed leave theirs behind.

    `pattern` is a glob for names in the directory. The sockets that were removed are returned.
    """
    dead = [path for path in sorted(directory.glob(pattern)) if _is_dead(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return dead


def _is_dead(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            # Busy, gone, or no socket at all: not ours to judge.
            return False
    return False


class Server:
    """A gRPC server on one unix socket that appears, complete, under its name.

    It is bound under a hidden name and renamed, so that the kubelet, which dials as soon as it
    sees the socket, always meets a server that answers. On stop the socket file is removed only
    while it is still this server's: another instance may have taken the path over.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._hidden = path.with_name(f".{path.name}")
        self._executor = concurrent.futures.ThreadPoolExecutor(
            max_workers=WORKERS, thread_name_prefix=path.name
        )
        self._handlers: list[grpc.GenericRpcHandler[Any, Any]] = []
        self._server: grpc.Server | None = None
        self._made: os.stat_result | None = None

    def add(self, service: str, handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]") -> None:
        """Serve the methods of a service, by their proto names."""
        self._handlers.append(grpc.method_handlers_generic_handler(service, dict(handlers)))

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
        self._server = grpc.server(self._executor, handlers=self._handlers, options=options)
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
        self._executor.shutdown(wait=False)


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
    return server


def _dra(
    handler: Handler, messages: dra_protocol.Messages
) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    def prepare(request: Any, context: grpc.ServicerContext) -> Any:
        answers = handler.prepare(_refs(request), _seconds(context))
        response = messages.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            entry.error = answer.error
            for device in answer.devices:
                _add_device(entry, device)
        return response

    def unprepare(request: Any, context: grpc.ServicerContext) -> Any:
        answers = handler.unprepare(_refs(request), _seconds(context))
        response = messages.NodeUnprepareResourcesResponse()
        for uid, answer in answers.items():
            response.claims[uid].error = answer.error
        return response

    return {
        "NodePrepareResources": _unary(prepare, messages.NodePrepareResourcesRequest),
        "NodeUnprepareResources": _unary(unprepare, messages.NodeUnprepareResourcesRequest),
    }


def _watch(health: dra_health.Source) -> "grpc.RpcMethodHandler[Any, Any]":
    def watch(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(health.wake)
        return dra_health.responses(health, context.is_active)

    return grpc.unary_stream_rpc_method_handler(
        watch, response_serializer=lambda message: message.SerializeToString()
    )


def _unary(
    method: Callable[[Any, grpc.ServicerContext], Any], request: Any
) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _refs(request: Any) -> list[claims.ClaimRef]:
    return [
        claims.ClaimRef(claim.namespace, claim.name, claims.ClaimUid(claim.uid))
        for claim in request.claims
    ]


def _seconds(context: grpc.ServicerContext) -> float:
    remaining = context.time_remaining()
    return CALL_LIMIT if remaining is None else min(remaining, CALL_LIMIT)


def _add_device(entry: Any, device: prepared.PreparedDevice) -> None:
    message = entry.devices.add(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
    )
    if device.share_id is not None and "share_id" in message.DESCRIPTOR.fields_by_name:
        message.share_id = device.share_id


class Client:
    """The kubelet's end of both services.

    Raises:
        errors.Retryable: from every call, when the plugin does not answer.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._channel = grpc.insecure_channel(
            f"unix:{path}",
            options=(
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ),
        )

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def get_info(self, timeout: float = 1.0) -> PluginInfo:
        """What the plugin tells of itself."""
        messages = dra_protocol.registration
        reply = self._call(
            f"/{dra_protocol.REGISTRATION_SERVICE}/GetInfo",
            messages.InfoRequest(),
            messages.PluginInfo,
            timeout,
        )
        return PluginInfo(
            reply.name, reply.endpoint or self._path, tuple(reply.supported_versions), reply.type
        )

    def notify(self, *, registered: bool, error: str = "", timeout: float = 5.0) -> None:
        """Tell the plugin whether it is registered."""
        messages = dra_protocol.registration
        self._call(
            f"/{dra_protocol.REGISTRATION_SERVICE}/NotifyRegistrationStatus",
            messages.RegistrationStatus(plugin_registered=registered, error=error),
            messages.RegistrationStatusResponse,
            timeout,
        )

    def prepare(
        self,
        refs: Sequence[claims.ClaimRef],
        *,
        version: str = "v1.DRAPlugin",
        timeout: float = CALL_LIMIT,
    ) -> dict[claims.ClaimUid, Answer]:
        """NodePrepareResources of the given service version."""
        return dict(self._dra("Prepare", refs, version, timeout))

    def unprepare(
        self,
        refs: Sequence[claims.ClaimRef],
        *,
        version: str = "v1.DRAPlugin",
        timeout: float = CALL_LIMIT,
    ) -> dict[claims.ClaimUid, Answer]:
        """NodeUnprepareResources of the given service version."""
        return dict(self._dra("Unprepare", refs, version, timeout))

    def _dra(
        self, verb: str, refs: Sequence[claims.ClaimRef], version: str, timeout: float
    ) -> Iterator[tuple[claims.ClaimUid, Answer]]:
        messages = dra_protocol.dra[version]
        request = getattr(messages, f"Node{verb}ResourcesRequest")()
        for ref in refs:
            request.claims.add(namespace=ref.namespace, uid=ref.uid, name=ref.name)
        reply = self._call(
            f"/{dra_protocol.DRA_PACKAGES[version]}.DRAPlugin/Node{verb}Resources",
            request,
            getattr(messages, f"Node{verb}ResourcesResponse"),
            timeout,
        )
        for uid in sorted(reply.claims):
            entry = reply.claims[uid]
            devices = entry.devices if verb == "Prepare" else ()
            yield (
                claims.ClaimUid(uid),
                Answer(tuple(_read_device(device) for device in devices), entry.error),
            )

    def _call(self, path: str, request: Any, reply: Any, timeout: float) -> Any:
        method = self._channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise errors.Retryable(f"{self._path} {path}: {_describe(error)}") from error
        except ValueError as error:
            # A call on a connection that another thread has closed.
            raise errors.Retryable(f"{self._path} {path}: {error}") from error


def _read_device(message: Any) -> prepared.PreparedDevice:
    shared = "share_id" in message.DESCRIPTOR.fields_by_name and message.HasField("share_id")
    return prepared.PreparedDevice(
        requests=tuple(message.request_names),
        pool=message.pool_name,
        device=message.device_name,
        cdi_ids=tuple(message.cdi_device_ids),
        share_id=message.share_id if shared else None,
    )


def _describe(error: Any) -> str:
    """Code and details of a failed call, which grpc raises as its error."""
    return f"{error.code().name}: {error.details()}"
