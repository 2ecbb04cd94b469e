"""The ResourceClaim controller: claims from templates, reservations that end, deallocation.

Source: Kubernetes 1.36, `pkg/controller/resourceclaim/controller.go`.
"""

import contextlib
import threading
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.logic.scheduling import placing
from dra_driver.sim.cluster import claim_status, cluster_state, events, work_queue, worker

Json = dict[str, Any]
Key = cluster_state.Key
Item = tuple[str, Key]
"""What to look at: `pod` or `claim`, and which."""

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a generated claim: how the pod calls it."""
SYNC_SECONDS = 30.0

_LONGEST_BASE = 57
"""Leaves room for five random characters and a hyphen in a name of 63."""


class ClaimController:
    """A thread that keeps claims and the pods that use them in step."""

    def __init__(self, client: kube.Client) -> None:
        """Nothing is started."""
        self._client = client
        self._log = telemetry.logger("claim-controller")
        self._events = events.Recorder(client, "resource-claim-controller")
        self._queue: work_queue.WorkQueue[Item] = work_queue.WorkQueue()
        self._lock = threading.Lock()
        self._owned: dict[str, set[Key]] = {}
        self._templates = informer.Informer(client, kube.TEMPLATES, on_change=self._on_template)
        self._claims = informer.Informer(client, kube.CLAIMS, on_change=self._on_claim)
        self._pods = informer.Informer(client, kube.PODS, on_change=self._on_pod)
        self._worker = worker.Worker(
            "claim-controller",
            self._queue,
            [self._templates, self._claims, self._pods],
            self._sync,
        )

    def start(self) -> None:
        """Begin to watch and to act."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; what is being done is finished first."""
        self._worker.stop()

    def _on_template(self, _kind: str, body: Json) -> None:
        namespace, name = _key(body)
        for pod in self._pods.objects():
            wanted = (item.template for item in placing.parse(pod).claims if item.claim is None)
            if pod["metadata"]["namespace"] == namespace and name in wanted:
                self._queue.put(("pod", _key(pod)))

    def _on_claim(self, kind: str, body: Json) -> None:
        if owner := _owner(body):
            with self._lock:
                owned = self._owned.setdefault(owner["uid"], set())
                owned.add(_key(body))
                if kind == cluster_state.DELETED:
                    owned.discard(_key(body))
                if not owned:
                    del self._owned[owner["uid"]]
        self._queue.put(("claim", _key(body)))

    def _on_pod(self, kind: str, body: Json) -> None:
        ended = kind == cluster_state.DELETED or placing.is_done(body)
        if not ended:
            self._queue.put(("pod", _key(body)))
            return
        named = (item.claim for item in placing.parse(body).claims if item.claim is not None)
        namespace = body["metadata"]["namespace"]
        keys = {(namespace, name) for name in named} | self._owned_by(body["metadata"]["uid"])
        for key in sorted(keys):
            self._queue.put(("claim", key))

    def _owned_by(self, uid: str) -> set[Key]:
        with self._lock:
            return set(self._owned.get(uid, ()))

    def _sync(self, work: Item) -> None:
        kind, key = work
        # What has gone meanwhile needs nothing; the watch tells what follows from that.
        with contextlib.suppress(kube.NotFound):
            self._sync_pod(key) if kind == "pod" else self._sync_claim(key)

    def _sync_pod(self, key: Key) -> None:
        """Make the claims that the pod wants from templates and has not."""
        body = self._pods.get(key[1], key[0])
        if body is None or "deletionTimestamp" in body["metadata"] or placing.is_done(body):
            return
        pod = placing.parse(body)
        missing = [item for item in pod.claims if item.claim is None]
        if not missing:
            return
        new = []
        for item in missing:
            claim = self._generated(pod, item) or self._generate(body, item)
            if claim is not None:
                new.append({"name": item.name, "resourceClaimName": claim["metadata"]["name"]})
        if not new:
            return
        made = (body.get("status") or {}).get("resourceClaimStatuses") or []
        version, uid = body["metadata"]["resourceVersion"], pod.uid
        self._client.patch(
            kube.PODS,
            pod.name,
            {"metadata": {"resourceVersion": version, "uid": uid},
             "status": {"resourceClaimStatuses": [*made, *new]}},
            pod.namespace,
            subresource="status",
        )  # fmt: skip

    def _generated(self, pod: placing.Pod, item: placing.PodClaim) -> Json | None:
        """A claim that was made for the pod before, which its status does not tell of yet."""
        for namespace, name in sorted(self._owned_by(pod.uid)):
            claim = self._claims.get(name, namespace)
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                continue
            if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == item.name:
                return claim
        return None

    def _generate(self, pod: Json, item: placing.PodClaim) -> Json | None:
        namespace, _ = _key(pod)
        try:
            template = self._templates.get(str(item.template), namespace) or self._client.get(
                kube.TEMPLATES, str(item.template), namespace
            )
        except kube.NotFound:
            text = (
                f'PodResourceClaim {item.name}: resource claim template "{item.template}" not found'
            )
            self._events.record(pod, "Warning", "FailedResourceClaimCreation", text)
            return None
        body = _claim_from(template, pod, item)
        try:
            claim = self._client.create(kube.CLAIMS, body, namespace)
        except kube.ApiError as error:
            self._events.record(
                pod,
                "Warning",
                "FailedResourceClaimCreation",
                f"PodResourceClaim {item.name}: {error}",
            )
            raise
        self._wait(claim)
        return claim

    def _sync_claim(self, key: Key) -> None:
        """End the reservations of pods that are done, and what follows when none is left."""
        body = self._claims.get(key[1], key[0])
        if body is None:
            return
        users = (body.get("status") or {}).get("reservedFor") or []
        keep = [user["uid"] for user in users if self._uses(key[0], user)]
        idle = "deletionTimestamp" in body["metadata"] and not keep
        if len(keep) < len(users) or idle:
            body = claim_status.release(self._client, body, keep)
            self._wait(body)
        owner = _owner(body)
        deleting = "deletionTimestamp" in body["metadata"]
        if not keep and not deleting and owner and not self._uses(key[0], owner):
            self._client.delete(kube.CLAIMS, key[1], key[0], uid=body["metadata"]["uid"])

    def _uses(self, namespace: str, reference: Json) -> bool:
        """Whether the pod that is referred to still needs its claims."""
        if reference.get("resource", "pods") != "pods":
            return True
        pod = self._pods.get(reference["name"], namespace)
        if pod is None or pod["metadata"]["uid"] != reference["uid"]:
            # The watch of pods may lag behind that of claims: only the server knows.
            try:
                pod = self._client.get(kube.PODS, reference["name"], namespace)
            except kube.NotFound:
                return False
        return pod["metadata"]["uid"] == reference["uid"] and not placing.is_done(pod)

    def _wait(self, written: Json) -> None:
        version = written["metadata"]["resourceVersion"]
        if not self._claims.wait_version(version, SYNC_SECONDS):
            raise errors.Retryable(f"the watch has not shown version {version} yet")


def _owner(claim: Json) -> Json:
    """The pod that the claim was generated for; empty for a claim that a user made."""
    return next(
        (
            owner
            for owner in claim["metadata"].get("ownerReferences") or ()
            if owner.get("controller") and owner["kind"] == "Pod" and owner["apiVersion"] == "v1"
        ),
        {},
    )


def _base_name(pod: str, claim: str) -> str:
    """What the server completes: pod and claim, the longer of them cut if both do not fit."""
    room = _LONGEST_BASE - len("--")
    claim = claim[: max(room // 2, room - len(pod))]
    return f"{pod[: room - len(claim)]}-{claim}-"


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _claim_from(template: Json, pod: Json, item: placing.PodClaim) -> Json:
    """The claim that a template gives a pod, owned by the pod."""
    wanted = template["spec"].get("metadata") or {}
    name = pod["metadata"]["name"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": _base_name(name, item.name),
            "labels": wanted.get("labels") or {},
            "annotations": (wanted.get("annotations") or {}) | {POD_CLAIM_NAME: item.name},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": name,
                    "uid": pod["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"]["spec"],
    }
