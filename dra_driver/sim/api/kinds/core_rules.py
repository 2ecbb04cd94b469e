"""Defaults and rules for Namespaces, Nodes, Pods, Events and Secrets.

Only what clients and the sequence of events depend on: other fields are kept as they came.
Sources: Kubernetes 1.36, `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation/validation.go`.
"""

import base64
from collections.abc import Iterator
from typing import Any

from dra_driver.sim.api.kinds import (
    fields,
    pod_resources,
    priorities,
    resource_gates,
    strategies,
    syntax,
)

Json = dict[str, Any]

_SPEC_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_POD_DEFAULTS = {
    "serviceAccountName": "default",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
}
_CONTAINER_DEFAULTS = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_NOT_READY_TOLERATIONS = tuple(
    {
        "key": f"node.kubernetes.io/{trouble}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for trouble in ("not-ready", "unreachable")
)
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_MUTABLE_IN_POD_SPEC = frozenset(
    {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
)


def _prepare_namespace(write: strategies.Write) -> None:
    new = write.new
    labels = new["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")
    if write.old is None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    else:
        new["spec"] = write.old["spec"]


NAMESPACE = strategies.Strategy(_prepare_namespace)


def _prepare_node(write: strategies.Write) -> None:
    write.new.setdefault("spec", {})
    write.new.setdefault("status", {})


NODE = strategies.Strategy(_prepare_node)


def _prepare_event(write: strategies.Write) -> None:
    write.new.setdefault("involvedObject", {})


def _validate_event(write: strategies.Write) -> fields.Errors:
    namespace = write.new["involvedObject"].get("namespace") or "default"
    if namespace == write.new["metadata"]["namespace"]:
        return []
    detail = "does not match event.namespace"
    return [fields.invalid("involvedObject.namespace", namespace, detail)]


EVENT = strategies.Strategy(_prepare_event, _validate_event)


def _prepare_secret(write: strategies.Write) -> None:
    write.new.setdefault("type", "Opaque")
    for key, text in write.new.pop("stringData", {}).items():
        write.new.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


SECRET = strategies.Strategy(_prepare_secret)


def _prepare_pod(write: strategies.Write) -> None:
    spec = write.new.setdefault("spec", {})
    for name, value in _POD_DEFAULTS.items():
        spec.setdefault(name, value)
    default_pod_spec(spec)
    if write.old is None:
        tolerations = spec.setdefault("tolerations", [])
        held = {toleration.get("key") for toleration in tolerations}
        tolerations += [dict(item) for item in _NOT_READY_TOLERATIONS if item["key"] not in held]
        write.new["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    resource_gates.drop_disabled(write, resource_gates.POD)


def default_pod_spec(spec: Json) -> None:
    """Sets what a pod has that says nothing else, also in a template."""
    for name, value in _SPEC_DEFAULTS.items():
        spec.setdefault(name, value)
    spec.setdefault("securityContext", {})
    for container in _containers(spec):
        for name, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(name, value)
        image = str(container.get("image", ""))
        latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        _default_requests(container.setdefault("resources", {}))


def _default_requests(resources: Json) -> None:
    for name, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)


def _containers(spec: Json) -> Iterator[Json]:
    for name in ("initContainers", "containers"):
        yield from spec.get(name) or ()


def _qos_class(spec: Json) -> str:
    names = ("cpu", "memory")
    requests, limits = [], []
    for container in _containers(spec):
        resources = container.get("resources") or {}
        requests += [(resources.get("requests") or {}).get(name) for name in names]
        limits += [(resources.get("limits") or {}).get(name) for name in names]
    if not any(requests) and not any(limits):
        return "BestEffort"
    return "Guaranteed" if all(limits) and requests == limits else "Burstable"


def _validate_pod(write: strategies.Write) -> fields.Errors:
    spec = write.new["spec"]
    if write.old is not None:
        if write.status:
            return pod_resources.status_errors(write.new)
        return _pod_update_errors(spec, write.old["spec"])
    return pod_spec_errors(spec, "spec")


def pod_spec_errors(spec: Json, path: str) -> fields.Errors:
    """What is wrong with the spec of a pod, or of a template, at that path."""
    found = [
        *fields.distinct(
            spec.get("resourceClaims"),
            None,
            f"{path}.resourceClaims",
            _pod_claim_errors,
            lambda claim: claim.get("name", ""),
        ),
    ]
    if not spec.get("containers"):
        found.append(fields.required(f"{path}.containers"))
    if (policy := spec.get("restartPolicy", "Always")) not in _RESTART_POLICIES:
        found.append(fields.not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    names: set[str] = set()
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            place = f"{path}.{kind}[{index}]"
            found += _container_errors(container, place, claims)
            name = container.get("name", "")
            if name in names:
                found.append(fields.duplicate(f"{place}.name", name))
            names.add(name)
    return found


def _container_errors(container: Json, path: str, claims: set[Any]) -> fields.Errors:
    found = syntax.required_label(container.get("name"), f"{path}.name")
    if not container.get("image"):
        found.append(fields.required(f"{path}.image"))
    found += [
        fields.required(f"{path}.env[{index}].name")
        for index, variable in enumerate(container.get("env") or ())
        if not variable.get("name")
    ]
    resources = container.get("resources") or {}
    found += pod_resources.amount_errors(resources, f"{path}.resources")
    used = resources.get("claims") or ()
    place = f"{path}.resources.claims"

    def check(claim: Json, where: str) -> fields.Errors:
        if not claim.get("name"):
            return [fields.required(f"{where}.name")]
        known = claim["name"] in claims
        return [] if known else [fields.not_found(f"{where}.name", claim["name"])]

    def key(claim: Json) -> str:
        return "/".join(filter(None, (claim.get("name"), claim.get("request"))))

    return found + fields.distinct(used, None, place, check, key)


def _pod_claim_errors(claim: Json, path: str) -> fields.Errors:
    found = syntax.required_label(claim.get("name"), f"{path}.name")
    names = ("resourceClaimName", "resourceClaimTemplateName")
    given = [name for name in names if name in claim]
    if len(given) == 2:
        detail = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        )
        return [*found, fields.invalid(path, claim, detail)]
    if not given:
        detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        return [*found, fields.required(path, detail)]
    return found + syntax.subdomain(claim[given[0]], f"{path}.{given[0]}")


def _pod_update_errors(spec: Json, old: Json) -> fields.Errors:
    """A pod is what it was, but for its images and a few fields."""
    if _fixed(spec) == _fixed(old):
        return []
    detail = (
        "pod updates may not change fields other than "
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
        "negative)"
    )
    return [fields.forbidden("spec", detail)]


def _fixed(spec: Json) -> Json:
    fixed = {name: value for name, value in spec.items() if name not in _MUTABLE_IN_POD_SPEC}
    for kind in ("containers", "initContainers"):
        if kind in spec:
            fixed[kind] = [
                {name: value for name, value in container.items() if name != "image"}
                for container in spec[kind]
            ]
    return fixed


POD = strategies.Strategy(_prepare_pod, _validate_pod, admit=priorities.of_pod)
