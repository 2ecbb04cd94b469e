"""Between the versions of a kind and the form in which it is stored.

Source: Kubernetes 1.36, `pkg/apis/resource/v1beta1/conversion.go`,
`pkg/apis/events/v1/conversion.go`.
"""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dra_driver.sim.api.kinds import kinds

Json = dict[str, Any]
Convert = Callable[[Json], None]

_EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)
_EVENT_FIELDS = MappingProxyType(
    {
        "involvedObject": "regarding",
        "message": "note",
        "reportingComponent": "reportingController",
        "source": "deprecatedSource",
        "firstTimestamp": "deprecatedFirstTimestamp",
        "lastTimestamp": "deprecatedLastTimestamp",
        "count": "deprecatedCount",
    }
)


def to_stored(kind: kinds.Kind, version: str, body: Json) -> Json:
    """The stored form of an object of `version`; `body` is changed."""
    up = _UP.get((kind.group, version, kind.kind))
    if up is not None:
        up(body)
    body["apiVersion"] = "v1" if kind.stored_as else kind.api_version(kind.versions[0])
    body["kind"] = kind.kind
    return body


def from_stored(kind: kinds.Kind, version: str, body: Json) -> Json:
    """An object of `version`; `body` is left as it is."""
    if version == kind.versions[0] and not kind.stored_as:
        return body
    down = _DOWN.get((kind.group, version, kind.kind))
    if down is not None:
        body = copy.deepcopy(body)
        down(body)
    return body | {"apiVersion": kind.api_version(version)}


def _requests_up(devices: Json) -> None:
    for request in devices.get("requests") or ():
        exactly = {name: request.pop(name) for name in _EXACT_FIELDS if name in request}
        if exactly or not request.get("firstAvailable"):
            request["exactly"] = exactly


def _requests_down(devices: Json) -> None:
    for request in devices.get("requests") or ():
        request.update(request.pop("exactly", {}))


def _claim_up(body: Json) -> None:
    _requests_up((body.get("spec") or {}).get("devices") or {})


def _claim_down(body: Json) -> None:
    _requests_down((body.get("spec") or {}).get("devices") or {})


def _template_up(body: Json) -> None:
    _claim_up(body.get("spec") or {})


def _template_down(body: Json) -> None:
    _claim_down(body.get("spec") or {})


def _slice_up(body: Json) -> None:
    for device in (body.get("spec") or {}).get("devices") or ():
        device.update(device.pop("basic", {}))


def _slice_down(body: Json) -> None:
    for device in (body.get("spec") or {}).get("devices") or ():
        basic = {name: device.pop(name) for name in list(device) if name != "name"}
        device["basic"] = basic


def _event_up(body: Json) -> None:
    _rename(body, {new: old for old, new in _EVENT_FIELDS.items()})


def _event_down(body: Json) -> None:
    _rename(body, _EVENT_FIELDS)


def _rename(body: Json, names: Mapping[str, str]) -> None:
    for old, new in names.items():
        if old in body:
            body[new] = body.pop(old)


_UP: Mapping[tuple[str, str, str], Convert] = MappingProxyType(
    {
        (kinds.RESOURCE_GROUP, "v1beta1", "ResourceClaim"): _claim_up,
        (kinds.RESOURCE_GROUP, "v1beta1", "ResourceClaimTemplate"): _template_up,
        (kinds.RESOURCE_GROUP, "v1beta1", "ResourceSlice"): _slice_up,
        ("events.k8s.io", "v1", "Event"): _event_up,
    }
)
_DOWN: Mapping[tuple[str, str, str], Convert] = MappingProxyType(
    {
        (kinds.RESOURCE_GROUP, "v1beta1", "ResourceClaim"): _claim_down,
        (kinds.RESOURCE_GROUP, "v1beta1", "ResourceClaimTemplate"): _template_down,
        (kinds.RESOURCE_GROUP, "v1beta1", "ResourceSlice"): _slice_down,
        ("events.k8s.io", "v1", "Event"): _event_down,
    }
)
