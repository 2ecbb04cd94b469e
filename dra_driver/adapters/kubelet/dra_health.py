"""The kubelet's stream of device health, as messages. Source: see `dra_protocol`."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dra_driver.adapters.kubelet import dra_protocol


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceHealth:
    """Whether a device can be used, and why not; None: nobody can tell."""

    pool: str
    device: str
    healthy: bool | None
    message: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What a driver tells of a device, as the kubelet reads it.

    `health` is the kubelet's word for it; of `timeout_seconds` 0 and less say nothing.
    """

    pool: str
    device: str
    health: str
    message: str = ""
    timeout_seconds: int = 0


class Source(Protocol):
    """Who knows which devices can be used."""

    def watch(self, is_heard: Callable[[], bool]) -> Iterator[Sequence[DeviceHealth]]:
        """All devices again and again, less than 30 s apart, until `is_heard()` is false."""

    def wake(self) -> None:
        """Have watchers ask `is_heard` now."""


_WORDS = {dra_protocol.HEALTHY: "Healthy", dra_protocol.UNHEALTHY: "Unhealthy"}
_NUMBERS = {
    None: dra_protocol.UNKNOWN,
    True: dra_protocol.HEALTHY,
    False: dra_protocol.UNHEALTHY,
}
_LONGEST_MESSAGE = 1024
"""Bytes; a longer one is cut."""


def read(response: Any) -> tuple[Told, ...]:
    """A message of the stream, as the kubelet has it."""
    return tuple(
        Told(
            pool=one.device.pool_name,
            device=one.device.device_name,
            health=_WORDS.get(one.health, "Unknown"),
            message=_cut(one.message),
            timeout_seconds=one.health_check_timeout_seconds,
        )
        for one in response.devices
    )


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= _LONGEST_MESSAGE:
        return text
    return data[: _LONGEST_MESSAGE - len("...")].decode(errors="ignore") + "..."


def responses(source: Source, is_heard: Callable[[], bool]) -> Iterator[Any]:
    """What the source says, as messages of the stream."""
    for told in source.watch(is_heard):
        response = dra_protocol.health.NodeWatchResourcesResponse()
        for one in told:
            entry = response.devices.add(
                health=_NUMBERS[one.healthy],
                message=one.message,
            )
            entry.device.pool_name, entry.device.device_name = one.pool, one.device
        yield response
