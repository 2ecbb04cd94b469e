"""What follows from a DELETE: grace, finalizers, dependents, the content of namespaces.

The garbage collector and the namespace controller of a real cluster come a moment later; here
they have done their work when the request is answered.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

from dra_driver.sim.api.kinds import kinds, problems, served_kinds, workload_kinds
from dra_driver.sim.api.storing import store

Json = dict[str, Any]

_DEFAULT_GRACE_SECONDS = 30
_NAMESPACES = "namespaces"
_FINISHED = ("Succeeded", "Failed")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a DELETE asks for (`DeleteOptions`)."""

    uid: str | None = None
    version: str | None = None
    grace_seconds: int | None = None
    orphan: bool = False
    dry_run: bool = False


class Deleter:
    """Deletes objects of a store. Every method takes the store's lock."""

    def __init__(
        self, objects: store.Store, clock: Callable[[], dt.datetime], table: served_kinds.Table
    ) -> None:
        """`table` are the kinds that are served; that of a CRD goes with it."""
        self._store = objects
        self._clock = clock
        self._table = table

    def delete(self, kind: kinds.Kind, key: store.Key, options: Options) -> tuple[Json, bool]:
        """Deletes the object, or marks it as being deleted.

        Returns:
            Its last state, and whether it is gone.

        Raises:
            problems.ApiError: 404, or 409 for a precondition that does not hold.
        """
        with self._store.lock:
            body = self._store.get(kind.storage, key)
            if body is None:
                raise problems.not_found(kind, key[1])
            _check_preconditions(kind, body, options)
            if options.dry_run:
                return body, False
            if options.orphan:
                self._orphan_dependents(body["metadata"]["uid"])
            if kind.storage == _NAMESPACES:
                return self._delete_namespace(body)
            return self._delete(kind, key, body, options.grace_seconds)

    def finish(self, kind: kinds.Kind, body: Json) -> bool:
        """Removes an object whose deletion has nothing left to wait for; whether it did."""
        with self._store.lock:
            metadata = body["metadata"]
            waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
            if not metadata.get("deletionTimestamp") or waits:
                return False
            if kind.storage == _NAMESPACES:
                return self._finish_namespace(metadata["name"])
            self._remove(kind, store.key_of(body))
            return True

    def collect(self, kind: kinds.Kind, body: Json) -> None:
        """Deletes an object that names owners of which none exists."""
        with self._store.lock:
            if body["metadata"].get("ownerReferences") and self._is_ownerless(body):
                self._delete(kind, store.key_of(body), body, None)

    def _delete(
        self, kind: kinds.Kind, key: store.Key, body: Json, asked: int | None
    ) -> tuple[Json, bool]:
        metadata = body["metadata"]
        grace = _grace(kind, body, asked)
        pending = metadata.get("deletionTimestamp") is not None
        if pending and grace >= metadata.get("deletionGracePeriodSeconds", 0) > 0:
            return body, False
        if grace == 0 and not metadata.get("finalizers"):
            return self._remove(kind, key), True
        if pending and metadata.get("deletionGracePeriodSeconds", 0) == grace:
            return body, False
        return self._store.put(kind.storage, self._marked(body, grace)), False

    def _marked(self, body: Json, grace: int) -> Json:
        metadata = body["metadata"]
        moment = self._clock() + dt.timedelta(seconds=grace)
        marks: Json = {
            "deletionTimestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deletionGracePeriodSeconds": grace,
        }
        if "generation" in metadata:
            marks["generation"] = metadata["generation"] + 1
        return body | {"metadata": metadata | marks}

    def _remove(self, kind: kinds.Kind, key: store.Key) -> Json:
        gone = self._store.remove(kind.storage, key)
        if kind.storage == workload_kinds.DEFINITIONS:
            self._forget(key[1])
        for resource, dependent in self._store.dependents(gone["metadata"]["uid"]):
            body = self._store.get(resource, dependent)
            if body is not None and self._is_ownerless(body):
                self._delete(self._table.stored_in(resource), dependent, body, None)
        if kind.namespaced:
            self._finish_namespace(key[0])
        return gone

    def _forget(self, definition: str) -> None:
        """Remove the objects of a kind, whatever their finalizers, and serve it no longer."""
        custom = self._table.defined(definition)
        # What they own goes only as long as their kind is known.
        for item in self._store.items(custom.storage) if custom else ():
            if custom and self._store.get(custom.storage, store.key_of(item)):
                self._remove(custom, store.key_of(item))
        self._table.forget(definition)

    def _is_ownerless(self, body: Json) -> bool:
        namespace = body["metadata"].get("namespace", "")
        references = body["metadata"]["ownerReferences"]
        return not any(self._exists(reference, namespace) for reference in references)

    def _exists(self, reference: Json, namespace: str) -> bool:
        group = reference["apiVersion"].rpartition("/")[0]
        kind = self._table.named(group, reference["kind"])
        if kind is None:
            # The real collector does not delete what it cannot look up, unless it has seen it go.
            return not self._table.is_gone(group, reference["kind"])
        if kind.namespaced and not namespace:
            return True
        key = (namespace if kind.namespaced else "", reference["name"])
        owner = self._store.get(kind.storage, key)
        return owner is not None and owner["metadata"]["uid"] == reference["uid"]

    def _orphan_dependents(self, uid: str) -> None:
        for resource, key in self._store.dependents(uid):
            body = self._store.get(resource, key)
            if body is None:
                continue
            metadata = dict(body["metadata"])
            kept = [item for item in metadata.pop("ownerReferences") if item["uid"] != uid]
            if kept:
                metadata["ownerReferences"] = kept
            self._store.put(resource, body | {"metadata": metadata})

    def _delete_namespace(self, body: Json) -> tuple[Json, bool]:
        name = body["metadata"]["name"]
        if not body["metadata"].get("deletionTimestamp"):
            marked = self._marked(body, 0) | {"status": {"phase": "Terminating"}}
            body = self._store.put(_NAMESPACES, marked)
        for kind in self._table.all():
            if not kind.namespaced or kind.stored_as:
                continue
            for item in self._store.items(kind.storage):
                key = store.key_of(item)
                # Deleting one object may have taken others with it.
                current = self._store.get(kind.storage, key) if key[0] == name else None
                if current is not None:
                    self._delete(kind, key, current, None)
        self._finish_namespace(name)
        return body, self._store.get(_NAMESPACES, ("", name)) is None

    def _finish_namespace(self, name: str) -> bool:
        body = self._store.get(_NAMESPACES, ("", name))
        if body is None or not body["metadata"].get("deletionTimestamp"):
            return False
        if body["metadata"].get("finalizers") or self._has_content(name):
            return False
        self._remove(self._table.stored_in(_NAMESPACES), ("", name))
        return True

    def _has_content(self, namespace: str) -> bool:
        return any(
            item["metadata"]["namespace"] == namespace
            for kind in self._table.all()
            if kind.namespaced
            for item in self._store.items(kind.storage)
        )


def _check_preconditions(kind: kinds.Kind, body: Json, options: Options) -> None:
    metadata = body["metadata"]
    if options.uid is not None and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). The object might have been deleted and then recreated"
        )
        raise problems.conflict(kind, metadata["name"], why)
    if options.version is not None and options.version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the "
            f"ResourceVersion in record ({metadata['resourceVersion']}). "
            "The object might have been modified"
        )
        raise problems.conflict(kind, metadata["name"], why)


def _grace(kind: kinds.Kind, body: Json, asked: int | None) -> int:
    """How many seconds a deletion waits for a kubelet; only a pod on a node waits."""
    spec = body.get("spec") or {}
    if kind.resource != "pods" or not spec.get("nodeName"):
        return 0
    if (body.get("status") or {}).get("phase") in _FINISHED:
        return 0
    if asked is None:
        asked = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
    return asked if asked >= 0 else 1
