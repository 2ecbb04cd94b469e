"""The driver in a cluster for end-to-end cases: the chart, rendered and applied, and taken away."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import chart
import e2e_site

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import manifests

Json = dict[str, Any]

RELEASE = "dra-driver"
DAEMON_SET = f"{RELEASE}-kubelet-plugin"
GPUS = "h100-80gb-hbm3:2,t4:2"
"""What each node has: two cards that are cut, one that is shared, and one that is whole."""
SHARED = 2
"""The index of the card of which many claims consume memory."""

_NAMESPACED_LATER = ("DaemonSet", "Deployment")


_RULE = {
    "selector": f"device.attributes['{e2e_site.DRIVER}'].index == {SHARED}",
    "shares": "memory",
    "shareEnforcement": "None",
}
SETTINGS = {"simulateGpus": GPUS, "gpus": [_RULE]}
"""Those of all cases that need no others."""


def values(options: e2e_site.Options, settings: Json, selector: Mapping[str, str]) -> Json:
    """Of the chart: simulated GPUs on the nodes with the label, and no others."""
    repository, _, tag = options.image.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "settings": settings,
        "kubeletPlugin": {
            "affinity": None,
            "nodeSelector": {options.label: "true", **selector},
            # A case replaces one pod after the other, and counts what is done meanwhile.
            "surge": False,
        },
        # It would refuse what a case shows to be refused by the driver itself.
        "webhook": {"enabled": False},
    }


def rendered(options: e2e_site.Options, settings: Json, selector: Mapping[str, str]) -> list[Json]:
    """All objects that are applied, the namespace first."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": options.namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    }
    chosen = values(options, settings, selector)
    return [namespace, *chart.objects(chosen, name=RELEASE, namespace=options.namespace)]


def foreign(site: e2e_site.Site) -> list[str]:
    """What is in the cluster that an installation would change and take away; none of it if it is
    left over from an earlier one."""
    namespace = site.options.namespace
    if not site.is_gone(e2e_site.DAEMON_SETS, DAEMON_SET, namespace):
        return []
    there = [
        manifests.full_name(body)
        for body in rendered(site.options, SETTINGS, {})
        if site.is_there(body)
    ]
    items, _ = site.client.list(kube.SLICES, field_selector=f"spec.driver={e2e_site.DRIVER}")
    nodes = {str(body["spec"].get("nodeName")) for body in items}
    return there + [f"ResourceSlices of {e2e_site.DRIVER} of node {node}" for node in sorted(nodes)]


class Installation:
    """The driver, installed; `objects` are all that the chart made."""

    def __init__(self, site: e2e_site.Site, killer: Callable[[str], None] | None = None) -> None:
        """`killer` kills the process of a node's plugin."""
        self.site = site
        self.killer = killer
        self.objects: list[Json] = []
        self.nodes = site.nodes
        self._settings: Json = {}

    def apply(self, settings: Json = SETTINGS, *, node: str | None = None) -> None:
        """Install the driver, or set it anew, and wait until all its nodes publish.

        They are those with the label, or one of them.
        """
        self.nodes = self.site.nodes if node is None else [node]
        self._settings = settings
        selector = self.site.only(node) if node else {}
        namespace = self.site.options.namespace
        self.objects = rendered(self.site.options, settings, selector)
        is_there = not self.site.is_gone(e2e_site.DAEMON_SETS, DAEMON_SET, namespace)
        for body in self.objects:
            if is_there and body["kind"] == "DaemonSet" and not selector:
                # What is merged into it takes nothing away that is not named.
                body["spec"]["template"]["spec"]["nodeSelector"][e2e_site.HOST_NAME] = None
        later = [body for body in self.objects if body["kind"] in _NAMESPACED_LATER]
        self.site.apply(body for body in self.objects if body not in later)
        self.site.apply(later)
        self._clear_others()
        self.wait_ready()

    def _clear_others(self) -> None:
        """Remove the slices of nodes without a plugin, as the kubelet does after half a minute."""
        self.site.wait(
            lambda: self.site.plugin_pods(DAEMON_SET).keys() <= {*self.nodes},
            f"the plugin to be on {self.nodes} alone",
        )
        for body in self.site.slices():
            if body["spec"]["nodeName"] not in self.nodes:
                with contextlib.suppress(kube.NotFound):
                    self.site.client.delete(kube.SLICES, body["metadata"]["name"])

    def wait_ready(self) -> None:
        """Wait until each node has the newest pod, which is ready, and all its devices."""
        self.site.wait(self.is_ready, lambda: f"the driver on {self.nodes}: {self.told()}")

    def is_ready(self) -> bool:
        """Whether each node has the newest pod, which is ready, and all its devices."""
        namespace, wanted = self.site.options.namespace, len(self.nodes)
        body = self.site.client.get(e2e_site.DAEMON_SETS, DAEMON_SET, namespace)
        status = body.get("status") or {}
        return (
            status.get("observedGeneration") == body["metadata"].get("generation")
            and status.get("desiredNumberScheduled") == wanted
            and status.get("updatedNumberScheduled") == wanted
            and status.get("numberReady") == wanted
            and self.site.complete(self.nodes)
            and self._is_published()
        )

    def _is_published(self) -> bool:
        """Whether it is these settings by which slices are; those of earlier ones may be there."""
        whole = sum(int(part.rpartition(":")[2]) for part in self._gpus.split(","))
        shared = whole if self._settings.get("shares") else len(self._settings.get("gpus", ()))
        cut = self._settings.get("migMode") != "off"
        for node in self.nodes:
            found = [body for (on, _), body in self.site.devices().items() if on == node]
            cards = [body for body in found if body["attributes"]["type"] == {"string": "gpu"}]
            many = [body for body in cards if body.get("allowMultipleAllocations")]
            if (len(cards), len(many), len(found) > len(cards)) != (whole, shared, cut):
                return False
        return True

    @property
    def _gpus(self) -> str:
        return str(self._settings["simulateGpus"])

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
