"""Reviews of pods as an API server sends them, and what a patch in the answer makes of the pod."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import webhook_reviews
import webhook_scene

from dra_driver.adapters.kube import kube

Json = dict[str, Any]

NAMESPACE = "default"
DRIVER = "gpu.nvidia.com"
PATH = "/convert?timeout=10s"


def pod(limits: Mapping[str, object] | None = None, name: str = "p", **fields: Any) -> Json:
    """A pod of one container `c` with these limits; `fields` are of the spec."""
    body: Json = {"name": "c", "image": "i"}
    if limits is not None:
        body["resources"] = {"limits": dict(limits)}
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"containers": [body]} | fields
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def share(memory: object = "8000", cores: object = "30", **fields: Any) -> Json:
    """A pod that asks as HAMi has it, for something that depends on no card."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory, "nvidia.com/gpucores": cores}
    return pod(limits, **fields)


def review(body: object, **changes: Any) -> Json:
    """The review of the creation of a pod, or what `changes` make of it."""
    asked = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p",
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {"username": "someone"},
        "object": body,
        "oldObject": None,
        "dryRun": False,
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": asked | changes,
    }


def patch_of(response: Json) -> list[Json]:
    """The operations in a response; none if it has no patch."""
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    return list(json.loads(base64.b64decode(response["patch"])))


def patched(body: Json, patch: list[Json]) -> Json:
    """The object as an API server has it after the patch: RFC 6902, with its refusals."""
    document = json.loads(json.dumps(body))
    for step in patch:
        *way, last = [_key(token) for token in step["path"].removeprefix("/").split("/")]
        place: Any = document
        for token in way:
            place = place[int(token)] if isinstance(place, list) else place[token]
        if isinstance(place, list):
            _change_list(place, last, step)
            continue
        assert step["op"] == "add" or last in place, step
        if step["op"] == "remove":
            del place[last]
        else:
            place[last] = step["value"]
    return document


def _change_list(place: list[Any], last: str, step: Json) -> None:
    if last == "-":
        assert step["op"] == "add"
        place.append(step["value"])
    else:
        assert step["op"] == "replace"
        place[int(last)] = step["value"]


def _key(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


class Client(webhook_reviews.Client):
    """Asks for conversions."""

    def convert(self, document: object) -> Json:
        return self.send(json.dumps(document).encode(), path=PATH).response


@contextlib.contextmanager
def converting_webhook(cluster: Any, directory: Any, **changes: Any) -> Iterator[Client]:
    """A client of a webhook that serves and has its templates in the cluster's API server."""
    scene = webhook_scene.Scene(directory, convert=True, kubeconfig=cluster.kubeconfig, **changes)
    try:
        scene.wait_served()
        pem = scene.authority.cert_pem.bytes()
        with Client(scene.webhook.port, pem, webhook_scene.SERVICE) as client:
            yield client
    finally:
        scene.webhook.stop()


def publish(cluster: Any, *sizes: int, shared: str = "memory") -> None:
    """Have one card of each size (GiB) published, each on a node of its own."""
    for size in sizes:
        node = f"node-{size}-{shared or 'whole'}"
        memory = {"memory": {"value": f"{size}Gi"}}
        more: Json = (
            {"shares": {"value": "4"}} if shared == "count" else {"cores": {"value": "100"}}
        )
        device = {
            "name": "gpu-0",
            "attributes": {"type": {"string": "gpu"}, "productName": {"string": f"Card {size}"}},
            "capacity": memory | (more if shared else {}),
        } | ({"allowMultipleAllocations": True} if shared else {})
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [device]}
        body = {"metadata": {"name": node}, "spec": spec}
        cluster.client.create(kube.SLICES, body)


def calls(cluster: Any, resource: str, verb: str) -> int:
    """How often the webhook has asked for this."""
    return sum(
        (call.resource, call.verb) == (resource, verb) and call.user_agent.endswith("webhook")
        for call in cluster.faults.calls
    )


def templates(cluster: Any, namespace: str = NAMESPACE) -> dict[str, Json]:
    """The templates in a namespace, by name."""
    found, _ = cluster.client.list(kube.TEMPLATES, namespace)
    return {each["metadata"]["name"]: each for each in found}
