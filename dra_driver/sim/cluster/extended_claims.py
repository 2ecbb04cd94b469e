"""The claims that the scheduler makes for extended resources: `nvidia.com/gpu: 2` of a container.

A claim is made once its devices are chosen, and goes with an attempt that fails. One whose devices
are not ready yet is kept: the pod is tried again at each change, where kube-scheduler waits.
Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins/dynamicresources/
extendeddynamicresources.go`.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.logic.scheduling import device_plugins, extended_resources, placing, scheduling
from dra_driver.model import nodes
from dra_driver.sim.cluster import claim_status, cluster_state

Json = dict[str, Any]

_NOTHING_SERVED = extended_resources.Classes({}, ())


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What the scheduler knows of the cluster."""

    state: cluster_state.ClusterState
    pods: informer.Informer
    claims: informer.Informer
    classes: informer.Informer


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """A claim that was made for a pod at an earlier attempt, and where the pod is to go."""

    claim: Json
    node: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Made:
    """`done` once it has its devices, is reserved, and the pod's status tells of it."""

    name: str
    node: str
    done: bool = False


class ExtendedClaims:
    """Makes them, finds them again, deletes them. For one thread, but for `gave_back`."""

    def __init__(
        self,
        client: kube.Client,
        known: Known,
        *,
        on_written: Callable[[Json], None],
        enabled: bool = True,
    ) -> None:
        """`on_written` counts a claim as written. Without `enabled` device plugins serve alone."""
        self._client = client
        self._known = known
        self._on_written = on_written
        self._enabled = enabled
        self._log = telemetry.logger("scheduler")
        self._made: dict[str, _Made] = {}

    def demand(self, pod: Json, on: Iterable[nodes.Node]) -> device_plugins.Demand | None:
        """What a pod asks of these nodes by extended resources; None if it asks for none."""
        wanted = extended_resources.needs(pod)
        if not wanted:
            return None
        offering = {node.name for node in on if wanted.keys() & (node.offered or {}).keys()}
        served_by = _NOTHING_SERVED
        if self._enabled:
            served_by = extended_resources.classes(self._known.classes.objects())
        return device_plugins.Demand(pod, served_by, self._used(wanted, offering))

    def kept(self, pod: Json) -> Kept | None:
        """The claim that an earlier attempt has made, and which is good still.

        Raises:
            errors.Retryable: one was left over of an attempt that failed. It is deleted, unless the
                pod has been bound all the same.
        """
        if not (self._enabled and extended_resources.needs(pod)):
            return None
        uid = pod["metadata"]["uid"]
        found, made = self._find(pod), self._made.get(uid)
        if found is None:
            self.forget(uid)
            return None
        if made is not None and made.done and _is_reserved(found, uid):
            return Kept(found, made.node)
        if self._is_bound(pod["metadata"]):
            raise errors.Retryable(
                f"pod {pod['metadata']['name']} is bound, which is not shown yet"
            )
        self._delete(found)
        self.forget(uid)
        raise errors.Retryable(f"claim {found['metadata']['name']} was of an attempt that failed")

    def make(
        self, pod: Json, found: scheduling.Placement, wanted: device_plugins.Demand
    ) -> Json | None:
        """Make the claim with the devices that were found, and tell of it in the pod's status.

        None where the device plugins of the node give everything.

        Raises:
            kube.ApiError: the server refuses something; `drop` removes what was made.
        """
        planned = extended_resources.claim(pod, wanted.served_by, found.served)
        if planned is None:
            return None
        uid = pod["metadata"]["uid"]
        body = {"metadata": _metadata(pod), "spec": planned["spec"]}
        created = self._client.create(kube.CLAIMS, body, pod["metadata"]["namespace"])
        made = _Made(created["metadata"]["name"], found.node)
        self._made[uid] = made
        claim = claim_status.reserve(self._client, created, found.allocations[-1], pod)
        self._on_written(claim)
        self._tell(pod, claim, extended_resources.uses(pod, wanted.served_by, found.served))
        self._made[uid] = dataclasses.replace(made, done=True)
        return claim

    def name_of(self, pod: Json) -> str | None:
        """The claim that was made for a pod that is not bound yet."""
        made = self._made.get(pod["metadata"]["uid"])
        return made.name if made is not None else None

    def gave_back(self, kind: str, pod: Json) -> bool:
        """Told of a change of a pod: whether it has left what a device plugin may have given it."""
        gone = kind == cluster_state.DELETED
        if gone:
            self.forget(pod["metadata"]["uid"])
        return (gone or placing.is_finished(pod)) and bool(extended_resources.needs(pod))

    def forget(self, uid: str) -> None:
        """The pod with this UID is bound, or is gone."""
        self._made.pop(uid, None)

    def drop(self, pod: Json) -> None:
        """An attempt has failed: delete what it made, unless the pod is bound all the same.

        Where that cannot be done now the next attempt does it.
        """
        metadata = pod["metadata"]
        if (name := self.name_of(pod)) is None:
            return
        try:
            if not self._is_bound(metadata):
                self._delete(self._client.get(kube.CLAIMS, name, metadata["namespace"]))
        except kube.NotFound:
            pass
        except (kube.ApiError, errors.Retryable) as error:
            self._log.info("claim is not deleted yet", claim=name, reason=str(error))
            return
        self.forget(metadata["uid"])

    def _used(
        self, wanted: Mapping[str, int], offering: Iterable[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """What pods on the nodes with device plugins have of each resource."""
        on: dict[str, list[Json]] = collections.defaultdict(list)
        names = set(offering)
        for pod in self._known.pods.objects() if names else ():
            if (node := self._known.state.node_of(pod["metadata"]["uid"])) in names:
                on[str(node)].append(pod)
        return {
            node: {name: extended_resources.used(pods, name) for name in wanted}
            for node, pods in on.items()
        }

    def _find(self, pod: Json) -> Json | None:
        if (name := self.name_of(pod)) is not None:
            # The watch may not have shown it yet, or show it as it was.
            try:
                return self._client.get(kube.CLAIMS, name, pod["metadata"]["namespace"])
            except kube.NotFound:
                return None
        return next((c for c in self._known.claims.objects() if _is_for(c, pod)), None)

    def _tell(self, pod: Json, claim: Json, uses: Iterable[extended_resources.Use]) -> None:
        metadata = pod["metadata"]
        status = {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": [
                {
                    "containerName": use.container,
                    "resourceName": use.resource,
                    "requestName": use.request,
                }
                for use in uses
            ],
        }
        self._client.patch(
            kube.PODS,
            metadata["name"],
            {"metadata": {"uid": metadata["uid"]},
             "status": {"extendedResourceClaimStatus": status}},
            metadata["namespace"],
            subresource="status",
        )  # fmt: skip

    def _is_bound(self, metadata: Json) -> bool:
        """Whether the server has bound the pod, though its answer may not have come."""
        try:
            body = self._client.get(kube.PODS, metadata["name"], metadata["namespace"])
        except kube.NotFound:
            return False
        same = body["metadata"]["uid"] == metadata["uid"]
        return same and bool((body.get("spec") or {}).get("nodeName"))

    def _delete(self, claim: Json) -> None:
        metadata = claim["metadata"]
        try:
            claim_status.release(self._client, claim, keep=())
            self._client.delete(
                kube.CLAIMS, metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )
        except kube.NotFound:
            return


def _metadata(pod: Json) -> Json:
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "generateName": f"{metadata['name']}-extended-resources-",
        "annotations": {extended_resources.ANNOTATION: "true"},
        "ownerReferences": [owner | {"controller": True}],
    }


def _is_for(claim: Json, pod: Json) -> bool:
    """Whether a claim was made for the pod's extended resources."""
    metadata = claim["metadata"]
    if (metadata.get("annotations") or {}).get(extended_resources.ANNOTATION) != "true":
        return False
    return any(
        owner["uid"] == pod["metadata"]["uid"] and owner.get("controller")
        for owner in metadata.get("ownerReferences") or ()
    )


def _is_reserved(claim: Json, uid: str) -> bool:
    """Whether the claim has devices, for the pod with this UID."""
    status = claim.get("status") or {}
    return "allocation" in status and uid in {
        user["uid"] for user in status.get("reservedFor") or ()
    }
