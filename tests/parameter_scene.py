"""A cluster with the parameter kinds, and keepers of templates whose looks are made by tests."""

from typing import Any

import gpu_slices

from dra_driver import telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import parameters as keeping
from dra_driver.logic.parameters import definitions
from dra_driver.model import parameters
from dra_driver.settings import controller as controller_settings

Json = dict[str, Any]

DEFINITIONS = kube.Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)
NAMESPACE = "default"
GPU, MIG, MIG_DEVICE, VFIO = parameters.Kind
WRITES = frozenset({"create", "delete", "patch", "update"})
T4S = {"selector": {"productName": "*t4*"}}
_LONG = {"orExpression": [{"productName": f"{'x' * 120}{number}"} for number in range(32)]}
WRONG: Json = {"selector": {"orExpression": [_LONG, _LONG, _LONG]}}
"""The API server takes it, and in CEL it is longer than a selector may be."""
H100S = {"count": 2, "selector": {"productName": "*h100*"}}


def resource(kind: str) -> kube.Resource:
    return kube.Resource(parameters.GROUP, parameters.VERSION, kind.lower())


class Scene:
    """What users do, and what they see."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.client: kube.Client = cluster.client
        self._now = 0.0

    def install(self) -> "Scene":
        """The kinds, as the chart does."""
        for body in definitions.all_kinds():
            self.client.create(DEFINITIONS, body)
        return self

    def keeper(self, client: kube.Client | None = None, **changes: Any) -> keeping.Keeper:
        values = {"identity": "one", "status_address": "127.0.0.1:0"} | changes
        config = controller_settings.Controller.model_validate(values)
        metrics = telemetry.ControllerMetrics(config.driver_name)
        return keeping.Keeper(config, client or self.client, metrics)

    def look(self, keeper: keeping.Keeper, *, times: int = 1) -> None:
        """So much later that everything is due."""
        for _ in range(times):
            self._now += 1000
            keeper.keep(self._now, lambda: True)

    def put(self, kind: str, spec: Json | None, name: str = "mine") -> Json:
        body: Json = {
            "apiVersion": parameters.API_VERSION,
            "kind": str(kind),
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        if spec is not None:
            body["spec"] = spec
        return self.client.create(resource(kind), body, NAMESPACE)

    def change(self, kind: str, spec: Json, name: str = "mine") -> Json:
        body = self.client.get(resource(kind), name, NAMESPACE)
        return self.client.replace(resource(kind), {**body, "spec": spec}, NAMESPACE)

    def get(self, kind: str, name: str = "mine") -> Json:
        return self.client.get(resource(kind), name, NAMESPACE)

    def condition(self, kind: str, name: str = "mine", of_type: str = "Ready") -> Json:
        conditions = self.get(kind, name)["status"]["conditions"]
        return next(each for each in conditions if each["type"] == of_type)

    def template(self, name: str = "mine") -> Json | None:
        try:
            return self.client.get(kube.TEMPLATES, name, NAMESPACE)
        except kube.NotFound:
            return None

    def request(self, name: str = "mine") -> Json:
        body = self.template(name)
        assert body is not None
        [request] = body["spec"]["spec"]["devices"]["requests"]
        return request["exactly"]

    def foreign_template(self, name: str = "mine") -> Json:
        devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "other"}}]}
        body = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
        return self.client.create(kube.TEMPLATES, body, NAMESPACE)

    def publish(self, node: str, *models: str) -> None:
        """Whole GPUs of these models."""
        devices = [
            gpu_slices.whole(node, number, model=model, on_demand=False)
            for number, model in enumerate(models)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": devices}
        self.client.create(kube.SLICES, {"metadata": {"name": node}, "spec": spec})

    def writes(self) -> int:
        """How many requests that change something the keepers made, since the scene began."""
        return sum(
            call.verb in WRITES and call.user_agent == "keeper"
            for call in self.cluster.faults.calls
        )
