"""Extended resources (`nvidia.com/gpu: 1`) that the scheduler serves with a claim of its own.

Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins/dynamicresources/
extendeddynamicresources.go`.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import quantities

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
class Use:
    """A request of the claim whose devices a container gets, for one of its resources."""

    container: str
    resource: str
    request: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Request:
    name: str
    resource: str
    count: int


def is_extended(resource: str) -> bool:
    """Not a resource of Kubernetes itself, but for the names that classes have without asking.

    Source: Kubernetes 1.36 `pkg/scheduler/util`, IsDRAExtendedResourceName.
    """
    if resource.startswith(IMPLICIT):
        return True
    native = "/" not in resource or "kubernetes.io/" in resource
    return not native and not resource.startswith("requests.")


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
    planned = [(one.request, one.resource, one.container) for one in uses(pod, served_by)]
    return tuple(
        f"request {name} is {resource} of container {container}"
        for name, resource, container in made or sorted(planned)
    )


def uses(pod: Json, served_by: Classes, leave: Collection[str] = ()) -> tuple[Use, ...]:
    """Which container gets what of the claim that `claim` gives, in the order of the pod's status.

    An init container that ends has what those after it get, and a request of its own for the rest.
    """
    return tuple(use for part in _parts(pod, served_by, leave) for use in part[1])


def requests_of(pod: Json, container: Json) -> tuple[str, ...]:
    """The requests of the pod's claim whose devices a container gets, by the pod's status.

    Source: Kubernetes 1.36 `pkg/kubelet/cm/dra/manager.go`, GetResources.
    """
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    amounts = _amounts(container)
    return tuple(
        each["requestName"]
        for each in status.get("requestMappings") or ()
        if each["containerName"] == container["name"] and each["resourceName"] in amounts
    )


def claim(pod: Json, served_by: Classes, leave: Collection[str] = ()) -> Json | None:
    """The claim that the scheduler would make; None if no class serves what is asked for.

    `leave` are resources that the node's device plugin serves.
    """
    parts = _parts(pod, served_by, leave)
    requests = sorted((one for part in parts for one in part[0]), key=lambda one: one.name)
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


_Part = tuple[Sequence[_Request], Sequence[Use]]
"""The requests for one resource, and who uses them."""


def _parts(pod: Json, served_by: Classes, leave: Collection[str]) -> Iterator[_Part]:
    for resource in needs(pod):
        if resource not in leave and served_by.of(resource) is not None:
            yield _part(pod.get("spec") or {}, resource)


def _part(spec: Json, resource: str) -> _Part:
    init = list(spec.get("initContainers") or ())
    listed = [*init, *(spec.get("containers") or ())]
    lasting: dict[int, _Request] = {}
    used: list[Use] = []
    for index, container in enumerate(listed):
        lasts = index >= len(init) or _is_sidecar(container)
        if lasts and (asked := _request(container, index, resource)) is not None:
            lasting[index] = asked
            used.append(Use(container["name"], resource, asked.name))
    passing: list[_Request] = []
    for index, container in enumerate(init):
        asked = None if _is_sidecar(container) else _request(container, index, resource)
        if asked is None:
            continue
        # What later containers get is free until they start.
        later = [one for at, one in lasting.items() if at >= index]
        lent, rest = _lent(later, asked.count)
        used += [Use(container["name"], resource, one.name) for one in lent]
        if rest:
            passing.append(dataclasses.replace(asked, count=rest))
            used.append(Use(container["name"], resource, asked.name))
    # They run one after the other: the largest is enough for all.
    most = max(passing, key=lambda one: one.count, default=None)
    own = {one.name for one in passing}
    if most is not None:
        used = [
            dataclasses.replace(use, request=most.name) if use.request in own else use
            for use in used
        ]
    return ([most] if most is not None else []) + list(lasting.values()), used


def _lent(later: Iterable[_Request], count: int) -> tuple[list[_Request], int]:
    """Of these requests those that `count` devices take, and how many devices they lack."""
    lent = []
    for one in later:
        if count <= 0:
            break
        lent.append(one)
        count -= one.count
    return lent, max(count, 0)


def _request(container: Json, index: int, resource: str) -> _Request | None:
    """What the container asks for of the resource, if it does."""
    count = _amounts(container).get(resource, 0)
    if not count:
        return None
    place = sorted(_requested(container)).index(resource)
    return _Request(f"container-{index}-request-{place}", resource, count)


def _amounts(container: Json) -> dict[str, int]:
    listed = _requested(container).items()
    found = {name: _count(text) for name, text in listed if is_extended(name)}
    return {name: count for name, count in found.items() if count}


def _requested(container: Json) -> dict[str, Any]:
    """As the API server completes it: what has a limit alone is requested, too."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _count(text: Any) -> int:
    """A whole number; 0 for what extended resources cannot be."""
    try:
        amount = quantities.parse(str(text)).exact
    except errors.Rejected:
        return 0
    return amount if isinstance(amount, int) and amount > 0 else 0


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _by_claim(pod: Json) -> set[str]:
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {each["resourceName"] for each in status.get("requestMappings") or ()}


def _created(body: Json) -> str:
    return str(body["metadata"].get("creationTimestamp") or "")
