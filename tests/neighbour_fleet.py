"""The cluster that neighbours look at, and the pods and claims that they find there."""

import contextlib
import itertools
import json
from typing import Any

import kubelet_node
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import cluster, runtime

Json = dict[str, Any]

SPECS = (
    cluster.NodeSpec("mig", "h100-80gb-hbm3:2"),
    cluster.NodeSpec("plain", "t4:2"),
    cluster.NodeSpec("shared", "h100-80gb-hbm3:1", ("--mig-mode=off", "--shares=memory")),
)
DRIVER = cluster.DRIVER_NAME


class Fleet:
    """A running embedded cluster with the nodes of `SPECS`."""

    def __init__(self, running: cluster.Cluster) -> None:
        self.running = running
        self._numbers = itertools.count(1)
        self.client = running.client

    def slices(self) -> list[Json]:
        return self.client.list(kube.SLICES)[0]

    def classes(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.client.list(kube.CLASSES)[0]}

    def specs(self, node: str) -> list[Json]:
        """The CDI specs on a node; one of another claim may go meanwhile."""
        found = []
        for path in sorted(self.running.nodes[node].cdi_dir.glob("*.json")):
            with contextlib.suppress(FileNotFoundError):
                found.append(json.loads(path.read_text("utf-8")))
        return found

    def pod(
        self,
        requests: list[Json],
        *,
        namespace: str = "default",
        node: str = "",
        devices: Json | None = None,
    ) -> "Pod":
        """A pod with a claim of its own; `devices` are more fields of the claim."""
        name = f"pod-{next(self._numbers)}"
        spec = {"devices": {"requests": requests} | (devices or {})}
        self.client.create(kube.CLAIMS, {"metadata": {"name": name}, "spec": spec}, namespace)
        body = {
            "metadata": {"name": name},
            "spec": {
                "containers": [kubelet_node.container("main", {"name": "gpu"})],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            },
        }
        if node:
            body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        self.client.create(kube.PODS, body, namespace)
        return Pod(self, name, namespace)


class Pod:
    """A pod of the fleet, and its claim of the same name."""

    def __init__(self, fleet: Fleet, name: str, namespace: str) -> None:
        self._fleet = fleet
        self.name = name
        self.namespace = namespace

    def wait_running(self) -> "Pod":
        until(lambda: self.body()["status"].get("phase") == "Running", what=f"{self.name} runs")
        return self

    def body(self) -> Json:
        return {"status": {}} | self._fleet.client.get(kube.PODS, self.name, self.namespace)

    def claim(self) -> Json:
        return self._fleet.client.get(kube.CLAIMS, self.name, self.namespace)

    def results(self) -> list[Json]:
        return list(self.claim()["status"]["allocation"]["devices"]["results"])

    def view(self) -> runtime.View:
        """What its container sees."""
        body = self.body()
        kubelet = self._fleet.running.nodes[body["spec"]["nodeName"]].kubelet
        return kubelet.views(body["metadata"]["uid"])["main"]

    def output(self) -> list[str]:
        """What `nvidia-smi -L` says in its container."""
        return list(self.view().output)

    def delete(self) -> None:
        client = self._fleet.client
        client.delete(kube.PODS, self.name, self.namespace, grace_period=0)
        client.delete(kube.CLAIMS, self.name, self.namespace)
        until(
            lambda: (
                not any(
                    each["metadata"]["name"] == self.name for each in client.list(kube.CLAIMS)[0]
                )
            ),
            what=f"claim {self.name} is gone",
        )
