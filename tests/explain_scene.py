"""Small clusters to explain claims in, written as the wire has them."""

from typing import Any

from dra_driver.logic.explaining import explaining, node_reports, targets
from dra_driver.logic.picturing import snapshots

Json = dict[str, Any]

DRIVER = "gpu.example.com"
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'


def gpu(name: str, *, memory: str = "", taint: str = "", extra: Json | None = None, **attributes):
    """A device; a double underscore in a keyword stands for the slash of a qualified name."""
    wire = {bool: "bool", int: "int", str: "string"}
    body: Json = {
        "name": name,
        "attributes": {
            key.replace("__", "/"): {wire[type(value)]: value} for key, value in attributes.items()
        },
    }
    if memory:
        body["capacity"] = {"memory": {"value": memory}}
    if taint:
        body["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    return body | (extra or {})


def pool(node: str, *devices: Json, count: int = 1, **spec: Any) -> Json:
    body = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
        "devices": list(devices),
    }
    return _object("ResourceSlice", f"slice-{node}", spec=body | spec)


def node(name: str, **spec: Any) -> Json:
    return _object("Node", name, spec=spec)


def device_class(*expressions: str, name: str = "gpu", **spec: Any) -> Json:
    texts = expressions or (f'device.driver == "{DRIVER}"',)
    selectors = [{"cel": {"expression": text}} for text in texts]
    return _object("DeviceClass", name, spec={"selectors": selectors, **spec})


def request(*selectors: str, name: str = "gpu", of_class: str = "gpu", **fields: Any) -> Json:
    return {"name": name, "exactly": wanted(*selectors, of_class=of_class, **fields)}


def wanted(*selectors: str, of_class: str = "gpu", **fields: Any) -> Json:
    listed = [{"cel": {"expression": text}} for text in selectors]
    return {"deviceClassName": of_class, "selectors": listed, **fields}


def claim(name: str, *requests: Json, **devices: Any) -> Json:
    return _object("ResourceClaim", name, spec=claim_spec(*requests, **devices))


def claim_spec(*requests: Json, **devices: Any) -> Json:
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def held(name: str, *devices: str, pods: tuple[str, ...] = (), **allocation: Any) -> Json:
    """A claim that has devices, each as node/device."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": place, "device": device}
        for place, _, device in (text.partition("/") for text in devices)
    ]
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    field = {"key": "metadata.name", "operator": "In", "values": [devices[0].partition("/")[0]]}
    return claim(name) | {
        "status": {
            "allocation": {
                "devices": {"results": results, **allocation},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": users,
        }
    }


def template(name: str, *requests: Json) -> Json:
    return _object("ResourceClaimTemplate", name, spec={"spec": claim_spec(*requests)})


def pod(name: str, *, claims: Json | None = None, templates: Json | None = None, **spec: Any):
    """A pod; `claims` and `templates` by the pod's name for them."""
    listed = [{"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()]
    listed += [
        {"name": key, "resourceClaimTemplateName": value}
        for key, value in (templates or {}).items()
    ]
    body = {"containers": [{"name": "main", "image": "none"}], "resourceClaims": listed}
    return _object("Pod", name, spec=body | spec)


def snapshot(*bodies: Json) -> snapshots.Snapshot:
    """The snapshot, with class `gpu` and a node for each pool unless there are others."""
    kinds = {body["kind"] for body in bodies}
    places = {body["spec"]["nodeName"] for body in bodies if body["kind"] == "ResourceSlice"}
    listed = [*bodies]
    if "Node" not in kinds:
        listed += [node(name) for name in places]
    if "DeviceClass" not in kinds:
        listed.append(device_class())
    return snapshots.of(snapshots.normalized(body, "default") for body in listed)


def explain(name: str, *bodies: Json) -> explaining.Explanation:
    """The explanation of `pod/NAME` or `claim/NAME` in namespace default."""
    scene = snapshot(*bodies)
    return explaining.explain(targets.named(scene, name, "default"), scene)


def fallen(report: node_reports.Report, request_name: str = "gpu") -> list[tuple[int, str, str]]:
    """Count, hurdle and reason of each group of a request."""
    (found,) = [item for item in report.requests if item.request == request_name]
    return [(group.count, group.hurdle, group.reason) for group in found.groups]


def _object(kind: str, name: str, **body: Any) -> Json:
    group = "v1" if kind in {"Pod", "Node"} else "resource.k8s.io/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, **body}
