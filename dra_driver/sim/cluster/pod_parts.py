"""What a kubelet reads from a pod: its claims, and what its containers are started with."""

from collections.abc import Mapping
from typing import Any

from dra_driver.logic.scheduling import extended_resources
from dra_driver.sim.cluster import claim_cache, runtime

Json = dict[str, Any]


def claims(pod: Json) -> claim_cache.PodClaims:
    """The claims of a pod, that for its extended resources among them."""
    # A claim that the pod's status lists without a name is one that the pod does not need.
    statuses = {
        item["name"]: item.get("resourceClaimName") or ""
        for item in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = {
        item["name"]: item.get("resourceClaimName") or statuses.get(item["name"])
        for item in pod["spec"].get("resourceClaims") or ()
    }
    if (made := extended_resources.claim_name(pod)) is not None:
        names[claim_cache.EXTENDED] = made
    return claim_cache.PodClaims(
        namespace=pod["metadata"]["namespace"], pod_uid=pod["metadata"]["uid"], names=names
    )


def claim_keys(pod: Json) -> list[tuple[str, str]]:
    """Namespace and name of each claim of a pod that it needs."""
    namespace = pod["metadata"]["namespace"]
    return [(namespace, name) for name in claims(pod).names.values() if name]


def container(
    pod: Json, container: Json, prepared: Mapping[str, claim_cache.PreparedClaim]
) -> runtime.Container:
    """One container as the runtime is asked for it.

    The CDI names are those of all claims that it uses, repeated where several uses have them.
    """
    used = [
        (use["name"], use.get("request"))
        for use in (container.get("resources") or {}).get("claims") or ()
    ]
    used += [
        (claim_cache.EXTENDED, request)
        for request in extended_resources.requests_of(pod, container)
    ]
    cdi_ids = [
        cdi_id
        for name, request in used
        if name in prepared
        for cdi_id in prepared[name].cdi_ids(request)
    ]
    return runtime.Container(
        pod_uid=pod["metadata"]["uid"],
        name=container["name"],
        command=(*(container.get("command") or ()), *(container.get("args") or ())),
        env={item["name"]: _value(item, pod) for item in container.get("env") or ()},
        cdi_ids=tuple(cdi_ids),
    )


def _value(variable: Json, pod: Json) -> str:
    """Of a variable of a container: given, or from a field of the pod, one label among them."""
    path = ((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", "")
    if not path:
        return str(variable.get("value", ""))
    value: Any = pod
    # As `metadata.labels['app']`: the key may have dots.
    plain, _, entry = path.removesuffix("']").partition("['")
    for key in [*plain.split("."), *([entry] if entry else [])]:
        value = value.get(key, "") if isinstance(value, dict) else ""
    return str(value)
