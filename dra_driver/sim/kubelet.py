"""A kubelet, as far as a DRA driver meets it: registration, pods, prepare and unprepare.

Simplified: a failed prepare is tried again after seconds, not after a minute; there are no init
containers, probes or volumes. Source: Kubernetes 1.36, `pkg/kubelet`.
"""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters import informer, kube
from dra_driver.sim import claim_cache, events, plugins, runtime

Json = dict[str, Any]

RETRY_SECONDS = 2.0
"""Until a pod that could not start is tried again; the real kubelet takes 60 to 90."""
PODS = 256
"""Pods that a node can run."""
LOOK_SECONDS = 0.2
"""Between looks at whether a container has ended by itself."""


@dataclasses.dataclass(slots=True)
class _Pod:
    """A pod that is bound to the node, until its object is gone."""

    body: Json
    changed: threading.Event
    containers: dict[str, runtime.Running]
    views: Mapping[str, runtime.View]
    gone: bool = False
    ended: bool = False

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
    ) -> None:
        """`root` is the kubelet's root directory."""
        self._client = client
        self._node = node_name
        self._runtime = containers
        self._log = telemetry.logger("kubelet")
        self._events = events.Recorder(client, f"kubelet/{node_name}")
        self.plugins = plugins.Plugins(root / "plugins_registry", on_gone=self._wipe)
        self._claims = claim_cache.ClaimCache(client, self.plugins)
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

    def views(self, pod_uid: str) -> Mapping[str, runtime.View]:
        """What each container of a pod sees, or saw before it ended, by container name."""
        with self._lock:
            pod = self._pods.get(pod_uid)
            containers = dict(pod.containers) if pod else {}
        if containers:
            return {name: container.view() for name, container in containers.items()}
        return pod.views if pod else {}

    def _wipe(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node},spec.driver={driver}"
        with contextlib.suppress(kube.ApiError):
            self._client.delete_collection(kube.SLICES, field_selector=selector)

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
            self._delete(pod)

    def _run(self, pod: _Pod) -> None:
        """One pod's whole life, in a thread of its own."""
        try:
            phase = self._follow(pod) if self._start_pod(pod) else "Failed"
            self._end(pod, phase)
        except Exception:  # noqa: BLE001 - a thread has nobody to raise to; other pods go on
            self._log.exception("pod worker failed", pod=pod.body["metadata"]["name"])
        with self._lock:
            pod.ended = True
            if pod.gone:
                self._pods.pop(pod.uid, None)

    def _start_pod(self, pod: _Pod) -> bool:
        """Prepare and start, again and again; False when the pod has to go before it ran."""
        while not (pod.deleting or self._stop.is_set()):
            pod.changed.clear()
            try:
                self._start_containers(pod)
            except errors.DriverError as error:
                self._events.record(
                    pod.body, "Warning", "FailedPrepareDynamicResources", str(error)
                )
                self._stop_containers(pod)
                self._stop.wait(RETRY_SECONDS)
                continue
            self._report(pod, "Running", ready=True)
            return True
        return False

    def _start_containers(self, pod: _Pod) -> None:
        prepared = self._claims.prepare(_pod_claims(pod.body))
        for container in pod.body["spec"]["containers"]:
            started = self._runtime.start(_container(pod.body, container, prepared))
            with self._lock:
                pod.containers[container["name"]] = started

    def _follow(self, pod: _Pod) -> str:
        """Wait for the end of the pod; its final phase."""
        statuses: dict[str, int] = {}
        while not (pod.deleting or self._stop.is_set()):
            for name, container in pod.containers.items():
                status = None if name in statuses else container.wait(LOOK_SECONDS)
                if status is not None:
                    statuses[name] = status
            if statuses.keys() == pod.containers.keys():
                break
        return "Failed" if any(statuses.values()) else "Succeeded"

    def _end(self, pod: _Pod, phase: str) -> None:
        self._stop_containers(pod)
        while True:
            try:
                self._claims.unprepare(pod.uid)
                break
            except errors.DriverError as error:
                self._events.record(
                    pod.body, "Warning", "FailedUnprepareDynamicResources", str(error)
                )
                if self._stop.wait(RETRY_SECONDS):
                    return
        if self._stop.is_set() or pod.gone:
            return
        self._report(pod, phase, ready=False)
        if pod.deleting:
            self._delete(pod)

    def _stop_containers(self, pod: _Pod) -> None:
        with self._lock:
            containers, pod.containers = pod.containers, {}
            pod.views = {name: c.view() for name, c in containers.items()} or pod.views
        for container in containers.values():
            container.stop()

    def _delete(self, pod: _Pod) -> None:
        metadata = pod.body["metadata"]
        with contextlib.suppress(kube.ApiError):
            self._client.delete(
                kube.PODS, metadata["name"], metadata["namespace"], uid=pod.uid, grace_period=0
            )

    def _report(self, pod: _Pod, phase: str, *, ready: bool) -> None:
        """Write the pod's status; a pod that is gone meanwhile needs none."""
        metadata = pod.body["metadata"]
        statuses = [
            {"name": c["name"], "image": c.get("image", ""), "ready": ready, "restartCount": 0}
            for c in pod.body["spec"]["containers"]
        ]
        try:
            body = self._client.get(kube.PODS, metadata["name"], metadata["namespace"])
            conditions = [
                c
                for c in body["status"].get("conditions") or ()
                if c["type"] not in _OUR_CONDITIONS
            ]
            conditions += [
                {"type": kind, "status": "True" if ready else "False"} for kind in _OUR_CONDITIONS
            ]
            patch = {
                "status": {
                    "phase": phase,
                    "conditions": conditions,
                    "containerStatuses": [
                        status | {"started": ready, "state": _state(phase)} for status in statuses
                    ],
                }
            }
            self._client.patch(
                kube.PODS, metadata["name"], patch, metadata["namespace"], subresource="status"
            )
        except kube.NotFound:
            return


_ENDED = ("Succeeded", "Failed")
_OUR_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


def _state(phase: str) -> Json:
    if phase == "Running":
        return {"running": {}}
    return {
        "terminated": {
            "exitCode": int(phase == "Failed"),
            "reason": "Completed" if phase == "Succeeded" else "Error",
        }
    }


def _pod_claims(pod: Json) -> claim_cache.PodClaims:
    statuses = {
        item["name"]: item.get("resourceClaimName")
        for item in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    return claim_cache.PodClaims(
        namespace=pod["metadata"]["namespace"],
        pod_uid=pod["metadata"]["uid"],
        names={
            item["name"]: item.get("resourceClaimName") or statuses.get(item["name"])
            for item in pod["spec"].get("resourceClaims") or ()
        },
    )


def _container(
    pod: Json, container: Json, prepared: Mapping[str, claim_cache.PreparedClaim]
) -> runtime.Container:
    used = (container.get("resources") or {}).get("claims") or ()
    cdi_ids = [
        cdi_id for use in used for cdi_id in prepared[use["name"]].cdi_ids(use.get("request"))
    ]
    return runtime.Container(
        pod_uid=pod["metadata"]["uid"],
        name=container["name"],
        command=(*(container.get("command") or ()), *(container.get("args") or ())),
        env={item["name"]: item.get("value", "") for item in container.get("env") or ()},
        cdi_ids=tuple(dict.fromkeys(cdi_ids)),
    )
