"""A kubelet, as far as a DRA driver meets it: registration, pods, prepare and unprepare.

Unlike the real one: a failed prepare or unprepare is tried again after seconds, not after a minute
(a change of the pod brings it forward, as there); containers are stopped without grace; there
are no init containers, probes, volumes or resource limits; slices are deleted once at the start,
whether that works or not. A new object starts with no memory of an earlier one: claims of pods
that ran then are prepared again. Source: Kubernetes 1.36, `pkg/kubelet`.
"""

import concurrent.futures
import dataclasses
import pathlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.sim.cluster import (
    claim_cache,
    device_health,
    events,
    health_status,
    kubelet_release,
    plugins,
    pod_parts,
    pod_status,
    restarts,
    runtime,
)

Json = dict[str, Any]

RETRY_SECONDS = 2.0
"""Until a pod that could not start is tried again; the real kubelet takes 60 to 90."""
PODS = 256
"""Pods that a node can run."""
WAIT_SECONDS = 60.0
"""Between looks at a pod of which nothing is heard."""


@dataclasses.dataclass(slots=True)
class _Pod:
    """A pod that is bound to the node, until its object is gone."""

    body: Json
    changed: threading.Event
    containers: dict[str, runtime.Running]
    views: Mapping[str, runtime.View]
    gone: bool = False
    ended: bool = False
    prepared: Mapping[str, claim_cache.PreparedClaim] = dataclasses.field(default_factory=dict)
    lives: dict[str, restarts.Life] = dataclasses.field(default_factory=dict)
    health: Mapping[str, list[Json]] = dataclasses.field(default_factory=dict)
    """What its status tells of its devices, by container."""

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def deleting(self) -> bool:
        return self.gone or "deletionTimestamp" in self.body["metadata"]


class Kubelet:
    """One node: it registers plugins, and runs the pods that are bound to it."""

    def __init__(
        self,
        client: kube.Client,
        node_name: str,
        root: pathlib.Path,
        containers: runtime.Runtime,
        behaviour: kubelet_release.Behaviour = kubelet_release.FIXED,
    ) -> None:
        """`root` is the kubelet's root directory; `behaviour` is that of a release."""
        self._client = client
        self._node = node_name
        self._runtime = containers
        self._log = telemetry.logger("kubelet")
        self._events = events.Recorder(client, f"kubelet/{node_name}")
        self._behaviour = behaviour
        self._health = device_health.Health(on_change=self._on_health, behaviour=behaviour)
        self.plugins = plugins.Plugins(
            root / "plugins_registry", on_gone=self._wipe, health=self._health
        )
        self._claims = claim_cache.ClaimCache(client, self.plugins, behaviour)
        self._pods: dict[str, _Pod] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._workers = concurrent.futures.ThreadPoolExecutor(PODS, f"pods-{node_name}")
        self._informer = informer.Informer(
            client,
            kube.PODS,
            on_change=self._on_pod,
            field_selector=f"spec.nodeName={node_name}",
        )

    def start(self) -> None:
        """Begin: slices of an earlier life are removed, as a kubelet does at its start."""
        self._client.delete_collection(kube.SLICES, field_selector=f"spec.nodeName={self._node}")
        self.plugins.start()
        self._informer.start()

    def stop(self) -> None:
        """Stop all containers and unprepare their claims; pods stay as they are in the API."""
        self._informer.stop()
        self._stop.set()
        with self._lock:
            pods = list(self._pods.values())
        for pod in pods:
            pod.changed.set()
        self._workers.shutdown(wait=True)
        self.plugins.stop()
        self._runtime.close()

    def views(self, pod_uid: str) -> Mapping[str, runtime.View]:
        """What each container of a pod sees, or saw before it ended, by container name."""
        with self._lock:
            pod = self._pods.get(pod_uid)
            containers = dict(pod.containers) if pod else {}
        if containers:
            return {name: container.view() for name, container in containers.items()}
        return pod.views if pod else {}

    def prepared(self, pod_uid: str) -> Mapping[str, claim_cache.PreparedClaim]:
        """What was prepared for a pod, by its names of claims; kept as long as the pod's object."""
        with self._lock:
            pod = self._pods.get(pod_uid)
            return pod.prepared if pod else {}

    def _wipe(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node},spec.driver={driver}"
        self._client.delete_collection(kube.SLICES, field_selector=selector)

    def _on_health(self) -> None:
        """Pods with devices are looked at again."""
        with self._lock:
            pods = [pod for pod in self._pods.values() if pod.prepared]
        for pod in pods:
            pod.changed.set()

    def _on_pod(self, kind: str, body: Json) -> None:
        uid = body["metadata"]["uid"]
        with self._lock:
            pod = self._pods.get(uid)
            if pod is None:
                if kind == "DELETED":
                    return
                pod = self._pods[uid] = _Pod(body, threading.Event(), {}, {})
                pod.ended = body.get("status", {}).get("phase") in _ENDED
                if not pod.ended:
                    self._workers.submit(self._run, pod)
            pod.body = body
            if kind == "DELETED":
                pod.gone = True
                if pod.ended:
                    del self._pods[uid]
            pod.changed.set()
            if pod.ended and pod.deleting and not pod.gone:
                self._workers.submit(self._delete, pod)

    def _run(self, pod: _Pod) -> None:
        """One pod's whole life, in a thread of its own."""
        try:
            statuses = self._follow(pod) if self._start_pod(pod) else {}
            self._end(pod, statuses)
        except Exception:  # noqa: BLE001 - a thread has nobody to raise to; other pods go on
            self._log.exception("pod worker failed", pod=pod.body["metadata"]["name"])
        with self._lock:
            pod.ended = True
            if pod.gone:
                self._pods.pop(pod.uid, None)
        if pod.deleting and not pod.gone and not self._stop.is_set():
            self._delete(pod)

    def _start_pod(self, pod: _Pod) -> bool:
        """Prepare and start, again and again; False when the pod has to go before it ran."""
        while True:
            pod.changed.clear()
            if pod.deleting or self._stop.is_set():
                return False
            reason = "FailedPrepareDynamicResources"
            try:
                pod.prepared = self._claims.prepare(pod_parts.claims(pod.body))
                reason = "Failed"
                for container in pod.body["spec"]["containers"]:
                    self._start_container(pod, container)
                self._report(pod, "Running")
            except errors.DriverError as error:
                self._stop_containers(pod)
                self._retry_later(pod, reason, error)
            else:
                return True

    def _start_container(self, pod: _Pod, container: Json) -> None:
        asked = pod_parts.container(pod.body, container, pod.prepared)
        if not self._behaviour.devices_pile_up:
            asked = dataclasses.replace(asked, cdi_ids=tuple(dict.fromkeys(asked.cdi_ids)))
        started = self._runtime.start(asked, pod.changed.set)
        with self._lock:
            pod.containers[container["name"]] = started

    def _follow(self, pod: _Pod) -> dict[str, int | None]:
        """Wait for the end of the pod; the exit status of each container, None if it still runs."""
        while True:
            pod.changed.clear()
            statuses = {name: started.status() for name, started in pod.containers.items()}
            if pod.deleting or self._stop.is_set():
                return statuses
            due = self._restart(pod, statuses)
            if due is None and None not in statuses.values():
                return statuses
            self._tell_health(pod)
            pod.changed.wait(WAIT_SECONDS if due is None else due)

    def _restart(self, pod: _Pod, statuses: Mapping[str, int | None]) -> float | None:
        """Start what has ended and is wanted again; seconds until the next one, None if none is."""
        policy = pod.body["spec"].get("restartPolicy", "Always")
        due: list[float] = []
        told = False
        for container in pod.body["spec"]["containers"]:
            name = container["name"]
            status, life = statuses[name], pod.lives.setdefault(name, restarts.Life())
            if status is None or not restarts.is_due(policy, status):
                continue
            if life.at is None:
                told = True
                life.ended(pod_status.terminated(status), time.monotonic())
            left = (life.at or 0.0) - time.monotonic()
            if left <= 0:
                told = True
                left = self._start_again(pod, container, life)
            due.append(left)
        if told:
            self._report_restarts(pod)
        return min(due, default=None)

    def _start_again(self, pod: _Pod, container: Json, life: restarts.Life) -> float:
        """Start a container once more; seconds until the next look at it."""
        pod.containers[container["name"]].stop()
        try:
            self._start_container(pod, container)
        except errors.DriverError as error:
            self._events.record(pod.body, "Warning", "Failed", str(error))
            return RETRY_SECONDS
        life.started()
        return WAIT_SECONDS

    def _report_restarts(self, pod: _Pod) -> None:
        """Tell of containers that wait and start again; the next change is told if this is not."""
        try:
            self._report(pod, "Running")
        except errors.DriverError as error:
            self._log.info("restart is not told", pod=pod.uid, reason=str(error))

    def _end(self, pod: _Pod, statuses: Mapping[str, int | None]) -> None:
        """Stop and unprepare; then the pod is done, which its status tells."""
        self._stop_containers(pod)
        failed = not statuses or any(status != 0 for status in statuses.values())
        while True:
            pod.changed.clear()
            try:
                self._claims.unprepare(pod.uid, pod_parts.claim_keys(pod.body))
                if not (pod.gone or self._stop.is_set()):
                    self._report(pod, "Failed" if failed else "Succeeded", statuses)
            except errors.DriverError as error:
                if self._stop.is_set():
                    return
                self._retry_later(pod, "FailedUnprepareDynamicResources", error)
            else:
                return

    def _retry_later(self, pod: _Pod, reason: str, error: errors.DriverError) -> None:
        """Tell why, and wait until it is tried again: for some time, or for a change of the pod."""
        self._events.record(pod.body, "Warning", reason, str(error))
        pod.changed.wait(RETRY_SECONDS)

    def _stop_containers(self, pod: _Pod) -> None:
        with self._lock:
            containers, pod.containers = pod.containers, {}
            pod.views = {name: c.view() for name, c in containers.items()} or pod.views
        for container in containers.values():
            container.stop()

    def _delete(self, pod: _Pod) -> None:
        """Let the object go; nothing else tells of it again, so it is tried until it is gone."""
        metadata = pod.body["metadata"]
        while not (pod.gone or self._stop.is_set()):
            try:
                self._client.delete(
                    kube.PODS, metadata["name"], metadata["namespace"], uid=pod.uid, grace_period=0
                )
            except (kube.NotFound, kube.Conflict):
                return
            except kube.ApiError as error:
                self._log.info("pod is not deleted yet", pod=metadata["name"], reason=str(error))
                self._stop.wait(RETRY_SECONDS)
            else:
                return

    def _report(
        self, pod: _Pod, phase: str, statuses: Mapping[str, int | None] | None = None
    ) -> None:
        """Write the pod's status; a pod that is gone meanwhile needs none."""
        health = self._health_of(pod)

        def change(body: Json) -> Json:
            status = pod_status.told(body, phase, statuses or {}, pod.lives)
            return status | pod_status.with_health(status, health)

        self._write(pod, change)
        pod.health = health

    def _tell_health(self, pod: _Pod) -> None:
        """Write how the pod's devices are, where that is not what its status tells."""
        health = self._health_of(pod)
        if health == pod.health:
            return
        try:
            self._write(pod, lambda body: pod_status.with_health(body.get("status") or {}, health))
        except kube.ApiError as error:
            # It is tried again at the next look at the pod.
            self._log.info("device health is not told", pod=pod.uid, reason=str(error))
        else:
            pod.health = health

    def _health_of(self, pod: _Pod) -> Mapping[str, list[Json]]:
        return {
            container["name"]: health_status.allocated(container, pod.prepared, self._health.cache)
            for container in pod.body["spec"]["containers"]
        }

    def _write(self, pod: _Pod, change: Callable[[Json], Json]) -> None:
        """Write to the pod's status, unless it is gone."""
        metadata = pod.body["metadata"]
        try:
            body = self._client.get(kube.PODS, metadata["name"], metadata["namespace"])
            if body["metadata"]["uid"] == pod.uid:
                self._client.patch(
                    kube.PODS,
                    metadata["name"],
                    # A pod of the same name that came meanwhile is another one.
                    {"metadata": {"uid": pod.uid}, "status": change(body)},
                    metadata["namespace"],
                    subresource="status",
                )
        except (kube.NotFound, kube.Conflict):
            return


_ENDED = ("Succeeded", "Failed")
