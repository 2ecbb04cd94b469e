"""A node on which MPS daemons are pods: an API server, a kubelet for them, and launchers."""

import contextlib
from collections.abc import Iterator

import api_cluster
import mps_scene
import pod_kubelet
import polling

from dra_driver import settings
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import patience
from dra_driver.apps.mps import mps_pods
from dra_driver.model import mps

NAMESPACE = "dra-driver"
SECONDS = 180.0
"""How long a daemon may take to be ready, or to end."""


def with_namespace(cluster: api_cluster.Cluster) -> api_cluster.Cluster:
    """The API server, which has the pods' namespace then."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.client.create(kube.NAMESPACES, body)
    return cluster


@contextlib.contextmanager
def running_pods(cluster: api_cluster.Cluster) -> Iterator[pod_kubelet.Kubelet]:
    """What runs the pods; those that are left are removed."""
    made = pod_kubelet.Kubelet(cluster.client, api_cluster.NODE, NAMESPACE)
    try:
        yield made
    finally:
        made.close()
        for pod in made.pods():
            cluster.client.delete(kube.PODS, pod["metadata"]["name"], NAMESPACE, grace_period=0)


class Launchers:
    """Makes launchers; one made later is the driver after a restart, or an upgrade."""

    def __init__(self, cluster: api_cluster.Cluster, scene: mps_scene.Scene) -> None:
        self._cluster, self._scene = cluster, scene

    def new(self, *, private_shm: bool = False, **fields: object) -> mps_pods.PodLauncher:
        """`fields` are settings."""
        wanted = {"mps_launcher": "pod", "mps_image": "driver:1", "pod_namespace": NAMESPACE}
        config = settings.KubeletPlugin(
            node_name=api_cluster.NODE, state_dir=self._scene.root, **wanted | fields
        )
        processes = self._scene.launcher(private_shm=private_shm)
        return mps_pods.launcher(config, self._cluster.client, self._scene.layout, processes)


def started(launcher: mps_pods.PodLauncher, daemon: mps.Daemon) -> mps.Daemon:
    """The daemon, ready."""
    launcher.start(daemon)
    launcher.wait_ready(daemon, patience.Patience(SECONDS))
    return daemon


def begun(launcher: mps_pods.PodLauncher, daemon: mps.Daemon) -> mps.Daemon:
    """The daemon, with a pod that makes it run."""
    launcher.start(daemon)
    launcher.bring_up(daemon, patience.Patience(SECONDS))
    return daemon


def stopped(launcher: mps_pods.PodLauncher, daemon: mps.Daemon) -> None:
    """Nothing is left of the daemon, nor of its pod."""
    ended(launcher, daemon)
    polling.until(launcher.sweeper.sweep, what="the end of its pod")


def ended(launcher: mps_pods.PodLauncher, daemon: mps.Daemon) -> None:
    """Nothing is left of the daemon on the node."""
    if not launcher.retire(daemon):
        launcher.wait_ended(daemon, patience.Patience(SECONDS))
    launcher.remove(daemon)


def uid(pod: kube.Json) -> str:
    return str(pod["metadata"]["uid"])


def refusing(cluster: api_cluster.Cluster, verb: str, *faults):
    """Inside the block the next requests for pods meet these faults, one each."""
    left = list(faults)

    def rule(call):
        hit = call.resource == "pods" and call.verb == verb
        return left.pop(0) if left and hit else None

    return cluster.faults.where(rule)
