"""The subresource `scale`: how many pods a workload wants, in one form for all kinds.

Source: `k8s.io/api/autoscaling/v1`, Scale.
"""

from typing import Any

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import routing
from dra_driver.sim.api.storing import codecs, patching, registry

Json = dict[str, Any]

SUBRESOURCE = "scale"


def answer(objects: registry.Registry, request: routing.Request, target: routing.Target) -> Json:
    """The Scale of the workload, after the change that the request asks for.

    Raises:
        problems.ApiError: 400, 404, 405, 409 or 422.
    """
    key = (target.namespace, target.name)
    if target.verb == "get":
        return _scale(objects.get(target.kind, *key))
    if target.verb not in ("update", "patch"):
        raise problems.method_not_allowed(target.kind, target.verb)
    sent = codecs.loads(request.body)
    form = request.headers.get("content-type", "").partition(";")[0].strip()

    def change(current: Json) -> Json:
        scale = sent
        if target.verb == "patch":
            scale = patching.apply(form, _scale(current), sent)
        spec = (scale.get("spec") or {}) if isinstance(scale, dict) else None
        if not isinstance(spec, dict) or type(spec.get("replicas", 0)) is not int:
            raise problems.bad_request("Scale: spec.replicas has to be a whole number")
        current["spec"]["replicas"] = spec.get("replicas", 0)
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version is not None:
            current["metadata"]["resourceVersion"] = version
        return current

    dry_run = request.query.get("dryRun") == "All"
    return _scale(objects.update(target.kind, key, change, dry_run=dry_run))


def _scale(body: Json) -> Json:
    metadata, spec = body["metadata"], body["spec"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": (body.get("status") or {}).get("replicas", 0)}
    selector = spec.get("selector") or {}
    labels = selector.get("matchLabels") if "matchLabels" in selector else selector
    if isinstance(labels, dict) and all(isinstance(value, str) for value in labels.values()):
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": status,
    }
