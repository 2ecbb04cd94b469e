"""Objects with versions, and the history of their changes: what etcd and the watch cache are.

Bodies that are in the store are never changed, only replaced: they may be read without a lock.
"""

import collections
import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One write. `body` is the object after it, or its last state if it is DELETED."""

    version: int
    type: str
    body: Json
    previous: Json | None


class TooOldError(LookupError):
    """The history does not reach back to the version that was asked for."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class Watch:
    """The changes of one resource from a version on, for one reader.

    `wake` is called, with the store locked and from any thread, whenever there is more to take; it
    must not block.
    """

    def __init__(self, wake: Callable[[], None], limit: int) -> None:
        self._wake = wake
        self._limit = limit
        self._pending: collections.deque[Change] = collections.deque()
        self.ended = False
        """Nothing more will come: the store was closed, or the reader fell too far behind."""

    def take(self) -> list[Change]:
        """What has come since the last call. Called with the store's lock held."""
        taken = list(self._pending)
        self._pending.clear()
        return taken

    def add(self, change: Change) -> None:
        """Hands on a change. Called by the store."""
        if len(self._pending) >= self._limit:
            self.end()
            return
        self._pending.append(change)
        self._wake()

    def end(self) -> None:
        """No more changes. Called by the store."""
        self.ended = True
        self._wake()


class Store:
    """All objects. `lock` makes several calls one step; it may be entered again."""

    def __init__(self, *, history: int, first_version: int = 1) -> None:
        """An empty store that remembers the last `history` changes of each resource.

        Of what was before `first_version` it knows nothing.
        """
        self.lock = threading.RLock()
        self._history_limit = history
        self._version = first_version
        self._objects: dict[str, dict[Key, Json]] = collections.defaultdict(dict)
        self._changes: dict[str, collections.deque[Change]] = collections.defaultdict(
            lambda: collections.deque(maxlen=history)
        )
        self._forgotten: dict[str, int] = collections.defaultdict(lambda: first_version)
        self._watches: dict[str, list[Watch]] = collections.defaultdict(list)
        self._dependents: dict[str, set[tuple[str, Key]]] = collections.defaultdict(set)
        self._closed = False

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._version

    def get(self, resource: str, key: Key) -> Json | None:
        """The object, or None."""
        return self._objects[resource].get(key)

    def items(self, resource: str) -> list[Json]:
        """All objects of the resource, in the order of namespace and name."""
        with self.lock:
            held = self._objects[resource]
            return [held[key] for key in sorted(held)]

    def contents(self) -> dict[str, list[Json]]:
        """All objects by resource."""
        with self.lock:
            return {resource: list(held.values()) for resource, held in self._objects.items()}

    def put(self, resource: str, body: Json) -> Json:
        """Creates or replaces the object; gives it the next version and returns it."""
        with self.lock:
            key = key_of(body)
            previous = self._objects[resource].get(key)
            stored = self._versioned(body)
            self._objects[resource][key] = stored
            self._index(resource, key, previous, stored)
            self._record(resource, ADDED if previous is None else MODIFIED, stored, previous)
            return stored

    def remove(self, resource: str, key: Key) -> Json:
        """Removes the object and returns its last state, with the version of the removal."""
        with self.lock:
            previous = self._objects[resource].pop(key)
            gone = self._versioned(previous)
            self._index(resource, key, previous, None)
            self._record(resource, DELETED, gone, previous)
            return gone

    def dependents(self, uid: str) -> list[tuple[str, Key]]:
        """Resource and key of the objects that name `uid` as an owner."""
        with self.lock:
            return sorted(self._dependents.get(uid, ()))

    def watch(self, resource: str, *, since: int | None, wake: Callable[[], None]) -> Watch:
        """A watch of the changes after version `since`, or from now on.

        Raises:
            TooOldError: changes after `since` have been forgotten.
        """
        with self.lock:
            watch = Watch(wake, limit=max(self._history_limit, 1000))
            if since is not None:
                if since < self._forgotten[resource]:
                    raise TooOldError(since, self._forgotten[resource])
                for change in self._changes[resource]:
                    if change.version > since:
                        watch.add(change)
            if self._closed:
                watch.end()
            self._watches[resource].append(watch)
            return watch

    def unwatch(self, resource: str, watch: Watch) -> None:
        """Ends a watch whose reader is gone."""
        with self.lock:
            if watch in self._watches[resource]:
                self._watches[resource].remove(watch)

    def watch_count(self) -> int:
        """How many watches are open."""
        with self.lock:
            return sum(len(watches) for watches in self._watches.values())

    def forget(self) -> None:
        """Drops the history, as a compaction does: watches from older versions get 410."""
        with self.lock:
            self._changes.clear()
            for resource in set(self._objects) | set(self._forgotten):
                self._forgotten[resource] = self._version

    def close(self) -> None:
        """Ends all watches, now and in future."""
        with self.lock:
            self._closed = True
            self.end_watches()

    def end_watches(self) -> None:
        """Ends the watches that are open, as a server does that goes away for a moment."""
        with self.lock:
            for watches in self._watches.values():
                for watch in watches:
                    watch.end()

    def _versioned(self, body: Json) -> Json:
        self._version += 1
        return body | {"metadata": body["metadata"] | {"resourceVersion": str(self._version)}}

    def _record(self, resource: str, change: str, body: Json, previous: Json | None) -> None:
        changes = self._changes[resource]
        if len(changes) == changes.maxlen:
            self._forgotten[resource] = changes[0].version
        record = Change(self._version, change, body, previous)
        changes.append(record)
        for watch in self._watches[resource]:
            if not watch.ended:
                watch.add(record)

    def _index(self, resource: str, key: Key, previous: Json | None, body: Json | None) -> None:
        for uid in owner_uids(previous):
            self._dependents[uid].discard((resource, key))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in owner_uids(body):
            self._dependents[uid].add((resource, key))


def key_of(body: Json) -> Key:
    """Under which key the object is kept."""
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def owner_uids(body: Json | None) -> Iterable[str]:
    """The UIDs of the owners, each once."""
    references = (body or {}).get("metadata", {}).get("ownerReferences") or ()
    return dict.fromkeys(reference["uid"] for reference in references)
