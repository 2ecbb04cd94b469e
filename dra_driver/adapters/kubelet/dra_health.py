"""The kubelet's stream of device health, as messages. Source: see `dra_protocol`."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dra_driver.adapters.kubelet import dra_protocol


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceHealth:
    """Whether a device can be used, and why not."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


class Source(Protocol):
    """Who knows which devices can be used."""

    def watch(self, is_heard: Callable[[], bool]) -> Iterator[Sequence[DeviceHealth]]:
        """All devices again and again, less than 30 s apart, until `is_heard()` is false."""

    def wake(self) -> None:
        """Have watchers ask `is_heard` now."""


def responses(source: Source, is_heard: Callable[[], bool]) -> Iterator[Any]:
    """What the source says, as messages of the stream."""
    for told in source.watch(is_heard):
        response = dra_protocol.health.NodeWatchResourcesResponse()
        for one in told:
            entry = response.devices.add(
                health=dra_protocol.HEALTHY if one.healthy else dra_protocol.UNHEALTHY,
                message=one.message,
            )
            entry.device.pool_name, entry.device.device_name = one.pool, one.device
        yield response
