"""The webhook that converts pods, as a process beside the nodes, and what makes it be asked.

It is what runs in a cluster, with a certificate of its own; only that it is reached at an address
of loopback, and not by a Service.
"""

import base64
import contextlib
import datetime as dt
import http.client
import json
import pathlib
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.kube import kube
from dra_driver.adapters.serving import certificates
from dra_driver.logic.converting import conversion
from dra_driver.sim.cluster import beside

Json = dict[str, Any]

LABEL, ENABLED = conversion.NAMESPACE
NAMESPACES = kube.Resource("", "v1", "namespaces", namespaced=False)
CONFIGURATIONS = kube.Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
LOOK_SECONDS = 0.05
_NAME = "dra-driver-webhook"
_PATH = "/convert"
_ADDRESS = "127.0.0.1"
_PROBE_SECONDS = 5.0
_SECONDS = 10
"""That the API server waits for an answer."""


class Converter:
    """`dra-driver webhook --convert`, for one cluster."""

    def __init__(
        self, directory: pathlib.Path, kubeconfig: pathlib.Path, client: kube.Client, driver: str
    ) -> None:
        """Nothing is started; `directory` is made."""
        self._directory = directory
        self._kubeconfig = kubeconfig
        self._client = client
        self._driver = driver
        self._process = beside.Process("webhook", directory / "webhook.log")
        self._authority = b""

    def start(self) -> None:
        """Start the process; nobody asks it before `wait_ready`."""
        self._directory.mkdir(mode=0o700, parents=True)
        kept = certificates.renew({}, (_ADDRESS,), dt.datetime.now(dt.UTC)).kept
        self._authority = kept[certificates.AUTHORITIES]
        for name in (certificates.CERTIFICATE, certificates.KEY):
            files.write(self._directory / name, kept[name].decode(), mode=0o600, durable=False)
        self._process.start(
            [
                *("webhook", "--convert"),
                *("--driver-name", self._driver, "--kubeconfig", str(self._kubeconfig)),
                *("--address", f"{_ADDRESS}:0", "--status-address", f"{_ADDRESS}:0"),
                *("--certificate-dir", str(self._directory), "--drain-seconds", "0"),
                *("--log-format", "json"),
            ]
        )

    def wait_ready(self, stop: threading.Event, deadline: float) -> bool:
        """Wait until it answers, and have it asked from then on; False where `stop` was set before.

        Raises:
            errors.Fatal: it has ended, or does not answer before `deadline` (monotonic seconds).
            errors.DriverError: the API server does not take its configuration.
        """
        while (ports := self._ports()) is None or not _answers(ports["status"]):
            self.check_alive()
            if stop.wait(LOOK_SECONDS):
                return False
            if time.monotonic() > deadline:
                raise errors.Fatal(
                    f"the webhook does not answer in time; {self._process.log_end()}"
                )
        self._client.create(CONFIGURATIONS, self._configuration(ports["reviews"]))
        return True

    def enable(self, namespaces: Iterable[str]) -> None:
        """Have the pods of these namespaces converted; those that do not exist are passed over.

        One that says itself whether its pods are converted is left as it is.
        """
        for name in sorted(set(namespaces)):
            with contextlib.suppress(kube.NotFound):
                labels = self._client.get(NAMESPACES, name)["metadata"].get("labels") or {}
                if LABEL not in labels:
                    labelled = {"metadata": {"labels": {LABEL: ENABLED}}}
                    self._client.patch(NAMESPACES, name, labelled)

    def check_alive(self) -> None:
        """Refuse to go on without it.

        Raises:
            errors.Fatal: it has ended; the text has the end of its log.
        """
        self._process.check_alive()

    def stop(self) -> None:
        """End it; one that does not end is killed."""
        self._process.stop()

    def _ports(self) -> Mapping[str, int] | None:
        """Where it listens, as it says when it begins; None before that."""
        for line in self._process.lines():
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and said.get("event") == "started":
                    return {name: int(said[name]) for name in ("reviews", "status")}
        return None

    def _configuration(self, port: int) -> Json:
        """As the chart has it, with an address in place of a Service."""
        label, value = conversion.IGNORED
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": _NAME},
            "webhooks": [
                {
                    "name": f"convert.{self._driver}",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {
                        "url": f"https://{_ADDRESS}:{port}{_PATH}",
                        "caBundle": base64.b64encode(self._authority).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                            "scope": "Namespaced",
                        }
                    ],
                    "namespaceSelector": {"matchLabels": {LABEL: ENABLED}},
                    "objectSelector": {
                        "matchExpressions": [{"key": label, "operator": "NotIn", "values": [value]}]
                    },
                    "failurePolicy": "Fail",
                    "matchPolicy": "Equivalent",
                    "reinvocationPolicy": "IfNeeded",
                    "sideEffects": "NoneOnDryRun",
                    "timeoutSeconds": _SECONDS,
                }
            ],
        }


def labelled(objects: Iterable[Json]) -> list[Json]:
    """The objects, in which namespaces that say nothing of it have their pods converted."""
    return [_labelled(body) if _is_namespace(body) else body for body in objects]


def _is_namespace(body: Json) -> bool:
    return (body["apiVersion"], body["kind"]) == ("v1", "Namespace")


def _labelled(body: Json) -> Json:
    metadata = body["metadata"]
    return body | {
        "metadata": metadata | {"labels": {LABEL: ENABLED} | (metadata.get("labels") or {})}
    }


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(_ADDRESS, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
