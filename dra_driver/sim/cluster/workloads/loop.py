"""The loop that does what the controllers plan: one thread for the workloads of all kinds."""

import contextlib
import datetime as dt
from collections.abc import Iterable
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.model import nodes
from dra_driver.sim.cluster import events, work_queue, worker
from dra_driver.sim.cluster.workloads import controllers, plans, pods

Json = dict[str, Any]
Key = tuple[str, str]
Item = tuple[controllers.Controller, Key]
"""What to look at: a workload, by namespace and name."""

SYNC_SECONDS = 30.0
"""For the watch to show what was written."""
_DELETED = "DELETED"


class Workloads:
    """Keeps workloads and what they have made in step."""

    def __init__(self, client: kube.Client) -> None:
        """Nothing is started."""
        self._client = client
        self._log = telemetry.logger("workloads")
        self._queue: work_queue.WorkQueue[Item] = work_queue.WorkQueue()
        self._recorders: dict[str, events.Recorder] = {}
        # By apiVersion and kind; that of a definition is there as long as the definition.
        self._controllers = dict(controllers.BY_KIND)
        self._defined: dict[str, informer.Informer] = {}
        self._pods = informer.Informer(client, kube.PODS, on_change=self._on_child)
        self._nodes = informer.Informer(client, kube.NODES, on_change=self._on_node)
        definitions = informer.Informer(
            client, controllers.DEFINITIONS, on_change=self._on_definition
        )
        self._informers = {kube.PODS: self._pods}
        for item in controllers.BY_KIND.values():
            self._informers[item.resource] = self._watch(item)
        # Pods first: by the time that an owner is looked at, what it has made is known.
        order = [self._nodes, *self._informers.values(), definitions]
        self._worker = worker.Worker("workloads", self._queue, order, self._sync)

    def start(self) -> None:
        """Begin to watch and to act."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; what is being done is finished first."""
        self._worker.stop()
        for item in list(self._defined.values()):
            item.stop()

    def _watch(self, controller: controllers.Controller) -> informer.Informer:
        """Of the workloads of a controller, which may belong to others themselves."""

        def changed(kind: str, body: Json) -> None:
            self._queue.put((controller, _key(body)))
            self._on_child(kind, body)

        return informer.Informer(self._client, controller.resource, on_change=changed)

    def _on_child(self, _kind: str, body: Json) -> None:
        owner = pods.controller_of(body)
        found = self._controllers.get((owner["apiVersion"], owner["kind"])) if owner else None
        if owner and found:
            self._queue.put((found, (body["metadata"]["namespace"], owner["name"])))

    def _on_node(self, _kind: str, _body: Json) -> None:
        """A node may want pods of DaemonSets, or none any more."""
        found = controllers.BY_KIND["apps/v1", "DaemonSet"]
        for body in self._informers[found.resource].objects():
            self._queue.put((found, _key(body)))

    def _on_definition(self, kind: str, body: Json) -> None:
        name, found = body["metadata"]["name"], controllers.of_definition(body)
        if kind == _DELETED:
            for each in found:
                self._controllers.pop(each, None)
            if name in self._defined:
                self._defined.pop(name).stop()
        elif found and name not in self._defined:
            self._controllers.update(found)
            controller = next(iter(found.values()))
            watching = self._defined[name] = self._watch(controller)
            self._informers[controller.resource] = watching
            watching.start()

    def _sync(self, item: Item) -> None:
        controller, (namespace, name) = item
        owner = self._informers[controller.resource].get(name, namespace)
        # What an owner that is gone has made goes with it: the server sees to that.
        if owner is None or pods.is_deleting(owner):
            return
        children = self._informers[controller.children].objects()
        plan = controller.plan(family(owner, children, self._nodes.objects()))
        # Deletion and status do not wait for what cannot be made.
        with contextlib.ExitStack() as after:
            after.callback(self._write, controller, owner, plan)
            for body in plan.create:
                self._create(controller, owner, body)
            for child, patch in plan.change:
                self._wait(controller.children, self._patch(controller.children, child, patch))

    def _create(self, controller: controllers.Controller, owner: Json, body: Json) -> None:
        namespace = owner["metadata"]["namespace"]
        try:
            made = self._client.create(controller.children, body, namespace)
        except kube.ApiError as error:
            self._tell(
                controller, owner, "Warning", "FailedCreate", f"Error creating: {error.message}"
            )
            raise
        text = f"Created {body['kind'].lower()}: {made['metadata']['name']}"
        self._tell(controller, owner, "Normal", "SuccessfulCreate", text)
        # Else it would be made once more.
        self._wait(controller.children, made)

    def _write(self, controller: controllers.Controller, owner: Json, plan: plans.Plan) -> None:
        """Delete what is too much, and tell how it is."""
        for child in plan.delete:
            metadata = child["metadata"]
            with contextlib.suppress(kube.NotFound, kube.Conflict):
                self._client.delete(
                    controller.children,
                    metadata["name"],
                    metadata["namespace"],
                    uid=metadata["uid"],
                )
        held = owner["metadata"].get("annotations") or {}
        if any(held.get(key) != value for key, value in plan.annotations.items()):
            patch = {"metadata": {"annotations": plan.annotations}}
            owner = self._patch(controller.resource, owner, patch)
        if plan.status is not None and plan.status != (owner.get("status") or {}):
            changed = owner | {"status": plan.status}
            namespace = owner["metadata"]["namespace"]
            owner = self._client.replace_status(controller.resource, changed, namespace)
        self._wait(controller.resource, owner)

    def _patch(self, resource: kube.Resource, body: Json, patch: Json) -> Json:
        metadata = body["metadata"]
        return self._client.patch(resource, metadata["name"], patch, metadata["namespace"])

    def _wait(self, resource: kube.Resource, written: Json) -> None:
        version = written["metadata"]["resourceVersion"]
        if not self._informers[resource].wait_version(version, SYNC_SECONDS):
            raise errors.Retryable(f"the watch has not shown version {version} yet")

    def _tell(
        self, controller: controllers.Controller, owner: Json, kind: str, reason: str, text: str
    ) -> None:
        recorder = self._recorders.setdefault(
            controller.name, events.Recorder(self._client, controller.name)
        )
        recorder.record(owner, kind, reason, text)


def family(owner: Json, others: Iterable[Json], all_nodes: Iterable[Json]) -> plans.Family:
    """The owner with those of the others that it controls."""
    uid = owner["metadata"]["uid"]
    return plans.Family(
        owner=owner,
        children=[body for body in others if (pods.controller_of(body) or {}).get("uid") == uid],
        nodes=[nodes.parse(body) for body in all_nodes],
        now=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _key(body: Json) -> Key:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
