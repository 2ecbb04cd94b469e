"""A scheduler for pods with ResourceClaims: filters nodes, allocates devices, binds.

It follows kube-scheduler 1.36 in what a user of claims sees (conditions, events, finalizer,
reservedFor, one status update for allocation and reservation) and in the order of pods, which is
that of their priority. Not followed: CPU and memory, preemption, volumes, spreading beyond the
number of pods of a node.
"""

import dataclasses
import datetime as dt
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.logic.scheduling import binding, emulation, placing, scheduling
from dra_driver.model import claims
from dra_driver.sim.cluster import (
    claim_status,
    cluster_state,
    events,
    extended_claims,
    work_queue,
    worker,
)

Json = dict[str, Any]
Key = cluster_state.Key

SYNC_SECONDS = 30.0
"""For the watch to show what was written, and for the thread to end."""


class _Unschedulable(Exception):  # noqa: N818 - the reason of the pod's condition
    """No node takes the pod now; the text is the condition's message, if there is any."""


class _NotReady(_Unschedulable):
    """The pod has its devices, and they are not ready to be used yet."""


class Scheduler:
    """A thread that gives nodes to pods, one pod after another.

    What it writes counts at once, before the watch shows it: that is what keeps two pods in a row
    from getting one device.
    """

    def __init__(
        self,
        client: kube.Client,
        behaviour: emulation.Emulation = emulation.FIXED,
        *,
        extended: bool = True,
    ) -> None:
        """Nothing is started. `behaviour` are defects of a Kubernetes release to reproduce.

        `extended` is the gate DRAExtendedResource: claims are made for extended resources.
        """
        self._client = client
        self._log = telemetry.logger("scheduler")
        self._events = events.Recorder(client, "default-scheduler")
        self._state = cluster_state.ClusterState(behaviour)
        self._queue: work_queue.WorkQueue[Key] = work_queue.WorkQueue(self._priority)
        self._lock = threading.Lock()
        self._parked: dict[Key, frozenset[str]] = {}
        self._moves = 0
        self._pods = informer.Informer(client, kube.PODS, on_change=self._on_pod)
        self._claims = informer.Informer(client, kube.CLAIMS, on_change=self._on_claim)
        self._slices, self._nodes, classes = (
            informer.Informer(client, resource, on_change=self._moving(on_change))
            for resource, on_change in (
                (kube.SLICES, self._state.on_slice),
                (kube.NODES, self._state.on_node),
                (kube.CLASSES, self._state.on_class),
            )
        )
        known = extended_claims.Known(self._state, self._pods, self._claims, classes)
        self._extended = extended_claims.ExtendedClaims(
            client, known, on_written=self._written, enabled=extended
        )
        # Pods last: by then most of what they need is known.
        informers = [self._slices, classes, self._nodes, self._claims, self._pods]
        if behaviour.taint_rules:
            on_rule = self._moving(self._state.on_taint_rule)
            informers.insert(0, informer.Informer(client, kube.TAINT_RULES, on_change=on_rule))
        self._worker = worker.Worker("scheduler", self._queue, informers, self._attempt)

    def start(self) -> None:
        """Begin to watch and to schedule."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; what is being done is finished first."""
        self._worker.stop()

    def wait_known(self, nodes: Iterable[Json], slices: Iterable[Json]) -> None:
        """Wait until Nodes and ResourceSlices, as they were read, count for pods.

        Raises:
            errors.Retryable: they do not within `SYNC_SECONDS`.
        """
        for objects, bodies in ((self._nodes, nodes), (self._slices, slices)):
            for body in bodies:
                self._wait(objects, body)

    def _priority(self, key: Key) -> int:
        """That of the pod. Source: kube-scheduler 1.36, queuesort.PrioritySort."""
        body = self._pods.get(key[1], key[0])
        return int((body or {"spec": {}})["spec"].get("priority") or 0)

    def _on_pod(self, kind: str, body: Json) -> None:
        self._state.on_pod(kind, body)
        if kind != cluster_state.DELETED and placing.is_pending(body):
            self._queue.put(_key(body))
        elif self._extended.gave_back(kind, body):
            self._move()

    def _on_claim(self, kind: str, body: Json) -> None:
        if self._state.on_claim(kind, body):
            self._move()
            return
        namespace, name = _key(body)
        with self._lock:
            waiting = [
                key for key, names in self._parked.items() if key[0] == namespace and name in names
            ]
            for key in waiting:
                del self._parked[key]
            # A pod that is being tried right now may have missed it.
            self._moves += 1
        for key in waiting:
            self._queue.put(key)

    def _moving(self, on_change: Callable[[str, Json], bool]) -> Callable[[str, Json], None]:
        def changed(kind: str, body: Json) -> None:
            if on_change(kind, body):
                self._move()

        return changed

    def _move(self) -> None:
        """Something changed that may let pods fit that did not."""
        with self._lock:
            self._moves += 1
            parked, self._parked = self._parked, {}
        for key in parked:
            self._queue.put(key)

    def _attempt(self, key: Key) -> None:
        with self._lock:
            moves = self._moves
        body = self._pods.get(key[1], key[0])
        if body is None or not placing.is_pending(body):
            return
        if self._state.is_placed(body["metadata"]["uid"]):
            return
        pod = placing.parse(body)
        try:
            self._schedule(pod, body)
        except _Unschedulable as reason:
            if reason.args:
                self._tell(body, str(reason))
            listed = [*(item.claim for item in pod.claims), self._extended.name_of(body)]
            names = frozenset(name for name in listed if name is not None)
            with self._lock:
                if self._moves == moves:
                    self._parked[key] = names
                    return
            self._queue.put(key)

    def _schedule(self, pod: placing.Pod, body: Json) -> None:
        bodies = [self._claim(pod, item) for item in pod.claims]
        try:
            self._place(pod, body, bodies)
        except _NotReady:
            # So the claim of its extended resources is kept.
            raise
        except BaseException:
            self._extended.drop(body)
            raise

    def _place(self, pod: placing.Pod, body: Json, bodies: list[Json]) -> None:
        view, kept = self._state.view(), self._extended.kept(body)
        if kept is not None:
            bodies = [*bodies, kept.claim]
            there = tuple(node for node in view.nodes if node.name == kept.node)
            view = dataclasses.replace(view, nodes=there)
        wanted = self._extended.demand(body, view.nodes) if kept is None else None
        parsed = [_parse(item) for item in bodies]
        found = scheduling.place(pod, parsed, view, wanted)
        if isinstance(found, scheduling.Refusal):
            self._unblock(pod, bodies, found)
            raise _Unschedulable(found.message)
        allocations = iter(found.allocations)
        reserved = []
        for item, claim in zip(bodies, parsed, strict=True):
            new = next(allocations) if claim.allocation is None else None
            reserved.append(claim_status.reserve(self._client, item, new, body))
            self._written(reserved[-1])
        if wanted is not None and (made := self._extended.make(body, found, wanted)) is not None:
            reserved.append(made)
        self._check_ready(pod, reserved)
        self._bind(pod, body, found.node)

    def _check_ready(self, pod: placing.Pod, reserved: Sequence[Json]) -> None:
        """Wait, for the next change of a claim, until all devices are ready to be used.

        Source: PreBind of kube-scheduler's dynamicresources plugin, which gives up after 10 min.
        """
        for claim in reserved:
            if failures := binding.failed(claim):
                self._release_own(pod, claim)
                raise _Unschedulable(f"device failed to become ready: {', '.join(failures)}")
        if waiting := [text for claim in reserved for text in binding.pending(claim)]:
            raise _NotReady(f"waiting for {', '.join(waiting)}")

    def _claim(self, pod: placing.Pod, item: placing.PodClaim) -> Json:
        """The claim as it is, if the pod may use it."""
        if item.claim is None:
            self._look(kube.TEMPLATES, str(item.template), pod.namespace)
            # It is being made, which a change of the pod's status will tell.
            raise _Unschedulable
        body = self._claims.get(item.claim, pod.namespace)
        if body is None:
            body = self._look(kube.CLAIMS, item.claim, pod.namespace)
        if "deletionTimestamp" in body["metadata"]:
            raise _Unschedulable(f'resourceclaim "{item.claim}" is being deleted')
        owners = [owner["uid"] for owner in body["metadata"].get("ownerReferences") or ()]
        if item.template is not None and pod.uid not in owners:
            raise _Unschedulable(
                f'ResourceClaim "{pod.namespace}/{item.claim}" was not created for pod '
                f'"{pod.namespace}/{pod.name}" (pod is not owner)'
            )
        users = [user["uid"] for user in (body.get("status") or {}).get("reservedFor") or ()]
        if pod.uid not in users and len(users) >= placing.MAX_CONSUMERS:
            raise _Unschedulable(
                f'resourceclaim "{item.claim}" is in use by {len(users)} pods, the most allowed'
            )
        return body

    def _look(self, resource: kube.Resource, name: str, namespace: str) -> Json:
        """What the server has: a watch may lag behind the others."""
        try:
            return self._client.get(resource, name, namespace)
        except kube.NotFound as error:
            kind = resource.plural.removesuffix("s")
            raise _Unschedulable(f'{kind} "{name}" not found') from error

    def _unblock(
        self, pod: placing.Pod, bodies: Sequence[Json], refusal: scheduling.Refusal
    ) -> None:
        """Give back one claim's devices that tie the pod to another node, if it alone has them.

        Source: PostFilter of kube-scheduler's dynamicresources plugin.
        """
        for body in bodies:
            if body["metadata"]["uid"] in refusal.blocking and self._release_own(pod, body):
                return

    def _release_own(self, pod: placing.Pod, claim: Json) -> bool:
        """Give the devices of a claim back, unless another pod uses it; whether it was done."""
        users = {user["uid"] for user in (claim.get("status") or {}).get("reservedFor") or ()}
        if not users <= {pod.uid}:
            return False
        self._written(claim_status.release(self._client, claim, keep=()))
        self._move()
        return True

    def _bind(self, pod: placing.Pod, body: Json, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        # Counted first: the watch may tell that it has ended before the answer is here.
        self._state.placed(pod.uid, node)
        try:
            self._client.create_subresource(kube.PODS, pod.name, "binding", binding, pod.namespace)
        except BaseException:
            self._not_bound(pod)
            raise
        self._extended.forget(pod.uid)
        self._log.info("pod scheduled", pod=f"{pod.namespace}/{pod.name}", node=node)
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._events.record(body, "Normal", "Scheduled", message)

    def _not_bound(self, pod: placing.Pod) -> None:
        """Count with a pod as the watch shows it: the server may have refused it a second node."""
        while True:
            self._state.placed(pod.uid, "")
            shown = self._pods.get(pod.name, pod.namespace)
            if shown is not None:
                self._state.on_pod("MODIFIED", shown)
            # The watch may have told of a later state before this one was counted.
            if self._pods.get(pod.name, pod.namespace) is shown:
                return

    def _tell(self, body: Json, message: str) -> None:
        """Set the pod's condition, and record an event, unless that has been told already."""
        conditions = (body.get("status") or {}).get("conditions") or []
        before: Json = next((item for item in conditions if item["type"] == "PodScheduled"), {})
        if before.get("message") == message:
            return
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": before.get("lastTransitionTime", now),
        }
        others = [item for item in conditions if item["type"] != "PodScheduled"]
        namespace, name = _key(body)
        version = body["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version, "uid": body["metadata"]["uid"]},
                  "status": {"conditions": [*others, condition]}}  # fmt: skip
        written = self._client.patch(kube.PODS, name, change, namespace, subresource="status")
        self._events.record(body, "Warning", "FailedScheduling", message)
        # Else the next refusal is written to a pod that is no longer as it was, and is not told.
        self._wait(self._pods, written)

    def _written(self, claim: Json) -> None:
        """Count with a claim as it was written, and wait until it can be read as such."""
        self._state.on_claim("MODIFIED", claim)
        self._wait(self._claims, claim)
        namespace, name = _key(claim)
        shown = self._claims.get(name, namespace)
        if shown is None or shown["metadata"]["uid"] != claim["metadata"]["uid"]:
            # It was deleted meanwhile; the watch may have told so before it was counted here.
            self._state.on_claim(cluster_state.DELETED, claim)

    def _wait(self, objects: informer.Informer, written: Json) -> None:
        version = written["metadata"]["resourceVersion"]
        if not objects.wait_version(version, SYNC_SECONDS):
            raise errors.Retryable(f"the watch has not shown version {version} yet")


def _parse(body: Json) -> claims.ResourceClaim:
    try:
        return claims.parse(body)
    except errors.Rejected as error:
        raise _Unschedulable(f'resourceclaim "{body["metadata"]["name"]}": {error}') from error


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
