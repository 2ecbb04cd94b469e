"""Events of core/v1: what `kubectl describe` and `kubectl events` show of an object."""

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

from dra_driver.model import texts

NORMAL, WARNING = "Normal", "Warning"
MOST_MESSAGE = 1024
"""Bytes of a message; source: Kubernetes 1.36, `pkg/apis/core/validation/events.go`."""
_MOST_NAME = 253
_OF_NO_NAMESPACE = "default"
"""Where events of objects are that are in no namespace."""

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    @property
    def place(self) -> str:
        """The namespace of its events."""
        return self.namespace or _OF_NO_NAMESPACE


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """What an event says, `count` times from `first` to `last` (RFC 3339, UTC, seconds)."""

    type: str
    reason: str
    message: str
    first: str
    last: str
    count: int = 1


def body(about: About, said: Said, component: str, distinct: Iterable[str]) -> Json:
    """The event. Its name is the same for the same object and the same `distinct` texts."""
    digest = hashlib.sha256("\0".join((about.uid, *distinct)).encode()).hexdigest()[:16]
    involved = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "uid": about.uid,
    }
    if about.namespace:
        involved["namespace"] = about.namespace
    beginning = about.name[: _MOST_NAME - len(digest) - 1].rstrip("-.")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{beginning}.{digest}", "namespace": about.place},
        "involvedObject": involved,
        "type": said.type,
        "reason": said.reason,
        "message": texts.told(said.message, MOST_MESSAGE),
        "count": said.count,
        "firstTimestamp": said.first,
        "lastTimestamp": said.last,
        "source": {"component": component},
        "reportingComponent": component,
    }
