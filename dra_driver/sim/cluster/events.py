"""Events: what the embedded cluster tells of an object, as `kubectl describe` shows it."""

import datetime as dt
import time
from typing import Any

from dra_driver import telemetry
from dra_driver.adapters.kube import kube

Json = dict[str, Any]


class Recorder:
    """Records events of one component. The same again only raises the count."""

    def __init__(self, client: kube.Client, component: str) -> None:
        self._client = client
        self._component = component
        self._known: dict[tuple[str, str, str], Json] = {}
        self._log = telemetry.logger("events")

    def record(self, about: Json, kind: str, reason: str, message: str) -> None:
        """Record an event of `kind` Normal or Warning; a failure to do so is only logged."""
        metadata = about["metadata"]
        key = metadata["uid"], reason, message
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        known = self._known.get(key)
        namespace = metadata.get("namespace", "default")
        try:
            if known is not None:
                known["count"] += 1
                change = {"count": known["count"], "lastTimestamp": now}
                self._client.patch(kube.EVENTS, known["metadata"]["name"], change, namespace)
                return
            self._known[key] = self._client.create(
                kube.EVENTS, self._body(about, kind, reason, message, now), namespace
            )
        except kube.ApiError as error:
            self._log.debug("event not recorded", reason=str(error))

    def _body(self, about: Json, kind: str, reason: str, message: str, now: str) -> Json:
        metadata = about["metadata"]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            # kube-scheduler's and kubelet's way; a generateName must not end with a dot.
            "metadata": {"name": f"{metadata['name']}.{time.time_ns():x}"},
            "involvedObject": {
                "apiVersion": about.get("apiVersion", "v1"),
                "kind": about.get("kind", "Pod"),
                "namespace": metadata.get("namespace"),
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }
