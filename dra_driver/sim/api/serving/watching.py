"""A watch as a client sees it: events of the objects that a selector matches."""

import dataclasses
from collections.abc import Callable
from typing import Any

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.storing import selectors, store

Json = dict[str, Any]
BOOKMARK = "BOOKMARK"
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """What happened to an object, as the watcher sees it: `type` as on the wire."""

    type: str
    body: Json


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What a watch was asked for."""

    resource: str
    selector: selectors.Selector
    since: int | None
    """Only later changes; None begins with what there is, as ADDED."""
    bookmarks: bool = False
    initial_events_end: bool = False
    """A bookmark tells where the objects that there were end."""


class Stream:
    """The events of a watch. Not for several threads, but the store may be written by any."""

    def __init__(self, objects: store.Store, plan: Plan) -> None:
        self._store = objects
        self._plan = plan
        self._first: list[Event] = []
        self._watch: store.Watch | None = None

    def open(self, wake: Callable[[], None]) -> None:
        """Begins to watch; `wake` is called from any thread when `take` has more.

        Raises:
            problems.ApiError: 410, the history does not reach back that far.
        """
        plan = self._plan
        with self._store.lock:
            try:
                since = self._store.version if plan.since is None else plan.since
                self._watch = self._store.watch(plan.resource, since=since, wake=wake)
            except store.TooOldError as error:
                raise problems.expired(str(error)) from error
            if plan.since is None:
                items = self._store.items(plan.resource)
                found = (body for body in items if plan.selector.matches(body))
                self._first = [Event(store.ADDED, body) for body in found]
            if plan.initial_events_end:
                self._first.append(self._bookmark(INITIAL_EVENTS_END))

    def take(self, *, bookmark: bool = False) -> tuple[list[Event], bool]:
        """The events since the last call, and whether no more will come.

        With `bookmark` the last one tells how far that is, if the watcher wants to know.
        """
        watch = self._watch
        if watch is None:
            return [], True
        with self._store.lock:
            changes, ended = watch.take(), watch.ended
            last = [self._bookmark({})] if bookmark and self._plan.bookmarks else []
        events, self._first = self._first, []
        events += [event for change in changes if (event := self._seen(change)) is not None]
        return events + last, ended

    def close(self) -> None:
        """Ends the watch."""
        if self._watch is not None:
            self._store.unwatch(self._plan.resource, self._watch)
            self._watch = None

    def _bookmark(self, annotations: Json) -> Event:
        metadata: Json = {"resourceVersion": str(self._store.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return Event(BOOKMARK, {"metadata": metadata})

    def _seen(self, change: store.Change) -> Event | None:
        matches = self._plan.selector.matches
        before = change.previous is not None and matches(change.previous)
        now = change.type != store.DELETED and matches(change.body)
        if now:
            return Event(store.MODIFIED if before else store.ADDED, change.body)
        if before and change.previous is not None:
            # What left the selection is shown as it was in it, at the version of its leaving.
            version = {"resourceVersion": str(change.version)}
            metadata = change.previous["metadata"] | version
            return Event(store.DELETED, change.previous | {"metadata": metadata})
        return None
