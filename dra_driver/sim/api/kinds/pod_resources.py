"""Rules for extended resources: what containers ask for, and the claim that gives it.

Source: Kubernetes 1.36, `pkg/apis/core/validation/validation.go`: ValidateResourceRequirements,
validatePodExtendedResourceClaimStatus.
"""

from typing import Any

from dra_driver.model import quantities
from dra_driver.sim.api.kinds import fields, metadata, syntax

Json = dict[str, Any]

STATUS = "extendedResourceClaimStatus"

_NO_CONTAINER = (
    "must match the name of an entry in spec.initContainers.name or spec.containers.name"
)
_NO_RESOURCE = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests "
    "or spec.containers.resources.requests"
)


def amount_errors(resources: Json, path: str) -> fields.Errors:
    """What is wrong with a container's amounts of extended resources; of others nothing is said."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found = []
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            if not _native(name):
                found += _amount(name, text, f"{path}.{kind}[{name}]")
    for name, text in requests.items():
        if _native(name):
            continue
        if name not in limits:
            detail = "Limit must be set for non overcommitable resources"
            found.append(fields.required(f"{path}.limits", detail))
        elif (asked := _parsed(text)) != (limit := _parsed(limits[name])):
            detail = f"must be equal to {name} limit of {limit}"
            found.append(fields.invalid(f"{path}.requests", str(asked), detail))
    return found


def status_errors(pod: Json) -> fields.Errors:
    """What is wrong with the status that tells of the pod's claim, if there is one."""
    status = (pod.get("status") or {}).get(STATUS)
    if status is None:
        return []
    path = f"status.{STATUS}"
    spec = pod.get("spec") or {}
    containers = {
        container.get("name"): container
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or ()
    }
    mappings, place = status.get("requestMappings") or (), f"{path}.requestMappings"
    found = [] if mappings else [fields.required(place, "at least one request mapping is required")]
    seen = set()
    for index, mapping in enumerate(mappings):
        where = f"{place}[{index}]"
        found += _mapping(mapping, containers, where)
        request = mapping.get("requestName") or ""
        # The path is that of Kubernetes, without the mapping.
        texts = metadata.label_problems(request)
        found += [fields.invalid(f"{path}.requestName", request, text) for text in texts]
        names = ("containerName", "resourceName", "requestName")
        if (key := tuple(mapping.get(name) for name in names)) in seen:
            found += [fields.duplicate(f"{where}.{name}", mapping.get(name)) for name in names]
        seen.add(key)
    name = status.get("resourceClaimName")
    return found + (
        syntax.subdomain(name, f"{path}.resourceClaimName")
        if name
        else [fields.required(f"{path}.resourceClaimName")]
    )


def _mapping(mapping: Json, containers: dict[Any, Json], where: str) -> fields.Errors:
    container = containers.get(mapping.get("containerName"))
    if container is None:
        name = mapping.get("containerName") or ""
        return [fields.invalid(f"{where}.containerName", name, _NO_CONTAINER)]
    resource = mapping.get("resourceName") or ""
    if resource in ((container.get("resources") or {}).get("requests") or {}):
        return []
    return [fields.invalid(f"{where}.resourceName", resource, _NO_RESOURCE)]


def _native(resource: str) -> bool:
    return "/" not in resource or "kubernetes.io/" in resource


def _amount(name: str, text: Any, path: str) -> fields.Errors:
    if syntax.extended_resource(name, path):
        return [fields.invalid(path, name, "doesn't follow extended resource name standard")]
    amount = _parsed(text)
    if amount.amount < 0:
        return [fields.invalid(path, str(amount), "must be greater than or equal to 0")]
    if amount.amount.denominator != 1:
        return [fields.invalid(path, str(amount), "must be an integer")]
    return []


def _parsed(text: Any) -> quantities.Quantity:
    return quantities.parse(str(text))
