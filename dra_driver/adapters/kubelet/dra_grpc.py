"""Plugin registration and the DRA plugin service over unix sockets: the driver's end.

Source for paths and timing: Kubernetes 1.36, `pkg/kubelet/pluginmanager`, `pkg/kubelet/cm/dra`.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import grpc

from dra_driver.adapters.kubelet import dra_health, dra_protocol, grpc_server
from dra_driver.model import claims, prepared

PLUGIN_TYPE = "DRAPlugin"
PROBE_VERSION = "v1.DRAPlugin"
"""Whose messages probes use."""
CALL_LIMIT = 45.0
"""Seconds after which the kubelet gives a prepare or unprepare call up."""


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


def registration_server(
    path: pathlib.Path, info: PluginInfo, on_status: Callable[[bool, str], None]
) -> grpc_server.Server:
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

    server = grpc_server.Server(path)
    server.add(
        dra_protocol.REGISTRATION_SERVICE,
        {
            "GetInfo": grpc_server.unary(get_info, messages.InfoRequest),
            "NotifyRegistrationStatus": grpc_server.unary(notify, messages.RegistrationStatus),
        },
    )
    return server


def dra_server(
    path: pathlib.Path, handler: Handler, health: dra_health.Source | None = None
) -> grpc_server.Server:
    """A server for prepare and unprepare, in every version, from one handler; and for health."""
    server = grpc_server.Server(path)
    if health is not None:
        for service in dra_protocol.HEALTH_SERVICES:
            server.add(service, {"NodeWatchResources": _watch(health)})
    for version, messages in dra_protocol.dra.items():
        server.add(f"{dra_protocol.DRA_PACKAGES[version]}.DRAPlugin", _dra(handler, messages))
    probed = _dra(handler, dra_protocol.dra[PROBE_VERSION])
    server.add(dra_protocol.PROBE_SERVICE, probed, shared=False)
    return server


def _dra(handler: Handler, messages: dra_protocol.Messages) -> dict[str, grpc_server.Method]:
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
        "NodePrepareResources": grpc_server.unary(prepare, messages.NodePrepareResourcesRequest),
        "NodeUnprepareResources": grpc_server.unary(
            unprepare, messages.NodeUnprepareResourcesRequest
        ),
    }


def _watch(health: dra_health.Source) -> grpc_server.Method:
    def watch(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(health.wake)
        return dra_health.responses(health, context.is_active)

    return grpc_server.streaming(watch)


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
