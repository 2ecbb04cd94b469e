"""An API server with scheduler and claim controller, and the objects that tests put into it."""

import pathlib
from typing import Any, Self, TypeVar

from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.api.serving import server
from dra_driver.sim.cluster import claim_controller, evictor, scheduler

Json = dict[str, Any]
Part = TypeVar("Part")

DRIVER = "gpu.example.com"
CLASS = "gpu"


class ControlPlane:
    """A running API server; scheduler and controller only once they are started."""

    def __init__(self, directory: pathlib.Path, **options: Any) -> None:
        self._api = server.ApiServer(api_options.Options(**options))
        self._api.start()
        kubeconfig = directory / "kubeconfig"
        self._api.write_kubeconfig(kubeconfig)
        self.clients = [
            kube.Client(kubeconfig=kubeconfig, user_agent=name)
            for name in ("test", "scheduler", "claim-controller", "evictor")
        ]
        self.client = self.clients[0]
        self._parts: list[Any] = []

    def start_scheduler(self, **options: Any) -> Self:
        self._start(scheduler.Scheduler(self.clients[1], **options))
        return self

    def start_controller(self) -> Self:
        self._start(claim_controller.ClaimController(self.clients[2]))
        return self

    def start_evictor(self, **options: Any) -> Self:
        self._start(evictor.Evictor(self.clients[3], **options))
        return self

    def _start(self, part: Any) -> None:
        part.start()
        self._parts.append(part)

    def part(self, kind: type[Part]) -> Part:
        """The one of this kind that was started."""
        return next(part for part in self._parts if isinstance(part, kind))

    def stop_parts(self) -> None:
        while self._parts:
            self._parts.pop().stop()

    def close(self) -> None:
        self.stop_parts()
        for client in self.clients:
            client.close()
        self._api.stop()

    # What tests put in

    def add_class(self, *expressions: str, name: str = CLASS, **spec: Any) -> Json:
        selectors = [{"cel": {"expression": text}} for text in expressions]
        return self.create(kube.CLASSES, name, spec={"selectors": selectors, **spec})

    def add_node(self, name: str, *, labels: Json | None = None, **spec: Any) -> Json:
        labels = {"kubernetes.io/hostname": name} | (labels or {})
        return self.create(kube.NODES, name, labels=labels, spec=spec)

    def add_slice(self, node: str, *devices: Json | str, name: str = "", **spec: Any) -> Json:
        """A slice that is the whole pool of the node; a device may be just its name."""
        listed = [{"name": item} if isinstance(item, str) else item for item in devices]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        body = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": listed, **spec}
        return self.create(kube.SLICES, name or f"slice-{node}", spec=body)

    def add_claim(self, name: str, *requests: Json, **devices: Any) -> Json:
        return self.create(kube.CLAIMS, name, "default", spec=claim_spec(*requests, **devices))

    def add_template(
        self, name: str, *requests: Json, metadata: Json | None = None, **devices: Any
    ) -> Json:
        spec = {"spec": claim_spec(*requests, **devices)}
        return self.create(
            kube.TEMPLATES,
            name,
            "default",
            spec=spec | ({"metadata": metadata} if metadata else {}),
        )

    def add_pod(
        self, name: str, *, claims: Json | None = None, templates: Json | None = None, **spec: Any
    ) -> Json:
        """A pod; `claims` and `templates` by the pod's name for them."""
        wanted = [
            {"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()
        ]
        wanted += [
            {"name": key, "resourceClaimTemplateName": value}
            for key, value in (templates or {}).items()
        ]
        body = {"containers": [{"name": "main", "image": "none"}], "resourceClaims": wanted}
        return self.create(kube.PODS, name, "default", spec=body | spec)

    def create(
        self,
        resource: kube.Resource,
        name: str,
        namespace: str | None = None,
        *,
        labels: Json | None = None,
        **body: Any,
    ) -> Json:
        metadata = {"name": name, "labels": labels or {}}
        return self.client.create(resource, {"metadata": metadata, **body}, namespace)

    # What tests look at

    def pod(self, name: str) -> Json:
        return self.client.get(kube.PODS, name, "default")

    def claim(self, name: str) -> Json:
        return self.client.get(kube.CLAIMS, name, "default")

    def claims(self) -> dict[str, Json]:
        items, _ = self.client.list(kube.CLAIMS, "default")
        return {item["metadata"]["name"]: item for item in items}

    def has(self, resource: kube.Resource, name: str) -> bool:
        try:
            self.client.get(resource, name, "default" if resource.namespaced else None)
        except kube.NotFound:
            return False
        return True

    def node_of(self, pod: str) -> str:
        """The node of a pod, once it has one."""
        return until(lambda: self.pod(pod)["spec"].get("nodeName"), what=f"a node of pod {pod}")

    def refusal_of(self, pod: str, containing: str = "") -> str:
        """The message of the condition that says why a pod has no node."""

        def message() -> str | None:
            for condition in self.pod(pod).get("status", {}).get("conditions") or ():
                refused = condition["type"] == "PodScheduled" and condition["status"] == "False"
                if refused and containing in condition["message"]:
                    assert condition["reason"] == "Unschedulable"
                    return condition["message"]
            return None

        return until(message, what=f"a refusal of pod {pod} with {containing!r}")

    def devices_of(self, claim: str) -> list[str]:
        """The devices that a claim has, as pool/device."""
        allocation = self.claim(claim).get("status", {}).get("allocation") or {}
        return [
            f"{result['pool']}/{result['device']}"
            for result in allocation.get("devices", {}).get("results") or ()
        ]

    def users_of(self, claim: str) -> list[str]:
        """The names of the pods for which a claim is reserved."""
        return [
            user["name"] for user in self.claim(claim).get("status", {}).get("reservedFor") or ()
        ]

    def claim_of(self, pod: str, name: str = "gpu") -> str:
        """The name of the claim that was made for a pod, once it is told."""

        def told() -> str | None:
            statuses = self.pod(pod).get("status", {}).get("resourceClaimStatuses") or ()
            return next((s["resourceClaimName"] for s in statuses if s["name"] == name), None)

        return until(told, what=f"claim {name} of pod {pod}")

    def events_of(self, pod: str, reason: str) -> list[Json]:
        items, _ = self.client.list(kube.EVENTS, "default")
        return [
            item
            for item in items
            if item["involvedObject"]["name"] == pod and item["reason"] == reason
        ]

    def finish(self, pod: str, phase: str = "Succeeded") -> None:
        """What a kubelet does when all containers have ended."""
        change = {"status": {"phase": phase}}
        self.client.patch(kube.PODS, pod, change, "default", subresource="status")


def request(name: str = "gpu", *selectors: str, device_class: str = CLASS, **fields: Any) -> Json:
    return {"name": name, "exactly": alternative(*selectors, device_class=device_class, **fields)}


def alternative(*selectors: str, device_class: str = CLASS, **fields: Any) -> Json:
    expressions = [{"cel": {"expression": text}} for text in selectors]
    return {"deviceClassName": device_class, "selectors": expressions, **fields}


def claim_spec(*requests: Json, **devices: Any) -> Json:
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def gpu(name: str, model: str) -> Json:
    """A device with a model, as the wire has it."""
    return {"name": name, "attributes": {"model": {"string": model}}}
