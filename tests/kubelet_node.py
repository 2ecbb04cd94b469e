"""A node of the embedded cluster without a cluster: tests do what scheduler and controller do."""

import pathlib
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any

import scripted_plugin
import served_api
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_health
from dra_driver.sim.cluster import claim_cache, kubelet, kubelet_release, runtime

Json = dict[str, Any]

NODE = "node-1"


class PretendedContainer:
    """A container that ends when the test says so."""

    def __init__(self, asked: runtime.Container, on_end: Callable[[], None]) -> None:
        self.asked = asked
        self.stopped = threading.Event()
        self._status: int | None = None
        self._on_end = on_end

    def end(self, status: int) -> None:
        self._status = status
        self._on_end()

    def view(self) -> runtime.View:
        return runtime.View({}, (), (), self.asked.cdi_ids)

    def status(self) -> int | None:
        return self._status

    def stop(self) -> None:
        self.stopped.set()


class PretendedEngine:
    """A container runtime that knows no CDI; `refuse` makes it fail for containers by name."""

    def __init__(self) -> None:
        self.started: list[PretendedContainer] = []
        self.refuse: dict[str, Exception] = {}
        self.closed = False

    def start(self, container: runtime.Container, on_end: Callable[[], None]) -> PretendedContainer:
        if container.name in self.refuse:
            raise self.refuse[container.name]
        # Pods are started side by side: the last of the list may be another's.
        made = PretendedContainer(container, on_end)
        self.started.append(made)
        return made

    def close(self) -> None:
        self.closed = True


class OneNode:
    """An API server, the directories of a node, and the pods and claims that a test makes."""

    def __init__(self) -> None:
        # At a short path: that of a socket may have 107 bytes.
        self._directory = tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp")
        self.root = pathlib.Path(self._directory.name)
        self.registry = self.root / "plugins_registry"
        self.api = served_api.ServedApi(self.root)
        self.client = self.api.client
        self.engine = PretendedEngine()
        self.kubelet: kubelet.Kubelet | None = None
        self.plugins: list[scripted_plugin.ScriptedPlugin] = []
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        self.client.create(kube.NODES, body)

    def close(self) -> None:
        if self.kubelet is not None:
            self.kubelet.stop()
        for plugin in self.plugins:
            plugin.stop()
        self.api.close()
        self._directory.cleanup()

    def start_kubelet(self, release: str | None = None) -> kubelet.Kubelet:
        behaviour = kubelet_release.of_release(release)
        self.kubelet = kubelet.Kubelet(self.client, NODE, self.root, self.engine, behaviour)
        self.kubelet.start()
        return self.kubelet

    def add_plugin(
        self, health: Mapping[str, dra_health.Source] | None = None, **options: Any
    ) -> scripted_plugin.ScriptedPlugin:
        """A plugin that is registered, unless there is no kubelet."""
        plugin = scripted_plugin.ScriptedPlugin(self.registry, **options)
        plugin.health = dict(health or {})
        plugin.start()
        self.plugins.append(plugin)
        if self.kubelet is not None:
            assert self.kubelet.plugins.wait_registered(plugin.name, 60)
        return plugin

    # Claims, as the scheduler leaves them

    def add_claim(
        self, name: str, *results: Json, allocate: bool = True, driver: str = "", **metadata: Any
    ) -> Json:
        """A claim with these results; without any, one device of the driver for request gpu."""
        found = list(results) or [result(driver=driver or scripted_plugin.DRIVER)]
        requests = dict.fromkeys(item["request"].partition("/")[0] for item in found)
        body = {
            "metadata": {"name": name} | metadata,
            "spec": {
                "devices": {
                    "requests": [
                        {"name": request, "exactly": {"deviceClassName": "any", "count": 8}}
                        for request in requests
                    ]
                }
            },
        }
        made = self.client.create(kube.CLAIMS, body, "default")
        if allocate:
            allocation = {"devices": {"results": found}}
            made = self.client.replace_status(
                kube.CLAIMS, made | {"status": {"allocation": allocation}}, "default"
            )
        return made

    def reserve(self, claim: str, *pods: Json) -> None:
        users = [
            {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            for pod in pods
        ]
        self.client.patch(
            kube.CLAIMS, claim, {"status": {"reservedFor": users}}, "default", subresource="status"
        )

    # Pods

    def add_pod(
        self, name: str, claims: Mapping[str, str] | None = None, *containers: Json, **spec: Any
    ) -> Json:
        """A pod without a node, not restarted; `claims` by the pod's names for them."""
        uses = [{"name": key} for key in claims or {}]
        body = {
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "containers": list(containers) or [container("main", *uses)],
                "resourceClaims": [
                    {"name": key, "resourceClaimName": value}
                    for key, value in (claims or {}).items()
                ],
            }
            | spec,
        }
        return self.client.create(kube.PODS, body, "default")

    def run_pod(
        self, name: str, claims: Mapping[str, str] | None = None, *containers: Json, **spec: Any
    ) -> Json:
        """A pod with claims for itself alone, bound to the node."""
        pod = self.add_pod(name, claims, *containers, **spec)
        for claim in dict.fromkeys((claims or {}).values()):
            self.reserve(claim, pod)
        self.bind(name)
        return pod

    def bind(self, pod: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target,
        }  # fmt: skip
        self.client.create_subresource(kube.PODS, pod, "binding", body, "default")

    def delete_pod(self, name: str, *, force: bool = False) -> None:
        self.client.delete(kube.PODS, name, "default", grace_period=0 if force else None)

    def pod(self, name: str) -> Json | None:
        try:
            return self.client.get(kube.PODS, name, "default")
        except kube.NotFound:
            return None

    def phase(self, name: str) -> str | None:
        pod = self.pod(name)
        return pod.get("status", {}).get("phase") if pod else None

    def wait_phase(self, name: str, phase: str) -> Json:
        """The pod, once it is in that phase."""
        until(lambda: self.phase(name) == phase, what=f"{name} is {phase}")
        return self.client.get(kube.PODS, name, "default")

    def wait_gone(self, name: str) -> None:
        until(lambda: self.pod(name) is None, what=f"pod {name} is gone")

    def events(self, pod: str, reason: str) -> list[str]:
        """The messages of events about a pod."""
        return [
            item["message"]
            for item in self.client.list(kube.EVENTS, "default")[0]
            if item["involvedObject"]["name"] == pod and item["reason"] == reason
        ]

    def wait_event(self, pod: str, reason: str) -> str:
        return until(lambda: self.events(pod, reason), what=f"event {reason} of {pod}")[-1]


def result(device: str = "gpu-0", request: str = "gpu", **fields: Any) -> Json:
    """One result of an allocation."""
    return {
        "request": request,
        "driver": scripted_plugin.DRIVER,
        "pool": NODE,
        "device": device,
    } | fields


def container(name: str, *uses: Json) -> Json:
    return {"name": name, "image": "none", "resources": {"claims": list(uses)}}


def pod_claims(pod: Json, **names: str | None) -> claim_cache.PodClaims:
    """The claims of a pod as the kubelet's claim cache takes them."""
    return claim_cache.PodClaims("default", pod["metadata"]["uid"], names)


def uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def conditions(pod: Json) -> dict[str, str]:
    """The status of each condition."""
    return {item["type"]: item["status"] for item in pod["status"]["conditions"]}


def states(pod: Json) -> dict[str, Json]:
    """The state of each container."""
    return {item["name"]: item["state"] for item in pod["status"]["containerStatuses"]}
