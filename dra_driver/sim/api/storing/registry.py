"""The verbs of the API on objects in their stored form."""

import base64
import binascii
import copy
import dataclasses
import datetime as dt
import json
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.sim.api.kinds import (
    catalog,
    custom_kinds,
    kinds,
    metadata,
    problems,
    schemas,
    served_kinds,
    strategies,
    workload_kinds,
)
from dra_driver.sim.api.storing import deleting, replacing, selectors, store

Json = dict[str, Any]
Change = Callable[[Json], Json]
"""From a copy of the current object to the wanted one."""

_NAME_TRIES = 8
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_GENERATED_BASE = 58
_UNCOUNTED = ("status", "metadata")


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Objects of a list, the version at which they were read, and where the next page begins."""

    items: list[Json]
    version: int
    next: str = ""
    remaining: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What the rules of kinds are told of."""

    rules: Mapping[str, strategies.Strategy] = dataclasses.field(default_factory=dict)
    minor: int = 36
    """The version of Kubernetes that is played: 1.`minor`."""
    disabled_gates: frozenset[str] = frozenset()
    expression_check: Callable[[str], str | None] = lambda _expression: None
    derivation_check: Callable[[str], str | None] = lambda _expression: None
    webhook: Callable[[Json], problems.Denial | None] = lambda _object: None
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)


class Registry:
    """Creates, reads, changes and deletes objects by the rules of their kinds.

    Bodies that are returned are those in the store: they are not to be changed.
    """

    def __init__(
        self, objects: store.Store, settings: Settings, table: served_kinds.Table | None = None
    ) -> None:
        """`table` are the kinds that are served; it follows the CRDs that are written here."""
        self.store = objects
        self.table = table or served_kinds.Table(minor=settings.minor)
        self._settings = settings
        self._deleter = deleting.Deleter(objects, settings.clock, self.table)

    def get(self, kind: kinds.Kind, namespace: str, name: str) -> Json:
        """The object.

        Raises:
            problems.ApiError: 404.
        """
        body = self.store.get(kind.storage, (namespace, name))
        if body is None:
            raise problems.not_found(kind, name)
        return body

    def restore(self, contents: Mapping[str, Sequence[Json]]) -> None:
        """Have what another server had, by resource, and serve the kinds of its CRDs."""
        with self.store.lock:
            for resource, bodies in contents.items():
                for body in bodies:
                    stored = self.store.put(resource, body)
                    if resource == workload_kinds.DEFINITIONS:
                        self.table.define(stored)

    def select(
        self, kind: kinds.Kind, selector: selectors.Selector, *, limit: int = 0, start: str = ""
    ) -> Page:
        """The objects that the selector matches, at one version.

        Args:
            kind: Of which kind.
            selector: Which of them.
            limit: At most so many; 0 for all.
            start: The `next` of the page before.
        """
        with self.store.lock:
            version = self.store.version
            found = [body for body in self.store.items(kind.storage) if selector.matches(body)]
        if start:
            after = _decode_position(start)
            found = [body for body in found if store.key_of(body) > after]
        if not limit or len(found) <= limit:
            return Page(found, version)
        page = found[:limit]
        return Page(page, version, _encode_position(store.key_of(page[-1])), len(found) - limit)

    def create(
        self,
        kind: kinds.Kind,
        namespace: str,
        body: Json,
        *,
        dry_run: bool = False,
        version: str = "",
    ) -> Json:
        """Creates the object; `body` becomes property of the registry.

        It came in the given version, by whose rules a custom resource goes.

        Raises:
            problems.ApiError: 400, 403, 404 (namespace), 409 or 422.
        """
        meta = body["metadata"]
        if meta.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise problems.ApiError(problems.Problem(500, "InternalError", message))
        now = self.now()
        with self.store.lock:
            self._place(kind, namespace, meta)
            self._stamp(kind, namespace, meta, now)
            if kind.has_status and not kind.created_with_status:
                body.pop("status", None)
            self._apply_rules(kind, body, None, now, status=False, version=version)
            body = _as_written(kind, body)
            name = meta["name"]
            if self.store.get(kind.storage, store.key_of(body)) is not None:
                raise problems.already_exists(kind, name)
            if dry_run:
                return body
            stored = self.store.put(kind.storage, body)
            self._define(kind, stored)
            self._deleter.collect(kind, stored)
            return stored

    def draft(self, kind: kinds.Kind, namespace: str, body: Json, version: str = "") -> Json:
        """The object with its defaults, as webhooks see it before it is created; it has no status.

        Raises:
            problems.ApiError: 400, 403 or 404, whatever a webhook would say.
        """
        new = copy.deepcopy(body)
        with self.store.lock:
            self._place(kind, namespace, new["metadata"])
            write = strategies.Write(new, None, status=False, around=self._surroundings(self.now()))
            self._admit(kind, write)
            self._strategy(kind, version).prepare(write)
        if kind.has_status and not kind.created_with_status:
            new.pop("status", None)
        return _as_written(kind, new)

    def update(
        self,
        kind: kinds.Kind,
        key: store.Key,
        change: Change,
        *,
        status: bool = False,
        dry_run: bool = False,
        internal: bool = False,
        version: str = "",
    ) -> Json:
        """Replaces the object, or its status alone, by what `change` makes of it.

        It came in the given version, by whose rules a custom resource goes.
        A `resourceVersion` or `uid` in the result has to be that of the current object. An
        `internal` change is one that the server makes itself: rules for users do not hold.

        Raises:
            problems.ApiError: 400, 404, 409 or 422.
        """
        with self.store.lock:
            old = self.get(kind, *key)
            new = change(copy.deepcopy(old))
            replacing.check_identity(kind, new, old)
            replacing.keep_system_fields(kind, new, old, status=status)
            if kind.has_status and not status and not internal:
                replacing.keep_status(new, old)
            if not internal:
                self._apply_rules(kind, new, old, self.now(), status=status, version=version)
            new = _as_written(kind, new)
            if kind.generation and _counted(kind, new) != _counted(kind, old):
                new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            if new == old or dry_run:
                return new
            stored = self.store.put(kind.storage, new)
            self._define(kind, stored)
            if not self._deleter.finish(kind, stored):
                self._deleter.collect(kind, stored)
            return stored

    def warnings(self, kind: kinds.Kind, body: Json) -> list[str]:
        """What the writer of the object should know, though nothing is wrong with it."""
        return self._strategy(kind).warn(body)

    def delete(
        self, kind: kinds.Kind, key: store.Key, options: deleting.Options
    ) -> tuple[Json, bool]:
        """Deletes the object; see `deleting.Deleter.delete`."""
        return self._deleter.delete(kind, key, options)

    def _define(self, kind: kinds.Kind, stored: Json) -> None:
        """Serve the kind that a definition makes known."""
        if kind.storage == workload_kinds.DEFINITIONS:
            self.table.define(stored)

    def _place(self, kind: kinds.Kind, namespace: str, meta: Json) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
            return
        if meta.setdefault("namespace", namespace) != namespace:
            message = (
                f"the namespace of the provided object ({meta['namespace']}) does not match the "
                f"namespace sent on the request ({namespace})"
            )
            raise problems.bad_request(message)
        owner = self.store.get("namespaces", ("", namespace))
        if owner is None:
            raise problems.not_found(_NAMESPACE, namespace)
        if owner["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} "
                "because it is being terminated"
            )
            raise problems.forbidden(kind, meta.get("name", ""), why)

    def _stamp(self, kind: kinds.Kind, namespace: str, meta: Json, now: str) -> None:
        for name in (*replacing.SYSTEM_METADATA, "selfLink", "resourceVersion"):
            meta.pop(name, None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._free_name(kind, namespace, meta["generateName"])
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = now
        if kind.generation:
            meta["generation"] = 1

    def _free_name(self, kind: kinds.Kind, namespace: str, prefix: str) -> str:
        """A name that nobody has; like Kubernetes since 1.30, a few are tried."""
        for _ in range(_NAME_TRIES):
            suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
            name = prefix[:_LONGEST_GENERATED_BASE] + suffix
            if self.store.get(kind.storage, (namespace, name)) is None:
                break
        return name

    def _apply_rules(
        self,
        kind: kinds.Kind,
        new: Json,
        old: Json | None,
        now: str,
        *,
        status: bool,
        version: str,
    ) -> None:
        write = strategies.Write(new, old, status, self._surroundings(now))
        strategy = self._strategy(kind, version)
        name = new["metadata"].get("name", "")
        self._admit(kind, write)
        strategy.prepare(write)
        found = metadata.validate(kind, new["metadata"])
        if old is not None:
            found += metadata.validate_update(new["metadata"], old["metadata"])
        found += strategy.validate(write)
        if found:
            raise problems.invalid(kind, name, found)
        denial = self._settings.webhook(new)
        if denial is not None:
            raise problems.denied(denial)

    def _admit(self, kind: kinds.Kind, write: strategies.Write) -> None:
        meta = write.new["metadata"]
        if not write.status and (why := self._strategy(kind).admit(write)):
            # The same each time that a controller tries.
            raise problems.forbidden(kind, meta.get("generateName") or meta.get("name", ""), why)

    def _strategy(self, kind: kinds.Kind, version: str = "") -> strategies.Strategy:
        if kind.custom is not None:
            return custom_kinds.strategy(kind.custom[version or kind.versions[0]])
        return self._settings.rules.get(kind.storage, strategies.PLAIN)

    def _surroundings(self, now: str) -> strategies.Surroundings:
        return strategies.Surroundings(
            now=now,
            minor=self._settings.minor,
            disabled_gates=self._settings.disabled_gates,
            expression_check=self._settings.expression_check,
            derivation_check=self._settings.derivation_check,
            namespace_labels=self.namespace_labels,
            others=self.store.items,
        )

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none where it does not exist."""
        body = self.store.get("namespaces", ("", name))
        return (body or {"metadata": {}})["metadata"].get("labels") or {}

    def now(self) -> str:
        """The time as objects show it, RFC 3339 with seconds."""
        return self._settings.clock().strftime("%Y-%m-%dT%H:%M:%SZ")


_NAMESPACE = next(kind for kind in kinds.KINDS if kind.resource == "namespaces")


def _as_written(kind: kinds.Kind, body: Json) -> Json:
    written: Json = schemas.as_written(catalog.stored_schema(kind), body)
    return written


def _counted(kind: kinds.Kind, body: Json) -> Json:
    """What `metadata.generation` counts changes of: of a custom resource without a subresource for
    its status that too.
    """
    left = ("metadata",) if kind.custom is not None and not kind.has_status else _UNCOUNTED
    return {key: value for key, value in body.items() if key not in left}


def _encode_position(key: store.Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _decode_position(text: str) -> store.Key:
    try:
        namespace, name = json.loads(base64.urlsafe_b64decode(text))
    except (binascii.Error, ValueError) as error:
        raise problems.bad_request(f"continue key is not valid: {error}") from error
    return str(namespace), str(name)
