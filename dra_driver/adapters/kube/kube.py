"""The Kubernetes API: get, list, watch and write plain JSON objects.

Connection, TLS and credentials are the `kubernetes` package's; objects stay the JSON that the
server sent, so that no field is lost between reading and writing. There is no client-side rate
limit: the API server's own priority and fairness answers 429, which is a `Retryable` error here.
"""

import json
import pathlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlencode

import urllib3
import urllib3.exceptions

from dra_driver.adapters.kube import (
    kube_connection,
    kube_errors,
    kube_json,
    kube_pages,
    kube_resources,
)

Json = dict[str, Any]
Body = Json | list[Json]
"""What is sent: an object, or the operations of a JSON patch."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_DRY_RUN = {"dryRun": "All"}

REQUEST_TIMEOUT = 10.0
"""Seconds for one request. A prepare call has 45 s in all, so several tries fit."""
PAGE = 500
"""Objects in one answer to a list; the API's own clients take as many."""
WATCH_TIMEOUT = 300
"""Seconds after which the server ends a watch: one that hangs is noticed by then."""

selectors = kube_resources.selectors
Resource = kube_resources.Resource
NODES = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
PODS = Resource("", "v1", "pods")
EVENTS = Resource("", "v1", "events")
RESOURCE_GROUP = "resource.k8s.io"
SLICES = Resource(RESOURCE_GROUP, "v1", "resourceslices", namespaced=False)
CLAIMS = Resource(RESOURCE_GROUP, "v1", "resourceclaims")
TEMPLATES = Resource(RESOURCE_GROUP, "v1", "resourceclaimtemplates")
CLASSES = Resource(RESOURCE_GROUP, "v1", "deviceclasses", namespaced=False)
TAINT_RULES = Resource(RESOURCE_GROUP, "v1", "devicetaintrules", namespaced=False)

ApiError = kube_errors.ApiError
NotFound = kube_errors.NotFound
Conflict = kube_errors.Conflict
Gone = kube_errors.Gone
Forbidden = kube_errors.Forbidden
Refused = kube_errors.Refused
Unavailable = kube_errors.Unavailable


class Watch:
    """A running watch: iterate for (type, object); `stop` ends it from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, request: str) -> None:
        self._response = response
        self._request = request
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Events until the server ends the watch, or it is stopped.

        Raises:
            Gone: the resource version is too old.
            Unavailable: the connection broke.
        """
        try:
            for event in self._events():
                if self._stopped.is_set():
                    return
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise kube_errors.refusal(self._request, status.get("code", 500), status)
                yield event["type"], event["object"]
        except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            if not self._stopped.is_set():
                raise Unavailable(self._request, 0, "watch broke", str(error)) from error
        finally:
            self._response.close()

    def _events(self) -> Iterator[Json]:
        pending = b""
        for chunk in self._response.stream(64 * 1024):
            *lines, pending = (pending + chunk).split(b"\n")
            yield from (kube_json.read(line) for line in lines if line.strip())

    def stop(self) -> None:
        """End the watch; a thread that is reading it wakes up."""
        self._stopped.set()
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            # The watch has ended by itself; there is nothing left to wake.
            return


class Client:
    """A connection to one API server. Threads may share it."""

    def __init__(
        self,
        *,
        kubeconfig: pathlib.Path | None = None,
        user_agent: str,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        """Connect as `kubeconfig` says, or with the pod's service account where it is None.

        `timeout` are seconds for a request that says nothing else.

        Raises:
            errors.Fatal: neither works.
        """
        self._configuration = kube_connection.configuration(kubeconfig)
        self._host = self._configuration.host.rstrip("/")
        self._pool = kube_connection.pool(self._configuration)
        self._user_agent = user_agent
        self._timeout = timeout

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        timeout: float | None = None,
    ) -> Json:
        """One object, within `timeout` seconds."""
        return self._call("GET", resource.path(namespace, name), timeout=timeout)

    def get_path(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> Json:
        """What a path that is no object answers, for example `/version` or `/apis/GROUP`."""
        return self._call("GET", path, query=query, accept=accept, timeout=timeout)

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> tuple[list[Json], str]:
        """All objects that match, and the resource version from which to watch on.

        They are as they were at one moment: pages that no longer fit together are not put together.
        """
        query, path = selectors(field_selector, label_selector), resource.path(namespace)
        try:
            return kube_pages.collect(self._call, path, query | {"limit": str(PAGE)})
        except Gone:
            # The moment of the first page was forgotten before the last; one answer has no seams.
            return kube_pages.collect(self._call, path, query)

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> Watch:
        """Changes after `resource_version`, bookmarks included."""
        query = selectors(field_selector, label_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_TIMEOUT),
        }
        path = resource.path(namespace)
        request = f"watch {path}"
        response = self._request("GET", path, query=query, timeout=WATCH_TIMEOUT + 15)
        if response.status >= 400:
            raise _refusal(response, request)
        return Watch(response, request)

    def create(
        self,
        resource: Resource,
        body: Json,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Json:
        """The object as the server made it, or would make it."""
        path, query = resource.path(namespace), _DRY_RUN if dry_run else None
        return self._call("POST", path, body=body, query=query)

    def replace(
        self,
        resource: Resource,
        body: Json,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """PUT: fails with Conflict unless the resource version is the current one.

        Gives the object as the server made it, or would make it.
        """
        path = _sub(resource.path(namespace, body["metadata"]["name"]), subresource)
        return self._call("PUT", path, body=body, query=_DRY_RUN if dry_run else None)

    def replace_status(self, resource: Resource, body: Json, namespace: str | None = None) -> Json:
        """PUT of the status alone."""
        return self.replace(resource, body, namespace, subresource="status")

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Body,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        kind: str = MERGE_PATCH,
    ) -> Json:
        """PATCH with a merge patch, or the kind that is named."""
        path = _sub(resource.path(namespace, name), subresource)
        return self._call("PATCH", path, body=patch, content_type=kind)

    def apply(
        self,
        resource: Resource,
        body: Json,
        namespace: str | None = None,
        *,
        manager: str,
        subresource: str | None = None,
        timeout: float | None = None,
    ) -> Json:
        """Server-side apply: `body` is all that `manager` wants of the object, whoever else does.

        What it applied earlier and does not any more is removed. A UID or resource version in
        `body` has to be the current one.
        """
        path = _sub(resource.path(namespace, body["metadata"]["name"]), subresource)
        query = {"fieldManager": manager, "force": "true"}
        options: Json = {"query": query, "content_type": _APPLY_PATCH, "timeout": timeout}
        return self._call("PATCH", path, body=body, **options)

    def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: Json, namespace: str
    ) -> Json:
        """POST to a subresource, for example `pods/NAME/binding`."""
        return self._call("POST", _sub(resource.path(namespace, name), subresource), body=body)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period: int | None = None,
    ) -> None:
        """DELETE, only if it is still that UID and version where they are given."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if grace_period is not None:
            body["gracePeriodSeconds"] = grace_period
        self._call("DELETE", resource.path(namespace, name), body=body)

    def delete_collection(
        self, resource: Resource, namespace: str | None = None, *, field_selector: str
    ) -> None:
        """DELETE of all objects that match."""
        self._call("DELETE", resource.path(namespace), query=selectors(field_selector, None))

    def _call(self, method: str, path: str, **options: Any) -> Json:
        """The object that is answered; `options` are those of `_request`."""
        response = self._request(method, path, **options)
        if response.status >= 400:
            raise _refusal(response, f"{method} {path}")
        return _status(response, f"{method} {path}")

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        timeout = self._timeout if timeout is None else timeout
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        settings: Any = self._configuration.auth_settings()
        headers |= {setting["key"]: setting["value"] for setting in settings.values()}
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._host + path + (f"?{urlencode(query)}" if query else "")
        try:
            response: urllib3.BaseHTTPResponse = self._pool.request(
                method,
                url,
                headers=headers,
                body=None if body is None else json.dumps(body).encode(),
                timeout=urllib3.Timeout(connect=min(REQUEST_TIMEOUT, timeout), read=timeout),
                preload_content=False,
                # A kept-alive connection that the server closed meanwhile is tried once more;
                # only a request that changes nothing may be sent twice.
                retries=_OnceMore(
                    1,
                    allowed_methods={"GET"},
                    raise_on_status=False,
                    # How long to wait is the caller's business: it has a deadline.
                    respect_retry_after_header=False,
                ),
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"{method} {path}", 0, "no answer", str(error)) from error
        return response


class _OnceMore(urllib3.Retry):
    """Retries what broke, but not what took too long: the time is up then."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: urllib3.BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        """The retries that are left; raises the error where there are none."""
        if isinstance(error, urllib3.exceptions.TimeoutError):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)


def served_versions(client: Client, group: str, *, timeout: float | None = None) -> tuple[str, ...]:
    """The versions of an API group that the server offers; empty where the group is absent."""
    try:
        body = client.get_path(f"/apis/{group}", timeout=timeout)
    except NotFound:
        return ()
    return tuple(item["version"] for item in body.get("versions") or ())


def _sub(path: str, subresource: str | None) -> str:
    return f"{path}/{subresource}" if subresource else path


def _refusal(response: urllib3.BaseHTTPResponse, request: str) -> ApiError:
    asked = response.headers.get("Retry-After")
    document = _status(response, request)
    return kube_errors.refusal(request, response.status, document, retry_after=asked)


def _status(response: urllib3.BaseHTTPResponse, request: str) -> Json:
    """The JSON body; the plain text of a proxy's error becomes the message of a Status."""
    try:
        data = response.read()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(request, 0, "connection broke", str(error)) from error
    finally:
        response.release_conn()
    try:
        document = kube_json.read(data)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    text = data[:300].decode(errors="replace")
    if response.status < 400:
        raise Unavailable(request, response.status, "not an object", text or "no message")
    return {"reason": "Unknown", "message": text}
