"""What manifests bring: which pods come of them, and what in them is without effect here."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import parameters
from dra_driver.sim.api.kinds import served_kinds
from dra_driver.sim.cluster import manifests
from dra_driver.sim.cluster.workloads import controllers, templates

Json = dict[str, Any]

_BUILT_IN = frozenset((kind.group, kind.kind) for kind in served_kinds.BUILT_IN)
_PARTS = frozenset(
    {
        ("", "Pod"),
        ("", "Namespace"),
        ("", "Node"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("resource.k8s.io", "ResourceSlice"),
        ("resource.k8s.io", "DeviceTaintRule"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        *((parameters.GROUP, kind.value) for kind in parameters.Kind),
    }
)
"""Kinds that something here acts on, besides workloads."""


def pod_templates(body: Json) -> tuple[Json, ...]:
    """The pod that the object is, or the templates of the pods that are made of it."""
    if _name(body) == ("", "Pod"):
        return (body,)
    if not is_workload(body):
        return ()
    return tuple(templates.found_in(body).values())


def namespaces(objects: Iterable[Json]) -> frozenset[str]:
    """Where pods come of the objects."""
    return frozenset(
        body["metadata"].get("namespace") or "default" for body in objects if pod_templates(body)
    )


def has_parameters(objects: Iterable[Json]) -> bool:
    """Whether there are parameter objects of DRA's first API, which templates are made of."""
    kinds = {(parameters.API_VERSION, kind.value) for kind in parameters.Kind}
    return any((body["apiVersion"], body["kind"]) in kinds for body in objects)


def is_workload(body: Json) -> bool:
    """Whether pods are made of it here by a controller."""
    known = (body["apiVersion"], body["kind"]) in controllers.BY_KIND
    return known or (_name(body) not in _BUILT_IN and bool(templates.found_in(body)))


def check_pods(objects: Sequence[Json]) -> None:
    """Refuse manifests of which no pod can come.

    Raises:
        errors.Rejected: the text says why.
    """
    # What is wrong with a workload that has no template is for the server to say.
    makers = [body for body in objects if _name(body) == ("", "Pod") or is_workload(body)]
    idle = {manifests.full_name(body): why for body in makers if (why := _idle(body))}
    if not makers:
        kinds = ", ".join(sorted({body["kind"] for body in objects}))
        raise errors.Rejected(
            f"no pod comes of these manifests: they have {kinds}, and neither a Pod nor anything "
            "with a template of pods. Add one that uses the claims"
        )
    if len(idle) == len(makers):
        told = "; ".join(f"{name}: {why}" for name, why in idle.items())
        raise errors.Rejected(f"no pod comes of these manifests: {told}")


def notes(objects: Sequence[Json]) -> Iterator[str]:
    """What whoever brings the objects should know of how they are taken."""
    for body in objects:
        if _name(body) not in _BUILT_IN and is_workload(body):
            places = ", ".join(templates.found_in(body))
            yield (
                f"{manifests.full_name(body)}: nothing here knows the kind {body['kind']}; "
                f"one pod is made of each template of pods in it: {places}"
            )
        elif (body["apiVersion"], body["kind"]) == ("batch/v1", "CronJob"):
            yield f"{manifests.full_name(body)}: its Job is made once, at once"
    if kinds := sorted({body["kind"] for body in objects if not _has_effect(body)}):
        yield f"Stored, and without effect here: {', '.join(kinds)}"


def _has_effect(body: Json) -> bool:
    return _name(body) in _PARTS or is_workload(body)


def _name(body: Json) -> tuple[str, str]:
    return body["apiVersion"].rpartition("/")[0], body["kind"]


def _idle(body: Json) -> str | None:
    """Why a workload makes no pod as it is written."""
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return None
    checks: Iterable[str] = {
        "Job": ("parallelism", "completions", "suspend"),
        "CronJob": ("suspend",),
        "DaemonSet": (),
        "Pod": (),
    }.get(body["kind"], ("replicas",) if _name(body) in _BUILT_IN else ())
    for field in checks:
        value = spec.get(field)
        if value is True or (value == 0 and value is not False):
            return f"spec.{field} is {str(value).lower()}"
    return None
