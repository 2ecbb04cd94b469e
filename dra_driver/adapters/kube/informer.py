"""A local copy of the API's objects of one kind, kept current by a watch."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import workers
from dra_driver.model import backoff

Json = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""

OnChange = Callable[[str, Json], None]
OnError = Callable[[errors.DriverError], None]

FIRST_BACKOFF = 0.2
LAST_BACKOFF = 10.0
"""Seconds between tries while the server is away: first, and longest after doubling."""


class Informer:
    """Lists, then watches, then lists again whenever the watch is lost.

    `on_change(type, object)` is called in the informer's thread for ADDED, MODIFIED and DELETED,
    also for differences that a new list shows; it must not block. A change at which it failed is
    not told again, all others are. `on_error` hears what went wrong before the next try, and
    `on_list` of each list that has arrived, before it passes for synced.
    """

    def __init__(
        self,
        client: kube.Client,
        resource: kube.Resource,
        *,
        on_change: OnChange | None = None,
        on_error: OnError | None = None,
        on_list: Callable[[], None] | None = None,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> None:
        self.chance: Callable[[], float] = random.random
        """Spreads the pauses between tries: from 0 up to 1, each time another number."""
        self._client = client
        self._resource = resource
        self._on_change = on_change or _ignore
        self._on_error = on_error or _ignore
        self._on_list = on_list or _ignore
        self._namespace = namespace
        self._selectors = {"field_selector": field_selector, "label_selector": label_selector}
        self._objects: dict[Key, Json] = {}
        self._version = 0
        self._lock = threading.Condition()
        self._synced = threading.Event()
        self._watch: kube.Watch | None = None
        self._worker = workers.Worker(
            f"informer-{resource.plural}", self._run, end_seconds=kube.REQUEST_TIMEOUT + 1
        )

    def start(self) -> None:
        """Begin to list and watch."""
        self._worker.start()

    def stop(self) -> None:
        """End the watch and wait for the thread."""
        self._worker.end(self._end_watch)

    @property
    def is_alive(self) -> bool:
        """Whether it lists and watches."""
        return self._worker.is_alive

    def wait_synced(self, timeout: float) -> bool:
        """Whether the first list has arrived within `timeout` seconds."""
        return self._synced.wait(timeout)

    def wait_version(self, version: str, timeout: float) -> bool:
        """Whether a write that the server answered with `version` is seen within `timeout` seconds.

        Seen is what can be read and has been told to `on_change`, which must not call this.

        Resource versions of one resource are ordered integers (guaranteed from Kubernetes 1.35 on,
        true of etcd before).
        """
        with self._lock:
            return self._lock.wait_for(lambda: self._version >= int(version), timeout)

    def objects(self) -> list[Json]:
        """The objects now, ordered by namespace and name. They are shared: do not change them."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._objects)]

    def get(self, name: str, namespace: str = "") -> Json | None:
        """One object, if it is known. It is shared: do not change it."""
        with self._lock:
            return self._objects.get((namespace, name))

    def _end_watch(self) -> None:
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.stop()

    def _run(self) -> None:
        tries = backoff.Backoff(backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF), self.chance)
        while not self._worker.is_ending():
            try:
                version = self._relist()
                self._on_list()
                self._synced.set()
                tries.worked()
                self._follow(version)
            except kube.Gone:
                # Common, and no error. The pause is for a server that says it again and again.
                self._pause()
            except Exception as error:  # noqa: BLE001 - a thread that ends leaves a stale copy
                self._on_error(error if isinstance(error, errors.DriverError) else _odd(error))
                self._worker.pause(tries.failed(error))

    def _pause(self) -> None:
        schedule = backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF)
        self._worker.pause(schedule.pause(1, chance=self.chance()))

    def _relist(self) -> str:
        items, version = self._client.list(self._resource, self._namespace, **self._selectors)
        current = {_key(item): item for item in items}
        with self._lock:
            before, self._objects = self._objects, current
        failures = [
            error
            for kind, item in _differences(before, current)
            if (error := self._tell(kind, item))
        ]
        if failures:
            raise failures[0]
        self._see(version)
        return version

    def _follow(self, version: str) -> None:
        """Watch on and on from `version`; an ended watch goes on where it stopped."""
        while not self._worker.is_ending():
            watch = self._client.watch(
                self._resource, self._namespace, resource_version=version, **self._selectors
            )
            with self._lock:
                self._watch = watch
            if self._worker.is_ending():
                watch.stop()
            silent = True
            for kind, item in watch:
                silent = False
                version = _version(item)
                self._apply(kind, item)
            if silent:
                # A server or proxy that ends every watch at once must not make us spin.
                self._pause()

    def _apply(self, kind: str, item: Json) -> None:
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(_key(item), None)
            elif kind != "BOOKMARK":
                self._objects[_key(item)] = item
        if kind != "BOOKMARK":
            self._on_change(kind, item)
        self._see(_version(item))

    def _tell(self, kind: str, item: Json) -> Exception | None:
        """Tell of one of many changes, so that one that fails does not keep the others back."""
        try:
            self._on_change(kind, item)
        except Exception as error:  # noqa: BLE001 - raised once the others have been told
            return error
        return None

    def _see(self, version: str) -> None:
        with self._lock:
            self._version = max(self._version, int(version))
            self._lock.notify_all()


def _differences(
    before: Mapping[Key, Json], current: Mapping[Key, Json]
) -> Iterator[tuple[str, Json]]:
    """What has happened between two lists, as a watch would have told it."""
    # One that was made again under its name, unseen, is another object: the old one is gone.
    for key, item in sorted(before.items()):
        if key not in current or _uid(current[key]) != _uid(item):
            yield "DELETED", item
    for key, item in sorted(current.items()):
        if key not in before or _uid(before[key]) != _uid(item):
            yield "ADDED", item
        elif _version(before[key]) != _version(item):
            yield "MODIFIED", item


def _odd(error: Exception) -> errors.Retryable:
    """What is not ours to raise: an object without a name, or an `on_change` that failed."""
    return errors.Retryable(f"failed unexpectedly: {type(error).__name__}: {error}")


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _uid(item: Json) -> str:
    return str(item["metadata"].get("uid"))


def _version(item: Json) -> str:
    return str(item["metadata"]["resourceVersion"])


def _ignore(*_: object) -> None:
    """Nobody asked to hear of it."""
