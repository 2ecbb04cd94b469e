"""Tells the kubelet, for as long as it listens, which devices can be used."""

import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from dra_driver.adapters.kubelet import dra_health
from dra_driver.model import texts

LONGEST_MESSAGE = 1024
"""Bytes that the kubelet keeps (Kubernetes 1.36)."""
HEARTBEAT = 4.0
"""Seconds between messages: a device of which the kubelet has not heard for 30 s is unknown."""


class Health:
    """What was said last, and who wants to hear what is said next; see `dra_health.Source`."""

    def __init__(self, pool: str, *, heartbeat: float = HEARTBEAT) -> None:
        self._pool = pool
        self._heartbeat = heartbeat
        self._condition = threading.Condition()
        self._said: tuple[dra_health.DeviceHealth, ...] | None = None
        self._closed = False

    def say(
        self,
        troubles: Mapping[str, str | None],
        notes: Mapping[str, str] = MappingProxyType({}),
        unseen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """From now on this is wrong with the devices of the pool, by name; None: nothing.

        `notes` are told of devices with which nothing is wrong, `unseen` of those with which nobody
        can know whether something is.
        """
        said = tuple(
            dra_health.DeviceHealth(
                self._pool,
                name,
                healthy=None if trouble is None and name in unseen else trouble is None,
                message=texts.told(
                    trouble or unseen.get(name) or notes.get(name, ""), LONGEST_MESSAGE
                ),
            )
            for name, trouble in troubles.items()
        )
        with self._condition:
            if said != self._said:
                self._said = said
                self._condition.notify_all()

    def close(self) -> None:
        """Nothing is said any more, to nobody."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def wake(self) -> None:
        """Have watchers look whether they are still heard."""
        with self._condition:
            self._condition.notify_all()

    def watch(self, is_heard: Callable[[], bool]) -> Iterator[tuple[dra_health.DeviceHealth, ...]]:
        """All devices: now, when something changes, and at each heartbeat."""
        last: tuple[dra_health.DeviceHealth, ...] | None = None

        def is_over() -> bool:
            return self._closed or not is_heard()

        def has_changed() -> bool:
            return self._said != last

        while True:
            with self._condition:
                self._condition.wait_for(lambda: is_over() or has_changed(), self._heartbeat)
                if is_over():
                    return
                last = self._said
            if last is not None:
                yield last
