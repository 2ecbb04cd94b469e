"""The subresource `log` of pods: what a container has written, as text.

There is neither an earlier container's log nor a part of one, and nobody waits for more. Source:
Kubernetes 1.36, `pkg/registry/core/pod/strategy.go` (LogLocation), `pkg/apis/core/types.go`
(PodLogOptions).
"""

from collections.abc import Callable

from dra_driver.sim.api.kinds import kinds, problems
from dra_driver.sim.api.serving import routing
from dra_driver.sim.api.storing import registry

SUBRESOURCE = "log"

Source = Callable[[str, str], str | None]
"""What a container of a pod has written, by the pod's UID and the container's name; None: it has
not been started, as far as anybody knows."""


def answer(
    objects: registry.Registry, request: routing.Request, target: routing.Target, source: Source
) -> str:
    """The log of the container that the query names, or of the only one.

    Raises:
        problems.ApiError: 400, 404 or 405.
    """
    if target.verb != "get":
        raise problems.method_not_allowed(target.kind, target.verb)
    pod = objects.get(target.kind, target.namespace, target.name)
    spec = pod["spec"]
    names = [
        container["name"]
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    ]
    name = request.query.get("container") or (names[0] if len(names) == 1 else "")
    if not name:
        choice = " ".join(names)
        raise problems.bad_request(
            f"a container name must be specified for pod {target.name}, choose one of: [{choice}]"
        )
    if name not in names:
        raise problems.bad_request(f"container {name} is not valid for pod {target.name}")
    text = source(pod["metadata"]["uid"], name)
    if text is None:
        raise problems.bad_request(
            f'container "{name}" in pod "{target.name}" is waiting to start: ContainerCreating'
        )
    return text


def is_log(kind: kinds.Kind, subresource: str) -> bool:
    """Whether this is asked for."""
    return kind.resource == "pods" and subresource == SUBRESOURCE
