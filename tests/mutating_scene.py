"""Admission webhooks that do what a test tells them, and configurations that name them."""

import base64
import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import trustme

from dra_driver.adapters.kube import kube

Json = dict[str, Any]
CONFIGURATIONS = kube.Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
NAMESPACES = kube.Resource("", "v1", "namespaces", namespaced=False)
LABEL = "dra-driver.dev/convert"

Say = Callable[[Json], Json]
"""From the request of a review to the response, without its UID."""


def allow(_request: Json) -> Json:
    return {"allowed": True}


def patch(*operations: Json) -> Say:
    """Allows with these operations of a JSON patch."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def annotate(name: str, value: str) -> Say:
    """Puts an annotation on what has some already."""
    return patch({"op": "add", "path": f"/metadata/annotations/{name}", "value": value})


class Hook:
    """A webhook over TLS; `seen` are the requests of its reviews, `paths` those of HTTP."""

    def __init__(self, say: Say = allow) -> None:
        self.say = say
        self.answer: Callable[[Json], tuple[int, bytes]] = self._answer
        self.seen: list[Json] = []
        self.paths: list[str] = []
        self._authority = trustme.CA()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def _answer(self, review: Json) -> tuple[int, bytes]:
        response = {"uid": review["request"]["uid"]} | self.say(review["request"])
        said = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        return 200, json.dumps(said).encode()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.seen.append(review["request"])
                hook.paths.append(self.path)
                status, body = hook.answer(review)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    @property
    def client_config(self) -> Json:
        bundle = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        port = self._server.server_address[1]
        return {"url": f"https://127.0.0.1:{port}/convert", "caBundle": bundle}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(*says: Say) -> Iterator[list[Hook]]:
    hooks = [Hook(say) for say in says]
    try:
        yield hooks
    finally:
        for hook in hooks:
            hook.close()


def rule(**changes: Any) -> Json:
    """One for pods that are created."""
    usual = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
    }
    return usual | changes


def entry(client_config: Json, name: str = "convert.example.com", **changes: Any) -> Json:
    """A webhook of a configuration, for pods."""
    usual = {
        "name": name,
        "clientConfig": client_config,
        "rules": [rule()],
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    return usual | changes


def configuration(*entries: Json, name: str = "hooks") -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(entries),
    }


def pod(name: str = "train", **metadata: Any) -> Json:
    named = {"name": name, "annotations": {"some": "thing"}} | metadata
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": named,
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }
