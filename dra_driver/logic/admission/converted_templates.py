"""The ResourceClaimTemplates that pods are given: what is written, and which one may be used."""

from collections.abc import Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.admission import admitted
from dra_driver.logic.converting import conversion
from dra_driver.model import quantities, texts

Json = dict[str, Any]


def body(template: conversion.Template, namespace: str, door: conversion.Door) -> Json:
    """The template as it is created."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": template.name,
            "namespace": namespace,
            "labels": {conversion.CONVERTED: str(door)},
        },
        "spec": {"spec": template.spec},
    }


def problem(
    stored: Json, template: conversion.Template, namespace: str, door: conversion.Door
) -> conversion.Problem | None:
    """Why a template of that name cannot be used; None if it is as it would be made."""
    where = _named(template, namespace)
    advice = "somebody else's has the name: delete it, or give it another name"
    label = admitted.record(_metadata(stored).get("labels")).get(conversion.CONVERTED)
    if label != door:
        return conversion.Problem(
            where,
            f"metadata.labels[{conversion.CONVERTED}]",
            "missing" if label is None else admitted.text(label)[:63],
            f"not {door}: {advice}",
        )
    written = admitted.record(stored.get("spec"))
    if _normal(written.get("spec")) != _normal(template.spec):
        return conversion.Problem(
            where, "spec.spec", "changed", f"not what the pod asks for: {advice}"
        )
    # All claims get what is there: labels that the quotas and policies of others look at.
    if added := [key for key, value in admitted.record(written.get("metadata")).items() if value]:
        return conversion.Problem(
            where, "spec.metadata", texts.quoted(added), f"claims are to have none of it: {advice}"
        )
    return None


def refused(template: conversion.Template, namespace: str, reason: str) -> conversion.Problem:
    """The problem where the API server, or a policy of the cluster, allows no such template."""
    return conversion.Problem(_named(template, namespace), "spec.spec", "refused", reason)


def _named(template: conversion.Template, namespace: str) -> str:
    return f"ResourceClaimTemplate {namespace}/{template.name}"


def _metadata(stored: Json) -> Mapping[str, Any]:
    return admitted.record(stored.get("metadata"))


def _normal(spec: object) -> object:
    """The spec of a claim with what the API server sets where nothing is said, amounts as numbers.

    Source of the defaults: Kubernetes 1.36, `resource/v1`, defaults.go.
    """
    devices = admitted.record(admitted.record(spec).get("devices"))
    requests = devices.get("requests")
    return {
        **admitted.record(spec),
        "devices": {
            **{key: value for key, value in devices.items() if value not in (None, [])},
            "requests": [_request(one) for one in requests] if isinstance(requests, list) else None,
        },
    }


def _request(request: object) -> object:
    found = {**admitted.record(request)}
    if "exactly" in found:
        found["exactly"] = _devices(found["exactly"])
    if isinstance(found.get("firstAvailable"), list):
        found["firstAvailable"] = [_devices(one) for one in found["firstAvailable"]]
    return found


def _devices(asked: object) -> object:
    found = {"allocationMode": "ExactCount", **admitted.record(asked)}
    if found["allocationMode"] == "ExactCount":
        found.setdefault("count", 1)
    amounts = admitted.record(admitted.record(found.get("capacity")).get("requests"))
    if amounts:
        found["capacity"] = {"requests": {name: _amount(one) for name, one in amounts.items()}}
    return found


def _amount(amount: object) -> object:
    try:
        return quantities.parse(str(amount)).amount
    except errors.Rejected:
        return amount
