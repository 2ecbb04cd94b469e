"""A client for the embedded API that hides nothing, and objects to send with it."""

import contextlib
import dataclasses
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self
from urllib import parse

import urllib3

from dra_driver.sim.api.serving import server

Json = dict[str, Any]

NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
RESOURCE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
CLASSES = f"{RESOURCE}/deviceclasses"
SLICES = f"{RESOURCE}/resourceslices"

DEADLINE = 60.0
"""Seconds until a wait for something that must happen is given up."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """A status code, the JSON body, and the headers."""

    status: int
    body: Any
    headers: Any

    @property
    def causes(self) -> list[str]:
        """`field: message` of each cause of a failure."""
        details = self.body.get("details") or {}
        return [f"{item['field']}: {item['message']}" for item in details.get("causes") or ()]


class Api:
    """A running server and a connection to it."""

    def __init__(self, **options: Any) -> None:
        self.server = server.ApiServer(server.Options(**options))
        self._http = urllib3.PoolManager(retries=False, timeout=DEADLINE)

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._http.clear()
        self.server.stop()

    def send(
        self, method: str, path: str, body: Any = None, *, headers: Json | None = None, **query: Any
    ) -> Answer:
        """One request; `content_type` in the query is the header."""
        sent = {"content-type": query.pop("content_type", "application/json"), **(headers or {})}
        response = self._http.request(
            method,
            f"{self.server.url}{path}?{parse.urlencode(query)}",
            body=None if body is None else json.dumps(body),
            headers=sent,
        )
        is_json = response.headers["content-type"].startswith("application/json")
        return Answer(
            response.status,
            json.loads(response.data) if is_json else response.data.decode(),
            response.headers,
        )

    def get(self, path: str, **query: Any) -> Json:
        """What is there."""
        return _good(self.send("GET", path, **query), 200)

    def create(self, path: str, body: Json, **query: Any) -> Json:
        """What was made of it."""
        return _good(self.send("POST", path, body, **query), 201)

    def put(self, path: str, body: Json, **query: Any) -> Json:
        """What was made of it."""
        return _good(self.send("PUT", path, body, **query), 200)

    def patch(self, path: str, body: Any, kind: str = "merge-patch+json", **query: Any) -> Json:
        """What was made of it."""
        content_type = f"application/{kind}"
        answer = self.send("PATCH", path, body, content_type=content_type, **query)
        assert answer.status in (200, 201), answer
        return answer.body

    def delete(self, path: str, body: Json | None = None, **query: Any) -> Json:
        """The answer to a deletion that is carried out."""
        return _good(self.send("DELETE", path, body, **query), 200)

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        return self.send("GET", path).status == 200

    def names(self, path: str, **query: Any) -> list[str]:
        """The names in a list, in its order."""
        return [item["metadata"]["name"] for item in self.get(path, **query)["items"]]

    @contextlib.contextmanager
    def watch(self, path: str, *, headers: Json | None = None, **query: Any) -> "Iterator[Watched]":
        """A watch that is open inside the block."""
        query = {"watch": "true", **query}
        response = self._http.request(
            "GET",
            self.server.url + path,
            fields=query,
            headers=headers or {},
            preload_content=False,
            timeout=urllib3.Timeout(connect=DEADLINE, read=None),
        )
        watched = Watched(response)
        try:
            yield watched
        finally:
            watched.close()


class Watched:
    """The events of a watch, as they come."""

    def __init__(self, response: Any) -> None:
        self.status = response.status
        self._response = response
        self._events: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="watch")
        self._reader.start()

    def _read(self) -> None:
        rest = b""
        try:
            for part in self._response.stream(amt=None):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    self._events.put(json.loads(line))
        except (urllib3.exceptions.HTTPError, ValueError, AttributeError, OSError):
            pass  # Closed from this side.
        self._events.put(None)

    def next(self) -> Json:
        """The next event."""
        event = self._events.get(timeout=DEADLINE)
        assert event is not None, "the watch has ended"
        return event

    def take(self, count: int) -> list[tuple[str, str]]:
        """Type and object name of the next events."""
        events = [self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    def ends(self) -> bool:
        """Whether nothing more comes, and the stream is over."""
        return self._events.get(timeout=DEADLINE) is None

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(RuntimeError, OSError):  # The stream has ended by itself.
            self._response.shutdown()
        self._reader.join(DEADLINE)
        self._response.close()


def _good(answer: Answer, status: int) -> Any:
    assert answer.status == status, answer
    return answer.body


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` answers, as soon as it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"did not come: {what}"
        time.sleep(0.01)
    return answer


def changed(body: Json, path: str, value: Any) -> Json:
    """A copy of the object with another value at a dotted path; None takes the field away.

    Steps that are numbers are places in lists.
    """
    copy: Json = json.loads(json.dumps(body))
    *steps, last = path.split(".")
    place: Any = copy
    for step in steps:
        place = place[int(step)] if step.isdigit() else place.setdefault(step, {})
    if value is None:
        place.pop(last, None)
    elif last.isdigit():
        place[int(last)] = value
    else:
        place[last] = value
    return copy


def node(name: str = "node-1") -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def config_map(name: str = "settings", **data: str) -> Json:
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return body | {"data": data} if data else body


def pod(name: str = "train", **spec: Any) -> Json:
    container = {"name": "main", "image": "busybox:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def claim_spec(**devices: Any) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {"devices": {"requests": [request], **devices}}


def claim(name: str = "mine", spec: Json | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": spec or claim_spec(),
    }


def template(name: str = "one", spec: Json | None = None) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec or claim_spec()},
    }


def device_class(name: str = "gpu.nvidia.com", **spec: Any) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def device(name: str = "gpu-0", **fields: Any) -> Json:
    return {"name": name, "attributes": {"model": {"string": "H100"}}, **fields}


def resource_slice(name: str = "node-1-gpus", *devices: Json, **spec: Any) -> Json:
    body: Json = {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
        "devices": list(devices) or [device()],
        **spec,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {key: value for key, value in body.items() if value is not None},
    }


def result(device_name: str = "gpu-0", **fields: Any) -> Json:
    return {
        "request": "gpu",
        "driver": "gpu.nvidia.com",
        "pool": "node-1",
        "device": device_name,
        **fields,
    }


def allocation(*results: Json, **fields: Any) -> Json:
    return {"devices": {"results": list(results) or [result()]}, **fields}


def owned_by(owner: Json) -> list[Json]:
    """The ownerReferences of a dependent."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
