"""The driver in a cluster for end-to-end cases: the chart, rendered and applied, and taken away."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import chart
import e2e_site

from dra_driver.adapters.kube import kube

Json = dict[str, Any]

RELEASE = "dra-driver"
DAEMON_SET = f"{RELEASE}-kubelet-plugin"
GPUS = "h100-80gb-hbm3:2,t4:2"
"""What each node has: two cards that are cut, one that is shared, and one that is whole."""
SHARED = 2
"""The index of the card of which many claims consume memory."""

_NAMESPACED_LATER = ("DaemonSet", "Deployment")


def values(options: e2e_site.Options, **settings: Any) -> Json:
    """Of the chart: simulated GPUs on the nodes with the label, and no others."""
    rule = {
        "selector": f"device.attributes['{e2e_site.DRIVER}'].index == {SHARED}",
        "shares": "memory",
        "shareEnforcement": "None",
    }
    repository, _, tag = options.image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "settings": {"simulateGpus": GPUS, "gpus": [rule], **settings},
        "kubeletPlugin": {
            "affinity": None,
            "nodeSelector": {options.label: "true"},
            # A case replaces one pod after the other, and counts what is done meanwhile.
            "surge": False,
        },
        # It would refuse what a case shows to be refused by the driver itself.
        "webhook": {"enabled": False},
    }


class Installation:
    """The driver, installed; `objects` are all that the chart made."""

    def __init__(self, site: e2e_site.Site, killer: Callable[[str], None] | None = None) -> None:
        """`killer` kills the process of a node's plugin."""
        self.site = site
        self.killer = killer
        self.objects: list[Json] = []

    def apply(self, **settings: Any) -> None:
        """Install the driver, or set it anew, and wait until all nodes publish."""
        namespace = self.site.options.namespace
        self.objects = [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": namespace,
                    "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
                },
            },
            *chart.objects(
                values(self.site.options, **settings), name=RELEASE, namespace=namespace
            ),
        ]
        later = [body for body in self.objects if body["kind"] in _NAMESPACED_LATER]
        self.site.apply(body for body in self.objects if body not in later)
        self.site.apply(later)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until each node has the newest pod, which is ready, and all its devices."""
        self.site.wait(self.is_ready, lambda: f"the driver on {self.site.nodes}: {self.told()}")

    def is_ready(self) -> bool:
        """Whether each node has the newest pod, which is ready, and all its devices."""
        namespace, wanted = self.site.options.namespace, len(self.site.nodes)
        body = self.site.client.get(e2e_site.DAEMON_SETS, DAEMON_SET, namespace)
        status = body.get("status") or {}
        return (
            status.get("observedGeneration") == body["metadata"].get("generation")
            and status.get("desiredNumberScheduled") == wanted
            and status.get("updatedNumberScheduled") == wanted
            and status.get("numberReady") == wanted
            and self.site.complete()
        )

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Inside the block no node has a pod of the plugin."""
        self._place({"e2e.dra-driver/nowhere": "true"})
        self.site.wait(lambda: not self.site.plugin_pods(DAEMON_SET), "the plugins to be gone")
        try:
            yield
        finally:
            self._place({"e2e.dra-driver/nowhere": None})
            self.wait_ready()

    def roll(self) -> None:
        """Exchange the pods of the plugin, node by node, as an update does; does not wait."""
        mark = {"e2e.dra-driver/rolled": str(time.time())}
        template = {"metadata": {"annotations": mark}}
        self._patch({"spec": {"template": template}})

    def kill(self, node: str) -> None:
        """Kill the plugin of a node: its process where that can be had, or else its pod."""
        pod = self.site.plugin_pods(DAEMON_SET)[node]
        if self.killer is not None:
            self.killer(node)
            return
        name, namespace = pod["metadata"]["name"], self.site.options.namespace
        self.site.client.delete(kube.PODS, name, namespace, grace_period=0)

    def _place(self, selector: Json) -> None:
        self._patch({"spec": {"template": {"spec": {"nodeSelector": selector}}}})

    def _patch(self, patch: Json) -> None:
        self.site.client.patch(e2e_site.DAEMON_SETS, DAEMON_SET, patch, self.site.options.namespace)

    def told(self) -> str:
        """What there is to tell of an installation that is not as it should be."""
        pods = self.site.plugin_pods(DAEMON_SET)
        status = self.site.client.get(
            e2e_site.DAEMON_SETS, DAEMON_SET, self.site.options.namespace
        ).get("status")
        logs = {}
        for node, pod in pods.items():
            with contextlib.suppress(Exception):
                name = pod["metadata"]["name"]
                log = self.site.log(self.site.options.namespace, name, "kubelet-plugin")
                logs[node] = log.splitlines()[-5:]
        return json.dumps({"daemonSet": status, "logs": logs, "slices": len(self.site.slices())})

    def remove(self) -> None:
        """Take everything away that was applied, the namespace last, and the slices."""
        self.site.delete(list(reversed(self.objects)))
        for body in self.site.slices():
            with contextlib.suppress(kube.NotFound):
                self.site.client.delete(kube.SLICES, body["metadata"]["name"])
        self.objects = []
