"""The HTTPS call of a webhook, with what goes wrong in the words of Kubernetes.

Sources: `k8s.io/apiserver/pkg/util/webhook/client.go`, `k8s.io/client-go/rest/request.go`
(transformResponse) and Go's `net`, `crypto/tls`.
"""

import base64
import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib import parse

from dra_driver import errors
from dra_driver.model import texts
from dra_driver.sim.api.storing import codecs

Json = dict[str, Any]

_LARGEST_ANSWER = 3 * 1024 * 1024
_CHUNK = 64 * 1024
_HTTPS = 443
_TEXTS: Mapping[int, str] = MappingProxyType(
    {
        404: "the server could not find the requested resource",
        429: "the server has received too many requests and has asked us to try again later",
        503: "the server is currently unable to handle the request",
        504: "the server was unable to return a response in the time allotted, but may still be "
        "processing the request",
    }
)


class CallError(errors.Rejected):
    """A webhook that has given no answer of which anything could be made."""


def url_of(client: Json, timeout: int) -> str:
    """Where a `clientConfig` says that the webhook is."""
    if service := client.get("service"):
        host, port = f"{service['name']}.{service['namespace']}.svc", service.get("port", _HTTPS)
        where = f"https://{host}:{port}{service.get('path') or '/'}"
    else:
        where = str(client["url"])
    return f"{where}?timeout={timeout}s"


def call(client: Json, review: Json, timeout: int) -> Any:
    """The JSON value that the webhook answers within `timeout` seconds.

    Raises:
        CallError: there is none.
    """
    url = url_of(client, timeout)
    deadline = time.monotonic() + timeout
    with _told(url):
        if service := client.get("service"):
            # No Service of this cluster is at any address.
            raise CallError(f'no endpoints available for service "{service["name"]}"')
        status, data = _answered(url, client.get("caBundle"), codecs.dumps(review), deadline)
    if status != http.HTTPStatus.OK:
        raise CallError(f"failed to call webhook: {_refusal(status, data)}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = f"couldn't get version/kind; json parse error: {error}"
        raise CallError(f"failed to call webhook: {texts.told(reason)}") from error


def _answered(url: str, bundle: str | None, body: bytes, deadline: float) -> tuple[int, bytes]:
    parts = parse.urlsplit(url)
    context = ssl.create_default_context()
    if bundle:
        context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    left = deadline - time.monotonic()
    connection = http.client.HTTPSConnection(
        str(parts.hostname), parts.port or _HTTPS, context=context, timeout=left
    )
    with contextlib.closing(connection):
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        path = f"{parts.path or '/'}?{parts.query}"
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        found = bytearray()
        while chunk := answer.read1(_CHUNK):
            found += chunk
            if len(found) > _LARGEST_ANSWER:
                raise CallError(f"the answer is larger than the {_LARGEST_ANSWER} bytes allowed")
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left)
        return answer.status, bytes(found)


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError, CallError) as error:
        reason = _reason(error, parse.urlsplit(url))
        raise CallError(f'failed to call webhook: Post "{url}": {reason}') from error


def _reason(error: Exception, parts: parse.SplitResult) -> str:
    place = f"{parts.hostname}:{parts.port or _HTTPS}"
    reasons: tuple[tuple[type[Exception], str], ...] = (
        (TimeoutError, "context deadline exceeded"),
        (ConnectionRefusedError, f"dial tcp {place}: connect: connection refused"),
        (socket.gaierror, f"dial tcp: lookup {parts.hostname}: no such host"),
        (http.client.RemoteDisconnected, "EOF"),
        (ConnectionResetError, f"read tcp {place}: read: connection reset by peer"),
    )
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {error.verify_message}"
    known = (text for kind, text in reasons if isinstance(error, kind))
    return next(known, "") or texts.told(str(error) or type(error).__name__)


def _refusal(status: int, data: bytes) -> str:
    """Of an answer that is no success: what it says as a Status, else what its code means."""
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(data)
        if isinstance(body, dict) and body.get("kind") == "Status" and body.get("message"):
            return texts.told(str(body["message"]))
    if status == http.HTTPStatus.INTERNAL_SERVER_ERROR:
        text = texts.told(data.decode(errors="replace").strip())
        return (
            f"an error on the server ({json.dumps(text)}) has prevented the request from succeeding"
        )
    return _TEXTS.get(status, "the server rejected our request for an unknown reason")
