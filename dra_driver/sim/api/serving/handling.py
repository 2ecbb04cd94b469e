"""From a request to its answer: finds the verb, runs it, and puts the result into words."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.sim.api.admitting import admitting, matching
from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import (
    binding,
    discovery,
    endpoints,
    pod_logs,
    protobuf,
    queries,
    representing,
    routing,
    scaling,
    warning_headers,
    watching,
)
from dra_driver.sim.api.storing import (
    applying,
    codecs,
    patching,
    registry,
    selectors,
    store,
)

Json = dict[str, Any]

_TEXT = "text/plain; charset=utf-8"
_DEFAULT_WATCH_SECONDS = 1800
_LARGEST_BODY = 3 * 1024 * 1024
_BODIES = (representing.JSON, "application/*", "*/*", "")


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    status: int
    body: bytes
    content_type: str = representing.JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class WatchReply:
    """An answer that goes on: lines made of the events of a stream."""

    stream: watching.Stream
    render: Callable[[watching.Event], bytes]
    timeout_seconds: float
    content_type: str = representing.JSON


Answer = Reply | WatchReply


class Handler:
    """Answers requests from a registry."""

    def __init__(
        self, objects: registry.Registry, *, git_version: str, pod_log: pod_logs.Source
    ) -> None:
        """A handler for the kinds of the registry; `pod_log` tells what containers write."""
        self._registry = objects
        self._pod_log = pod_log
        self._admission = admitting.Admission(objects)
        self._endpoints = endpoints.Endpoints(objects.table, git_version)
        self._minor = objects.table.minor
        self._verbs: Mapping[str, Callable[[routing.Request, routing.Target], Answer]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def resolve(self, request: routing.Request) -> routing.Target | None:
        """What the request is about; None if it is no resource.

        Raises:
            problems.ApiError: 404 or 405.
        """
        return routing.resolve(request, self._registry.table)

    def asks_others(self, request: routing.Request, target: routing.Target | None) -> bool:
        """Whether the answer may need that of a webhook, which takes its time, and asks back."""
        if target is None or target.subresource or len(request.body) > _LARGEST_BODY:
            return False
        # An apply may create.
        writes = target.verb in ("create", "patch")
        return writes and self._admission.concerns(target.kind, target.version)

    def handle(self, request: routing.Request, target: routing.Target | None) -> Answer:
        """The answer.

        Raises:
            problems.ApiError: The answer is a failure `Status`.
        """
        if len(request.body) > _LARGEST_BODY:
            raise problems.too_large(_LARGEST_BODY)
        if target is None:
            answer = self._endpoints.answer(request)
            if isinstance(answer, str):
                return Reply(200, answer.encode(), _TEXT)
            aggregated = answer.get("kind") == "APIGroupDiscoveryList"
            return Reply(
                200,
                codecs.dumps(answer),
                discovery.AGGREGATED if aggregated else representing.JSON,
            )
        if target.subresource == scaling.SUBRESOURCE:
            return Reply(200, codecs.dumps(scaling.answer(self._registry, request, target)))
        if pod_logs.is_log(target.kind, target.subresource):
            text = pod_logs.answer(self._registry, request, target, self._pod_log)
            return Reply(200, text.encode(), _TEXT)
        return self._verbs[target.verb](request, target)

    def _get(self, request: routing.Request, target: routing.Target) -> Reply:
        body = self._registry.get(target.kind, target.namespace, target.name)
        return _object(200, request, target, body)

    def _list(self, request: routing.Request, target: routing.Target) -> Reply:
        asked = queries.integer(request.query, "resourceVersion") or 0
        page = self._registry.select(
            target.kind,
            _selector(request, target, self._minor),
            limit=queries.integer(request.query, "limit") or 0,
            start=request.query.get("continue", ""),
        )
        if asked > page.version:
            raise problems.too_large_version(asked, page.version)
        return _page(request, target, page)

    def _watch(self, request: routing.Request, target: routing.Target) -> WatchReply:
        initial = request.flag("sendInitialEvents")
        bookmarks = request.flag("allowWatchBookmarks")
        plan = watching.Plan(
            resource=target.kind.storage,
            selector=_selector(request, target, self._minor),
            since=None if initial else queries.integer(request.query, "resourceVersion") or None,
            bookmarks=bookmarks,
            initial_events_end=initial and bookmarks,
        )
        form = representing.negotiate(request.accept)
        return WatchReply(
            watching.Stream(self._registry.store, plan),
            _EventLines(form, target, request.query.get("includeObject", "")),
            float(queries.integer(request.query, "timeoutSeconds") or _DEFAULT_WATCH_SECONDS),
            representing.content_type(form),
        )

    def _create(self, request: routing.Request, target: routing.Target) -> Reply:
        value = _object_body(request)
        if target.subresource == "binding":
            binding.bind(self._registry, target, value)
            return Reply(201, codecs.dumps(_success({})))
        if target.subresource or target.name:
            raise problems.method_not_allowed(target.kind, target.verb)
        decoded = self._decode(request, target, value)
        warnings = [*decoded.warnings]
        with problems.warned(warnings):
            body = self._created(request, target, decoded.body, warnings)
        return self._written(201, request, target, body, warnings)

    def _created(
        self, request: routing.Request, target: routing.Target, body: Json, warnings: list[str]
    ) -> Json:
        """The object as it is stored, after all webhooks."""
        dry_run = queries.dry_run(request)
        created = matching.Created(target.kind, target.version, target.namespace, body)
        admitted = self._admission.admit(created, warnings, dry_run=dry_run)
        return self._registry.create(
            target.kind, target.namespace, admitted, dry_run=dry_run, version=target.version
        )

    def _update(self, request: routing.Request, target: routing.Target) -> Reply:
        decoded = self._decode(request, target, _object_body(request))
        with problems.warned(decoded.warnings):
            body = self._registry.update(
                target.kind,
                (target.namespace, target.name),
                lambda _old: decoded.body,
                status=target.subresource == "status",
                dry_run=queries.dry_run(request),
                version=target.version,
            )
        return self._written(200, request, target, body, decoded.warnings)

    def _patch(self, request: routing.Request, target: routing.Target) -> Reply:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type not in patching.ACCEPTED:
            raise problems.unsupported_media_type(content_type, patching.ACCEPTED)
        patch = codecs.loads(request.body)
        warnings: list[str] = []

        def change(current: Json) -> Json:
            shown = codecs.encode(target.kind, target.version, current)
            if content_type == patching.APPLY_PATCH:
                changed = self._applied(request, target, shown, patch)
            else:
                changed = patching.apply(content_type, shown, patch)
            decoded = self._decode(request, target, changed)
            warnings.extend(decoded.warnings)
            return decoded.body

        key = (target.namespace, target.name)
        creates = content_type == patching.APPLY_PATCH and not target.subresource
        with problems.warned(warnings):
            if creates and self._registry.store.get(target.kind.storage, key) is None:
                empty = {"metadata": {"name": target.name}}
                body = self._created(request, target, change(empty), warnings)
                return self._written(201, request, target, body, warnings)
            body = self._registry.update(
                target.kind,
                key,
                change,
                status=target.subresource == "status",
                dry_run=queries.dry_run(request),
                version=target.version,
            )
        return self._written(200, request, target, body, warnings)

    def _written(
        self,
        status: int,
        request: routing.Request,
        target: routing.Target,
        body: Json,
        warnings: Sequence[str],
    ) -> Reply:
        warnings = [*warnings, *self._registry.warnings(target.kind, body)]
        return _object(status, request, target, body, warnings)

    def _applied(
        self, request: routing.Request, target: routing.Target, current: Json, patch: Any
    ) -> Json:
        manager = request.query.get("fieldManager", "")
        if not manager:
            raise problems.bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
                "is required for apply patch"
            )
        return applying.apply(
            current,
            codecs.fitted(
                target.kind,
                target.version,
                patch,
                field_validation=queries.field_validation(request),
                minor=self._minor,
            ),
            manager=manager,
            subresource=target.subresource,
            now=self._registry.now(),
        )

    def _delete(self, request: routing.Request, target: routing.Target) -> Reply:
        if target.subresource:
            raise problems.method_not_allowed(target.kind, target.verb)
        options = queries.deletion(request)
        body, gone = self._registry.delete(target.kind, (target.namespace, target.name), options)
        if gone and not target.kind.returns_deleted:
            details = {"name": target.name, "kind": target.kind.plural}
            if target.kind.group:
                details["group"] = target.kind.group
            details["uid"] = body["metadata"]["uid"]
            return Reply(200, codecs.dumps(_success(details)))
        return _object(200, request, target, body)

    def _delete_collection(self, request: routing.Request, target: routing.Target) -> Reply:
        options = queries.deletion(request)
        page = self._registry.select(target.kind, _selector(request, target, self._minor))
        for body in page.items:
            try:
                self._registry.delete(target.kind, store.key_of(body), options)
            except problems.ApiError as error:
                if error.problem.code != 404:  # An earlier deletion may have taken it along.
                    raise
        return _page(request, target, page)

    def _decode(
        self, request: routing.Request, target: routing.Target, value: Any
    ) -> codecs.Decoded:
        return codecs.decode(
            target.kind,
            target.version,
            value,
            field_validation=queries.field_validation(request),
            minor=self._minor,
        )


class _EventLines:
    """The lines of a watch; only the first table has column definitions."""

    def __init__(self, form: representing.Form, target: routing.Target, include: str) -> None:
        self._form = form
        self._target = target
        self._include = include
        self._heads = True

    def __call__(self, event: watching.Event) -> bytes:
        kind, version = self._target.kind, self._target.version
        if event.type == watching.BOOKMARK and self._form is representing.Form.OBJECT:
            body = {"kind": kind.kind, "apiVersion": kind.api_version(version)} | event.body
        else:
            body = representing.represent(
                self._form,
                kind,
                version,
                event.body,
                include=self._include,
                heads=self._heads,
            )
            self._heads = False
        return codecs.dumps({"type": event.type, "object": body}) + b"\n"


def _object(
    status: int,
    request: routing.Request,
    target: routing.Target,
    body: Json,
    warnings: Sequence[str] = (),
) -> Reply:
    form = representing.negotiate(request.accept)
    include = request.query.get("includeObject", "")
    shown = representing.represent(form, target.kind, target.version, body, include=include)
    content_type, headers = representing.content_type(form), warning_headers.made_of(warnings)
    return Reply(status, codecs.dumps(shown), content_type, headers)


def _page(request: routing.Request, target: routing.Target, page: registry.Page) -> Reply:
    metadata: Json = {"resourceVersion": str(page.version)}
    if page.next:
        metadata |= {"continue": page.next, "remainingItemCount": page.remaining}
    form = representing.negotiate(request.accept)
    shown = representing.represent_list(
        form,
        target.kind,
        target.version,
        page.items,
        metadata,
        include=request.query.get("includeObject", ""),
    )
    return Reply(200, codecs.dumps(shown), representing.content_type(form))


def _success(details: Json) -> Json:
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | {"details": details} if details else body


def _object_body(request: routing.Request) -> Any:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type == protobuf.MEDIA_TYPE:
        return protobuf.loads(request.body)
    if content_type not in _BODIES:
        raise problems.unsupported_media_type(content_type, (representing.JSON,))
    return codecs.loads(request.body)


def _selector(request: routing.Request, target: routing.Target, minor: int) -> selectors.Selector:
    fields = request.query.get("fieldSelector", "")
    if target.name:
        fields = ",".join(part for part in (f"metadata.name={target.name}", fields) if part)
    return selectors.parse(
        target.kind,
        namespace=target.namespace,
        labels=request.query.get("labelSelector", ""),
        fields=fields,
        minor=minor,
    )
