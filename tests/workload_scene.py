"""Workloads and their controllers over a store, one plan after another: no threads, no HTTP."""

from typing import Any

import yaml

from dra_driver.sim.api.kinds import rules
from dra_driver.sim.api.storing import deleting, registry, seeding, store
from dra_driver.sim.cluster.workloads import controllers, loop, plans, pods

Json = dict[str, Any]

_TURNS = 60
"""More than any workload here takes to come to rest."""


def template(**spec: Any) -> Json:
    """A template of pods with the label app=web."""
    body = {"containers": [{"name": "main", "image": "none"}]} | spec
    return {"metadata": {"labels": {"app": "web"}}, "spec": body}


def workload(kind: str, api: str = "apps/v1", **spec: Any) -> Json:
    """A workload `web` with that template and a selector for it."""
    body = {"selector": {"matchLabels": {"app": "web"}}, "template": template()} | spec
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "web"}, "spec": body}


def job(*, policy: str = "Never", **spec: Any) -> Json:
    body = {"template": template(restartPolicy=policy)} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "web"}, "spec": body}


class Shop:
    """The objects, and what controllers, scheduler and kubelet do with them when they are told."""

    def __init__(self, *nodes: str) -> None:
        self.registry = registry.Registry(
            store.Store(history=100), registry.Settings(rules=rules.ALL)
        )
        seeding.seed(self.registry)
        self._controllers = dict(controllers.BY_KIND)
        for name in nodes or ("n1",):
            self.add({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def add(self, body: Json | str) -> Json:
        """Create an object of the API, in the namespace `default` where it has one."""
        body = yaml.safe_load(body) if isinstance(body, str) else body
        kind = self._kind(body)
        made = self.registry.create(kind, "default" if kind.namespaced else "", body)
        if body["kind"] == "CustomResourceDefinition":
            self._controllers |= controllers.of_definition(made)
        return made

    def change(self, kind: str, *, name: str = "web", api: str = "apps/v1", **spec: Any) -> Json:
        """Change fields of the spec of an object."""
        found = self.registry.table.named(api.rpartition("/")[0], kind)
        return self.registry.update(
            found, ("default", name), lambda old: old | {"spec": old["spec"] | spec}
        )

    def get(self, kind: str, *, name: str = "web", api: str = "apps/v1") -> Json:
        return self.registry.get(
            self.registry.table.named(api.rpartition("/")[0], kind), "default", name
        )

    def status(self, kind: str, **where: str) -> Json:
        return dict(self.get(kind, **where).get("status") or {})

    def objects(self, storage: str) -> list[Json]:
        return self.registry.store.items(storage)

    def pods(self) -> dict[str, Json]:
        """All pods by name."""
        return {body["metadata"]["name"]: body for body in self.objects("pods")}

    def delete(self, kind: str, name: str, *, api: str = "v1") -> None:
        found = self.registry.table.named(api.rpartition("/")[0] if "/" in api else "", kind)
        namespace = "default" if found.namespaced else ""
        self.registry.delete(found, (namespace, name), deleting.Options())

    # What others do with pods

    def run(self, *names: str) -> None:
        """The pods run and are ready; all if none is named."""
        for name in names or self.pods():
            if self.pods()[name].get("status", {}).get("phase") == "Pending":
                ready = {"type": "Ready", "status": "True"}
                self._tell(name, {"phase": "Running", "conditions": [ready]})

    def end(self, *names: str, phase: str = "Succeeded") -> None:
        """The containers of the pods have ended."""
        for name in names:
            self._tell(name, {"phase": phase, "conditions": []})

    def restarted(self, name: str, times: int) -> None:
        """The container of the pod has been started again so often."""
        statuses = [{"name": "main", "restartCount": times}]
        self._tell(name, {"phase": "Running", "containerStatuses": statuses})

    def release(self, name: str) -> None:
        """Nothing keeps the pod any more."""
        kind = self.registry.table.stored_in("pods")

        def change(old: Json) -> Json:
            return old | {
                "metadata": {k: v for k, v in old["metadata"].items() if k != "finalizers"}
            }

        self.registry.update(kind, ("default", name), change)

    def _tell(self, name: str, status: Json) -> None:
        kind = self.registry.table.stored_in("pods")
        self.registry.update(
            kind, ("default", name), lambda old: old | {"status": status}, status=True
        )

    # What controllers do

    def turn(self) -> bool:
        """One plan of each controller for each workload; whether there was anything to do."""
        done = [self._plan(controller) for controller in dict.fromkeys(self._order())]
        return any(done)

    def settle(self, *, run: bool = True) -> None:
        """Turns until nothing is left to do; with `run` pods that come run at once."""
        for _ in range(_TURNS):
            if run:
                self.run()
            if not self.turn():
                return
        raise AssertionError(f"not at rest after {_TURNS} turns")

    def _order(self) -> list[controllers.Controller]:
        return list(self._controllers.values())

    def _plan(self, controller: controllers.Controller) -> bool:
        owners = self.registry.table.find(controller.resource.group, controller.resource.plural)
        children = self.registry.table.find(controller.children.group, controller.children.plural)
        assert owners is not None
        assert children is not None
        busy = False
        for owner in self.objects(owners.storage):
            if pods.is_deleting(owner):
                continue
            seen = self.objects(children.storage)
            family = loop.family(owner, seen, self.objects("nodes"))
            plan = controller.plan(family)
            busy |= not plans.is_at_rest(family, plan)
            self._carry_out(owners, children, owner, plan)
        return busy

    def _carry_out(self, owners: Any, children: Any, owner: Json, plan: plans.Plan) -> None:
        for body in plan.create:
            self.registry.create(children, "default", body)
        for child, patch in plan.change:
            self.registry.update(children, _key(child), lambda old, p=patch: _merged(old, p))
        for child in plan.delete:
            self.registry.delete(children, _key(child), deleting.Options(grace_seconds=0))
        marks = {"metadata": {"annotations": plan.annotations}}
        self.registry.update(owners, _key(owner), lambda old: _merged(old, marks))
        if plan.status is not None:
            told = plan.status
            self.registry.update(
                owners, _key(owner), lambda old: old | {"status": told}, status=True
            )

    def _kind(self, body: Json) -> Any:
        group = body["apiVersion"].rpartition("/")[0]
        return self.registry.table.named(group, body["kind"])


def _key(body: Json) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    return old | {key: _merged(old.get(key, {}), value) for key, value in patch.items()}
