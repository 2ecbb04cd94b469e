"""Plugin registration and the DRA plugin service over unix sockets: the kubelet's end.

Probes, and the embedded cluster, use it.
"""

import types
from collections.abc import Iterator, Sequence
from typing import Any, Self

import grpc

from dra_driver import errors
from dra_driver.adapters.kubelet import dra_grpc, dra_health, dra_protocol
from dra_driver.model import claims, prepared


class Unimplemented(errors.Retryable):
    """The server has no such service."""


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

    def get_info(self, timeout: float = 1.0) -> dra_grpc.PluginInfo:
        """What the plugin tells of itself."""
        messages = dra_protocol.registration
        reply = self._call(
            f"/{dra_protocol.REGISTRATION_SERVICE}/GetInfo",
            messages.InfoRequest(),
            messages.PluginInfo,
            timeout,
        )
        return dra_grpc.PluginInfo(
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
        timeout: float = dra_grpc.CALL_LIMIT,
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        """NodePrepareResources of the given service version."""
        return dict(self._dra("Prepare", refs, version, timeout))

    def unprepare(
        self,
        refs: Sequence[claims.ClaimRef],
        *,
        version: str = "v1.DRAPlugin",
        timeout: float = dra_grpc.CALL_LIMIT,
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        """NodeUnprepareResources of the given service version."""
        return dict(self._dra("Unprepare", refs, version, timeout))

    def watch_health(self, service: str) -> Iterator[tuple[dra_health.Told, ...]]:
        """What the plugin tells of its devices, message by message, until the stream ends.

        `service` is one of `dra_protocol.HEALTH_SERVICES`.

        Raises:
            errors.Retryable: the stream breaks off, or is not served; when the client is closed.
        """
        path, messages = f"/{service}/NodeWatchResources", dra_protocol.health
        try:
            stream = self._channel.unary_stream(
                path,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=messages.NodeWatchResourcesResponse.FromString,
            )(messages.NodeWatchResourcesRequest())
            for response in stream:
                yield dra_health.read(response)
        except grpc.RpcError as error:
            kind = Unimplemented if _is_unimplemented(error) else errors.Retryable
            raise kind(f"{self._path} {path}: {_describe(error)}") from error
        except ValueError as error:
            # Opened on a connection that another thread has closed.
            raise errors.Retryable(f"{self._path} {path}: {error}") from error

    def probe(self, ref: claims.ClaimRef, *, timeout: float) -> dra_grpc.Answer | None:
        """What is said of a claim that is none; None where another driver listens."""
        version = dra_grpc.PROBE_VERSION
        try:
            answers = self._ask(dra_protocol.PROBE_SERVICE, "Prepare", [ref], version, timeout)
        except Unimplemented:
            # One of the time before probes had a service of their own.
            answers = self._dra("Prepare", [ref], version, timeout)
        return dict(answers).get(ref.uid)

    def _dra(
        self, verb: str, refs: Sequence[claims.ClaimRef], version: str, timeout: float
    ) -> list[tuple[claims.ClaimUid, dra_grpc.Answer]]:
        service = f"{dra_protocol.DRA_PACKAGES[version]}.DRAPlugin"
        return self._ask(service, verb, refs, version, timeout)

    def _ask(
        self, service: str, verb: str, refs: Sequence[claims.ClaimRef], version: str, timeout: float
    ) -> list[tuple[claims.ClaimUid, dra_grpc.Answer]]:
        messages = dra_protocol.dra[version]
        request = getattr(messages, f"Node{verb}ResourcesRequest")()
        for ref in refs:
            request.claims.add(namespace=ref.namespace, uid=ref.uid, name=ref.name)
        reply = self._call(
            f"/{service}/Node{verb}Resources",
            request,
            getattr(messages, f"Node{verb}ResourcesResponse"),
            timeout,
        )
        return [(claims.ClaimUid(uid), _answer(reply.claims[uid], verb)) for uid in reply.claims]

    def _call(self, path: str, request: Any, reply: Any, timeout: float) -> Any:
        method = self._channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            kind = Unimplemented if _is_unimplemented(error) else errors.Retryable
            raise kind(f"{self._path} {path}: {_describe(error)}") from error
        except ValueError as error:
            # A call on a connection that another thread has closed.
            raise errors.Retryable(f"{self._path} {path}: {error}") from error


def _answer(entry: Any, verb: str) -> dra_grpc.Answer:
    devices = entry.devices if verb == "Prepare" else ()
    return dra_grpc.Answer(tuple(_read_device(device) for device in devices), entry.error)


def _read_device(message: Any) -> prepared.PreparedDevice:
    shared = "share_id" in message.DESCRIPTOR.fields_by_name and message.HasField("share_id")
    return prepared.PreparedDevice(
        requests=tuple(message.request_names),
        pool=message.pool_name,
        device=message.device_name,
        cdi_ids=tuple(message.cdi_device_ids),
        share_id=message.share_id if shared else None,
    )


def _is_unimplemented(error: Any) -> bool:
    return bool(error.code() is grpc.StatusCode.UNIMPLEMENTED)


def _describe(error: Any) -> str:
    """Code and details of a failed call, which grpc raises as its error."""
    return f"{error.code().name}: {error.details()}"
