"""Extended resources (`nvidia.com/gpu: 1`) that the scheduler serves with a claim of its own.

Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins/dynamicresources/
extendeddynamicresources.go`, without the order in which it names what init containers share.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""`true` on a claim that the scheduler made for a pod's extended resources."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: a resource that every class serves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Classes:
    """Which class serves which resource: by the name that it gives, and by its own."""

    explicit: Mapping[str, str]
    names: Collection[str]

    def of(self, resource: str) -> str | None:
        """The class for a resource; None if a device plugin has to serve it."""
        implicit = resource.removeprefix(IMPLICIT)
        if implicit != resource and implicit in self.names:
            return implicit
        return self.explicit.get(resource)


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What a container asks for, and the name of the claim's request that gives it."""

    container: str
    resource: str
    name: str
    count: int


def classes(bodies: Iterable[Json]) -> Classes:
    """The classes of a cluster; of two with one resource the newer counts, then the lower name."""
    listed = list(bodies)
    explicit: dict[str, str] = {}
    by_name = sorted(listed, key=lambda body: str(body["metadata"]["name"]), reverse=True)
    for body in sorted(by_name, key=_created):
        if resource := (body.get("spec") or {}).get("extendedResourceName"):
            explicit[resource] = body["metadata"]["name"]
    return Classes(explicit, {body["metadata"]["name"] for body in listed})


def needs(pod: Json) -> Mapping[str, int]:
    """What the containers of a pod need of each extended resource together.

    Init containers that end give back what they had; sidecars do not.
    """
    spec = pod.get("spec") or {}
    found: dict[str, int] = {}
    running: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        for resource, count in _amounts(container).items():
            peak = running.get(resource, 0) + count
            found[resource] = max(found.get(resource, 0), peak)
            if _is_sidecar(container):
                running[resource] = peak
    for container in spec.get("containers") or ():
        for resource, count in _amounts(container).items():
            running[resource] = running.get(resource, 0) + count
    return {
        resource: max(found.get(resource, 0), running.get(resource, 0))
        for resource in sorted({*found, *running})
    }


def used(pods: Iterable[Json], resource: str) -> int:
    """What pods have of a device plugin's resource: what no claim gives them."""
    return sum(needs(pod).get(resource, 0) for pod in pods if resource not in _by_claim(pod))


def claim_name(pod: Json) -> str | None:
    """The claim that was made for a pod; None as long as there is none."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return status.get("resourceClaimName")


def mappings(pod: Json, served_by: Classes) -> tuple[str, ...]:
    """Which container has, or would get, which request of the claim, in words."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    made = [
        (each["requestName"], each["resourceName"], each["containerName"])
        for each in status.get("requestMappings") or ()
    ]
    planned = [(one.name, one.resource, one.container) for one in _requests(pod, served_by, ())]
    return tuple(
        f"request {name} is {resource} of container {container}"
        for name, resource, container in made or sorted(planned)
    )


def claim(pod: Json, served_by: Classes, leave: Collection[str] = ()) -> Json | None:
    """The claim that the scheduler would make; None if no class serves what is asked for.

    `leave` are resources that the node's device plugin serves.
    """
    requests = sorted(_requests(pod, served_by, leave), key=lambda one: one.name)
    if not requests:
        return None
    metadata, name = pod["metadata"], f"{pod['metadata']['name']}-extended-resources-*"
    return {
        "metadata": {
            "namespace": metadata["namespace"],
            "name": name,
            "uid": f"not-created/{metadata['namespace']}/{name}",
            "annotations": {ANNOTATION: "true"},
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": one.name,
                        "exactly": {
                            "deviceClassName": served_by.of(one.resource),
                            "allocationMode": "ExactCount",
                            "count": one.count,
                        },
                    }
                    for one in requests
                ]
            }
        },
    }


def _requests(pod: Json, served_by: Classes, leave: Collection[str]) -> Iterator[Request]:
    spec = pod.get("spec") or {}
    init = list(spec.get("initContainers") or ())
    listed = [*init, *(spec.get("containers") or ())]
    for resource in sorted(needs(pod)):
        if resource in leave or served_by.of(resource) is None:
            continue
        lasting: list[tuple[int, Request]] = []
        passing: list[Request] = []
        for index, container in enumerate(listed):
            if index >= len(init) or _is_sidecar(container):
                lasting += [(index, one) for one in _request(container, index, resource, 0)]
        for index, container in enumerate(init):
            if not _is_sidecar(container):
                # What later containers get is free until they start.
                free = sum(one.count for at, one in lasting if at >= index)
                passing += _request(container, index, resource, free)
        yield from (one for _, one in lasting)
        # They run one after the other: the largest is enough for all.
        yield from sorted(passing, key=lambda one: -one.count)[:1]


def _request(container: Json, index: int, resource: str, free: int) -> Iterator[Request]:
    amounts = _requested(container)
    count = _count(amounts.get(resource)) - free
    if count > 0:
        place = sorted(amounts).index(resource)
        name = f"container-{index}-request-{place}"
        yield Request(container["name"], resource, name, count)


def _amounts(container: Json) -> dict[str, int]:
    found = {name: _count(text) for name, text in _requested(container).items() if "/" in name}
    return {name: count for name, count in found.items() if count}


def _requested(container: Json) -> dict[str, Any]:
    """As the API server completes it: what has a limit alone is requested, too."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _count(text: Any) -> int:
    """A whole number; 0 for what extended resources cannot be."""
    try:
        return int(str(text))
    except ValueError:
        return 0


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _by_claim(pod: Json) -> set[str]:
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {each["resourceName"] for each in status.get("requestMappings") or ()}


def _created(body: Json) -> str:
    return str(body["metadata"].get("creationTimestamp") or "")
