"""What becomes of the pods of a demo, as the API and the kubelets show it from time to time."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.adapters.kube import kube
from dra_driver.logic.admission import converted
from dra_driver.logic.scheduling import extended_resources
from dra_driver.model import quantities
from dra_driver.sim.cluster import claim_cache, cluster
from dra_driver.sim.cluster.workloads import pods
from dra_driver.sim.demo import outcome, shared, workload_looks

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Past:
    """What was seen of a pod, and may no longer be there to see."""

    was_unschedulable: bool = False
    has_run: bool = False
    claims: tuple[outcome.Claim, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Scene:
    """What a look found: claims by namespace and name, devices by driver, pool and name.

    `warnings` are the last ones about pods, by UID, `time_slices` those of GPUs by UUID, where they
    are not the default. `unschedulable` are the UIDs of pods that have been so.
    """

    claims: Mapping[tuple[str, str], Json]
    devices: Mapping[tuple[str, str, str], Json]
    warnings: Mapping[str, Json]
    time_slices: Mapping[str, str]
    unschedulable: frozenset[str]
    completed: frozenset[str]
    """The UIDs of Jobs that have completed."""


class Observer:
    """Looks at a cluster, and remembers of each pod that it waited, that it ran and what it had."""

    def __init__(self, running: cluster.Cluster) -> None:
        """The cluster has been started."""
        self._cluster = running
        self._past: dict[str, _Past] = {}
        self._workloads = workload_looks.WorkloadObserver(running.client)

    def expect(self, objects: Iterable[Json]) -> None:
        """Look at the workloads among the objects too, which have been applied."""
        self._workloads.expect(objects)

    def look(self) -> outcome.Outcome:
        """How it is now."""
        client = self._cluster.client
        # A claim may go when its pod has ended, and an event comes before what follows from it: so
        # a pod is looked at after its claims, and before what is told of it.
        look = self._workloads.look()
        claims = client.list(kube.CLAIMS)[0]
        found = sorted(
            client.list(kube.PODS)[0],
            key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]),
        )
        events = client.list(kube.EVENTS)[0]
        scene = _Scene(
            claims={
                (body["metadata"]["namespace"], body["metadata"]["name"]): body for body in claims
            },
            devices=self._cluster.devices(),
            warnings=_warnings(events),
            time_slices={
                uuid: name
                for node in self._cluster.nodes.values()
                for uuid, name in node.time_slices().items()
            },
            unschedulable=frozenset(
                event["involvedObject"].get("uid", "")
                for event in events
                if event.get("reason") == "FailedScheduling"
            ),
            completed=workload_looks.made_good(look),
        )
        names: dict[str, list[str]] = {name: [] for name in self._cluster.nodes}
        for _, pool, device in sorted(scene.devices):
            names.setdefault(pool, []).append(device)
        return outcome.Outcome(
            nodes={node: tuple(found) for node, found in sorted(names.items())},
            pods=tuple(self._pod(body, scene) for body in found),
            workloads=workload_looks.judged(look, found, scene.warnings),
        )

    def check_alive(self) -> None:
        """Refuse to go on with a plugin, the webhook or the controller, that has ended.

        Raises:
            errors.Fatal: one has; the text has the end of its log.
        """
        for node in self._cluster.nodes.values():
            node.check_alive()
        if self._cluster.converter is not None:
            self._cluster.converter.check_alive()
        if self._cluster.keeper is not None:
            self._cluster.keeper.check_alive()

    def _pod(self, body: Json, scene: _Scene) -> outcome.Pod:
        metadata, status = body["metadata"], body.get("status") or {}
        node = body["spec"].get("nodeName")
        phase, reason = _phase(status)
        if (
            phase == "Pending"
            and node is not None
            and (last := scene.warnings.get(metadata["uid"]))
        ):
            reason = last["message"]
            phase = outcome.REFUSED if _is_refusal(last) else phase
        nodes = self._cluster.nodes
        kubelet = nodes[node].kubelet if node in nodes else None
        prepared = kubelet.prepared(metadata["uid"]) if kubelet else {}
        past = self._remember(body, phase, scene, prepared)
        return outcome.Pod(
            namespace=metadata["namespace"],
            name=metadata["name"],
            expected=outcome.expectation(body),
            phase=phase,
            node=node,
            reason=reason,
            claims=past.claims,
            containers=kubelet.views(metadata["uid"]) if kubelet else {},
            was_unschedulable=past.was_unschedulable,
            has_run=past.has_run,
            ends=workload_looks.end_seconds(body) is not None,
            converted_from=converted.converted_from(body),
            made_good=(pods.controller_of(body) or {}).get("uid") in scene.completed,
        )

    def _remember(
        self,
        body: Json,
        phase: str,
        scene: _Scene,
        prepared: Mapping[str, claim_cache.PreparedClaim],
    ) -> _Past:
        """What is known of the pod with this look.

        A claim made for it goes when it has ended; one that nobody has seen is told of as it was
        `prepared`.
        """
        metadata = body["metadata"]
        before = self._past.get(metadata["uid"], _Past())
        claims = tuple(
            _claim(name, scene.claims.get((metadata["namespace"], name)), scene)
            for name in _claim_names(body)
        )
        if phase in _ENDED:
            handed = tuple(_handed(claim, scene) for claim in prepared.values())
            views = (before.claims, claims, handed)
            claims = next((view for view in views if any(c.devices for c in view)), claims)
        past = self._past[metadata["uid"]] = _Past(
            was_unschedulable=before.was_unschedulable
            or phase == outcome.UNSCHEDULABLE
            or metadata["uid"] in scene.unschedulable,
            has_run=before.has_run or phase in outcome.RUNS,
            claims=claims,
        )
        return past


_ENDED = ("Succeeded", "Failed")


def _phase(status: Json) -> tuple[str, str | None]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return condition.get("reason") or "Pending", condition.get("message")
    phase = status.get("phase") or "Pending"
    if phase == outcome.RUNNING and (why := _fails_again(status)):
        return outcome.FAILED, why
    return phase, _ended(status) if phase == outcome.FAILED else None


def _fails_again(status: Json) -> str | None:
    """Which containers fail each time that they are started, so that the pod runs in name only."""
    ends = {
        item["name"]: ((item.get("lastState") or {}).get("terminated") or {}).get("exitCode")
        for item in status.get("containerStatuses") or ()
        if "waiting" in (item.get("state") or {})
    }
    texts = [f"container {name} ended with status {code}" for name, code in ends.items() if code]
    return f"{', '.join(texts)}, again and again" if texts else None


def _ended(status: Json) -> str:
    """How the containers of a failed pod ended."""
    ends = {
        item["name"]: item["state"]["terminated"].get("exitCode")
        for item in status.get("containerStatuses") or ()
        if "terminated" in (item.get("state") or {})
    }
    texts = [f"container {name} ended with status {code}" for name, code in ends.items() if code]
    return ", ".join(texts) or "it never ran"


def _claim_names(pod: Json) -> list[str]:
    made = {
        item["name"]: item.get("resourceClaimName")
        for item in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = [
        item.get("resourceClaimName") or made.get(item["name"])
        for item in pod["spec"].get("resourceClaims") or ()
    ]
    names.append(extended_resources.claim_name(pod))
    return [name for name in names if name is not None]


def _claim(name: str, body: Json | None, scene: _Scene) -> outcome.Claim:
    allocation = ((body or {}).get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return outcome.Claim(name, tuple(_device(result, scene) for result in results))


def _handed(claim: claim_cache.PreparedClaim, scene: _Scene) -> outcome.Claim:
    """A claim as its drivers told the kubelet of it."""
    results = []
    for driver, device in claim.devices:
        result: Json = {"driver": driver, "pool": device.pool, "device": device.device}
        results.append(result | ({"shareID": device.share_id} if device.share_id else {}))
    return outcome.Claim(claim.ref.name, tuple(_device(result, scene) for result in results))


def _device(result: Json, scene: _Scene) -> outcome.Device:
    key = (result["driver"], result["pool"], result["device"])
    device = scene.devices.get(key) or {}
    attributes = device.get("attributes") or {}
    model, profile, uuid = (
        (attributes.get(each) or {}).get("string") for each in ("productName", "profile", "uuid")
    )
    share = _share(result, device.get("capacity") or {})
    return outcome.Device(
        *key, model, profile, uuid, share, scene.time_slices.get(uuid) if uuid else None
    )


def _share(result: Json, capacity: Json) -> shared.Share | None:
    if "shareID" not in result:
        return None
    number = (capacity.get("shares") or {}).get("value")
    return shared.Share(
        id=result["shareID"],
        consumed=dict(result.get("consumedCapacity") or {}),
        shares=quantities.parse(number).value if number is not None else None,
    )


def _is_refusal(event: Json) -> bool:
    """Whether a driver said no; that a claim is not there yet, say, is none of it."""
    unprepared = event.get("reason") == "FailedPrepareDynamicResources"
    return unprepared and "NodePrepareResources failed" in event["message"]


def _warnings(events: Iterable[Json]) -> dict[str, Json]:
    """The last warning about each object, by UID."""
    return {
        event["involvedObject"]["uid"]: event
        for event in sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
        if event.get("type") == "Warning" and event["involvedObject"].get("uid")
    }
