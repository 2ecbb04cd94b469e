"""AdmissionReviews as an API server sends them, of each kind and version, and their answers."""

import dataclasses
import http.client
import json
import socket
import ssl
from typing import Any, Self

from dra_driver.logic.admission import admitted

Json = dict[str, Any]

DRIVER = "gpu.nvidia.com"
KINDS = {
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "deviceclasses": "DeviceClass",
}
EVERYWHERE = [(resource, version) for resource in KINDS for version in admitted.VERSIONS]
"""Every kind in every version."""


def config(parameters: object, *requests: str, driver: str = DRIVER) -> Json:
    """An entry of `config`."""
    entry: Json = {"opaque": {"driver": driver, "parameters": parameters}}
    return entry | ({"requests": list(requests)} if requests else {})


def request(name: str, device_class: str = DRIVER, **fields: Any) -> Json:
    """A request as v1 has it; with `firstAvailable` its alternatives."""
    if "firstAvailable" in fields:
        return {"name": name, **fields}
    return {"name": name, "exactly": {"deviceClassName": device_class, **fields}}


def selector(expression: str) -> list[Json]:
    return [{"cel": {"expression": expression}}]


def made(
    resource: str,
    version: str = "v1",
    *,
    configs: list[Json] | None = None,
    requests: list[Json] | None = None,
    selectors: list[Json] | None = None,
    constraints: list[Json] | None = None,
    name: str = "some",
) -> Json:
    """An object of the kind, in the shape of the version."""
    body: Json = {"apiVersion": f"resource.k8s.io/{version}", "kind": KINDS[resource]}
    body["metadata"] = {"name": name}
    if resource == "deviceclasses":
        return body | {"spec": {"config": configs or [], "selectors": selectors or []}}
    asked = [request("gpu")] if requests is None else requests
    if version == "v1beta1":
        asked = [one.get("exactly", {}) | {"name": one["name"]} | _rest(one) for one in asked]
    spec: Json = {"devices": {"requests": asked, "config": configs or []}}
    if constraints:
        spec["devices"]["constraints"] = constraints
    return body | {"spec": spec if resource == "resourceclaims" else {"spec": spec}}


def _rest(one: Json) -> Json:
    return {key: value for key, value in one.items() if key != "exactly"}


def root(resource: str) -> str:
    """Where the configs are."""
    return {
        "resourceclaims": "spec.devices",
        "resourceclaimtemplates": "spec.spec.devices",
        "deviceclasses": "spec",
    }[resource]


def review(resource: str, version: str = "v1", body: Json | None = None, **changes: Any) -> Json:
    """The review of the creation of an object, or what `changes` make of it."""
    asked = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "resource.k8s.io", "version": version, "kind": KINDS.get(resource, "")},
        "resource": {"group": "resource.k8s.io", "version": version, "resource": resource},
        "name": "some",
        "operation": "CREATE",
        "userInfo": {"username": "someone"},
        "object": made(resource, version) if body is None else body,
        "oldObject": None,
        "dryRun": False,
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": asked | changes,
    }


@dataclasses.dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def response(self) -> Json:
        """The answer to the review."""
        assert self.status == 200, self.body
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert (document["apiVersion"], document["kind"]) == (
            "admission.k8s.io/v1",
            "AdmissionReview",
        )
        response: Json = document["response"]
        return response


class Client:
    """Speaks HTTPS as an API server does: it trusts one authority and expects one name."""

    def __init__(self, port: int, authorities: bytes, name: str) -> None:
        self._context = ssl.create_default_context(cadata=authorities.decode())
        self._name = name
        self._port = port
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60)
        # The name of the Service, wherever it leads to.
        plain = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock = self._context.wrap_socket(plain, server_hostname=self._name)
        return connection

    @property
    def certificate(self) -> bytes:
        """The certificate that the server showed on this connection, DER."""
        found = self._connection.sock.getpeercert(binary_form=True)
        assert found is not None
        return found

    @property
    def protocol(self) -> str | None:
        return self._connection.sock.version()

    def send(
        self,
        body: bytes,
        *,
        path: str = "/validate?timeout=5s",
        content_type: str = "application/json",
        method: str = "POST",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        all_headers = {"Content-Type": content_type} | (headers or {})
        self._connection.request(method, path, body=body, headers=all_headers)
        answer = self._connection.getresponse()
        given = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, given, answer.read())

    def ask(self, document: object) -> Json:
        """What is answered to a review."""
        return self.send(json.dumps(document).encode()).response

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
