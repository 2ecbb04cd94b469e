"""The controller that ends pods because of taints of their devices, as kube-controller-manager's.

`logic/scheduling/evicting.py` says which and when. A pod is deleted as by a user, with its grace
and without a look at disruption budgets. Source: Kubernetes 1.36 to 1.38,
`pkg/controller/devicetainteviction`.
"""

import contextlib
import datetime as dt
import threading
from collections.abc import Iterable
from typing import Any

from dra_driver import telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.logic.scheduling import emulation, evicting
from dra_driver.sim.cluster import (
    cluster_state,
    events,
    rule_status,
    taint_sight,
    work_queue,
    worker,
)

Json = dict[str, Any]
Key = cluster_state.Key
Item = tuple[str, Key]
"""What to look at: `pod` or `rule`, and which."""

NAME = "device-taint-eviction-controller"
REASON = "DeviceTaintManagerEviction"
"""Of its events."""
CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByDeviceTaintManager",
    "message": "Device Taint manager: deleting due to NoExecute taint",
}


_SOON = 0.05
"""Seconds until a rule is looked at again that has pods to end, at least."""


class Evictor:
    """A thread that ends pods when it is time."""

    def __init__(
        self,
        client: kube.Client,
        behaviour: emulation.Emulation = emulation.FIXED,
        *,
        rule_seconds: float = rule_status.PERIOD_SECONDS,
    ) -> None:
        """Nothing is started. The status of a rule is written every `rule_seconds` at most."""
        self._client = client
        self._rule_seconds = rule_seconds
        self._log = telemetry.logger("evictor")
        self._events = events.Recorder(client, NAME)
        self._queue: work_queue.WorkQueue[Item] = work_queue.WorkQueue()
        self._lock = threading.Lock()
        self._sight = taint_sight.TaintSight(behaviour)
        self._due: dict[Key, str] = {}
        """Pods, with their UIDs, that are to be ended and are not yet."""
        self._rule_ends: dict[str, int] = {}
        """By the UID of a rule: how many pods it has ended."""
        self._claims = informer.Informer(client, kube.CLAIMS, on_change=self._on_claim)
        self._pods = informer.Informer(client, kube.PODS, on_change=self._on_pod)
        self._rules = informer.Informer(client, kube.TAINT_RULES, on_change=self._on_rule)
        slices = informer.Informer(client, kube.SLICES, on_change=self._on_slice)
        rules = [self._rules] if behaviour.taint_rules else []
        informers = [*rules, slices, self._claims, self._pods]
        self._worker = worker.Worker("evictor", self._queue, informers, self._sync)

    def start(self) -> None:
        """Begin to watch and to act."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; what is being done is finished first."""
        self._worker.stop()

    def _on_slice(self, kind: str, body: Json) -> None:
        self._look(self._sight.on_slice(kind, body))

    def _on_claim(self, kind: str, body: Json) -> None:
        self._look(self._sight.on_claim(kind, body))

    def _on_rule(self, kind: str, body: Json) -> None:
        # Its status first, as there.
        self._queue.put(("rule", ("", body["metadata"]["name"])))
        self._look(self._sight.on_rule(kind, body))
        if kind == cluster_state.DELETED:
            with self._lock:
                self._rule_ends.pop(body["metadata"]["uid"], None)

    def _on_pod(self, kind: str, body: Json) -> None:
        if kind != cluster_state.DELETED:
            self._look([_key(body)])
            return
        with self._lock:
            if self._due.get(_key(body)) == body["metadata"]["uid"]:
                del self._due[_key(body)]

    def _look(self, pods: Iterable[Key]) -> None:
        for key in sorted(pods):
            self._queue.put(("pod", key))

    def _sync(self, item: Item) -> None:
        kind, key = item
        # What has gone meanwhile needs nothing.
        with contextlib.suppress(kube.NotFound):
            self._sync_pod(key) if kind == "pod" else self._sync_rule(key[1])

    def _sync_pod(self, key: Key) -> None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        uid = pod["metadata"]["uid"]
        eviction = self._eviction(pod, self._sight.now())
        with self._lock:
            was_due = self._due.pop(key, None) == uid
            if eviction is not None:
                self._due[key] = uid
        if eviction is None:
            if was_due:
                self._events.record(pod, "Normal", REASON, "Cancelling deletion")
            return
        for name in eviction.rules:
            self._queue.put_in(("rule", ("", name)), self._rule_seconds)
        left = (eviction.when - _now()).total_seconds()
        if left > 0:
            self._queue.put_in(("pod", key), left)
        else:
            self._evict(pod, eviction)

    def _eviction(self, pod: Json, sight: evicting.Sight) -> evicting.Eviction | None:
        namespace = pod["metadata"]["namespace"]
        return evicting.of_pod(pod, lambda name: self._claims.get(name, namespace), sight)

    def _evict(self, pod: Json, eviction: evicting.Eviction) -> None:
        namespace, name = _key(pod)
        uid = pod["metadata"]["uid"]
        found = self._client.get(kube.PODS, name, namespace)
        if found["metadata"]["uid"] != uid or "deletionTimestamp" in found["metadata"]:
            # The watch has not told of it yet.
            return
        self._mark(found)
        self._events.record(found, "Normal", REASON, "Marking for deletion")
        self._client.delete(kube.PODS, name, namespace, uid=uid)
        causes = ", ".join(map(str, eviction.causes))
        self._log.info("pod evicted", pod=f"{namespace}/{name}", causes=causes)
        with self._lock:
            self._due.pop((namespace, name), None)
            for rule in map(self._rules.get, eviction.rules):
                if rule is not None:
                    rule_uid = rule["metadata"]["uid"]
                    self._rule_ends[rule_uid] = self._rule_ends.get(rule_uid, 0) + 1

    def _mark(self, pod: Json) -> None:
        """Tell in the pod's conditions why it ends."""
        conditions = (pod.get("status") or {}).get("conditions") or []
        others = [item for item in conditions if item["type"] != CONDITION["type"]]
        before: Json = next((item for item in conditions if item not in others), {})
        if CONDITION.items() <= before.items():
            return
        told = CONDITION | {"lastTransitionTime": _text(_now())}
        version, uid = pod["metadata"]["resourceVersion"], pod["metadata"]["uid"]
        change = {"metadata": {"resourceVersion": version, "uid": uid},
                  "status": {"conditions": [*others, told]}}  # fmt: skip
        namespace, name = _key(pod)
        self._client.patch(kube.PODS, name, change, namespace, subresource="status")

    def _sync_rule(self, name: str) -> None:
        """Tell in the rule's conditions how far it is."""
        rule = self._rules.get(name)
        if rule is None:
            return
        wait = rule_status.wait_seconds(rule, _now(), self._rule_seconds)
        if wait > 0:
            self._queue.put_in(("rule", ("", name)), wait)
            return
        counts = self._counts(rule)
        if counts.pods and rule_status.is_evicting(rule):
            # That they end is told by their watch, which may be behind that of the rule.
            self._queue.put_in(("rule", ("", name)), max(self._rule_seconds, _SOON))
        told = rule_status.condition(rule, counts, _now())
        if told is None:
            return
        conditions = (rule.get("status") or {}).get("conditions") or ()
        others = [item for item in conditions if item["type"] != rule_status.CONDITION]
        version, uid = rule["metadata"]["resourceVersion"], rule["metadata"]["uid"]
        change = {"metadata": {"resourceVersion": version, "uid": uid},
                  "status": {"conditions": [*others, told]}}  # fmt: skip
        self._client.patch(kube.TAINT_RULES, name, change, subresource="status")

    def _counts(self, rule: Json) -> rule_status.Counts:
        with self._lock:
            ended = self._rule_ends.get(rule["metadata"]["uid"], 0)
        dry = rule_status.is_dry_run(rule)
        if not (dry or rule_status.is_evicting(rule)):
            return rule_status.Counts(ended=ended)
        sight = self._sight.dry_run(rule) if dry else self._sight.now()
        pods = [_key(pod) for pod in self._pods.objects() if self._is_due(pod, rule, sight)]
        listed, allocated = self._sight.selected(rule) if dry else (0, 0)
        namespaces = len({namespace for namespace, _ in pods})
        return rule_status.Counts(len(pods), namespaces, listed, allocated, ended)

    def _is_due(self, pod: Json, rule: Json, sight: evicting.Sight) -> bool:
        if "deletionTimestamp" in pod["metadata"]:
            return False
        eviction = self._eviction(pod, sight)
        return eviction is not None and rule["metadata"]["name"] in eviction.rules


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _text(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
