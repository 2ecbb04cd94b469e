"""A cluster as end-to-end cases see it: by its API alone. What is made is taken away."""

import contextlib
import dataclasses
import pathlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import manifests, mapping

T = TypeVar("T")
Json = dict[str, Any]

DRIVER = "gpu.nvidia.com"
HOST_NAME = "kubernetes.io/hostname"
NAMESPACES = kube.Resource("", "v1", "namespaces", namespaced=False)
EVENTS = kube.Resource("", "v1", "events")
DAEMON_SETS = kube.Resource("apps", "v1", "daemonsets")
TEMPLATES = kube.Resource("resource.k8s.io", "v1", "resourceclaimtemplates")
DEPLOYMENTS = kube.Resource("apps", "v1", "deployments")
JOBS = kube.Resource("batch", "v1", "jobs")

RUNNING, PENDING, SUCCEEDED = "Running", "Pending", "Succeeded"
LOOK_SECONDS = 0.1
RUN = "nvidia-smi -L; trap 'exit 0' TERM; sleep 36000 & wait"
"""What containers do: they tell what they see, and stay."""
_HEALTH_SINCE = 36
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-f-]+)\)")
_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}


@dataclasses.dataclass(frozen=True)
class Options:
    """Where cases run, and with what. `seconds`: how long anything may take."""

    kubeconfig: pathlib.Path
    label: str = "e2e.dra-driver/gpus"
    namespace: str = "dra-driver-e2e"
    image: str = "localhost/dra-driver:0.1.0"
    pod_image: str = "busybox:stable"
    seconds: float = 180.0


class Site:
    """A cluster. `nodes` are those with the label, on which the driver may run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.client = kube.Client(kubeconfig=options.kubeconfig, user_agent="dra-driver/e2e")
        self._mapper = mapping.Mapper(self.client)
        found, _ = self.client.list(kube.NODES, label_selector=options.label)
        self.nodes = sorted(body["metadata"]["name"] for body in found)
        self.version = str(self.client.get_path("/version").get("gitVersion", ""))
        self.starts: list[tuple[float, str]] = []
        """Seconds from the making of a pod until it was seen to run, and its name."""

    def close(self) -> None:
        self.client.close()

    @property
    def is_embedded(self) -> bool:
        """Whether it is the embedded cluster, by what its API server calls itself."""
        return self.version.endswith(("-sim", "-emulated"))

    @property
    def tells_health(self) -> bool:
        """Whether kubelets tell of the health of devices by default: from 1.36 on."""
        found = re.match(r"v1\.(\d+)", self.version)
        return found is not None and int(found[1]) >= _HEALTH_SINCE

    def wait(self, look: Callable[[], T], what: str | Callable[[], str]) -> T:
        """What `look` answers, as soon as that is true."""
        deadline = time.monotonic() + self.options.seconds
        while True:
            with contextlib.suppress(kube.NotFound, kube.Unavailable):
                if answer := look():
                    return answer
            if time.monotonic() >= deadline:
                told = what if isinstance(what, str) else what()
                raise AssertionError(f"not within {self.options.seconds:.0f} s: {told}")
            time.sleep(LOOK_SECONDS)

    def apply(self, objects: Iterable[Json]) -> None:
        manifests.apply(self.client, objects)

    def delete(self, objects: Iterable[Json]) -> None:
        """Delete objects, and wait until they are gone; what is not there is fine."""
        left = [
            (self._mapper.resource(body, manifests.full_name(body)), body["metadata"])
            for body in objects
        ]
        for resource, metadata in left:
            with contextlib.suppress(kube.NotFound):
                self.client.delete(resource, metadata["name"], metadata.get("namespace"))
        for resource, metadata in left:
            self.wait(
                lambda r=resource, m=metadata: self.is_gone(r, m["name"], m.get("namespace")),
                f"{resource.plural} {metadata['name']} to be gone",
            )

    def is_gone(self, resource: kube.Resource, name: str, namespace: str | None = None) -> bool:
        try:
            self.client.get(resource, name, namespace)
        except kube.NotFound:
            return True
        return False

    def is_there(self, body: Json) -> bool:
        """Whether the cluster has an object of this kind and name."""
        try:
            resource = self._mapper.resource(body, manifests.full_name(body))
        except errors.Fatal:
            return False
        metadata = body["metadata"]
        return not self.is_gone(resource, metadata["name"], metadata.get("namespace"))

    def slices(self) -> list[Json]:
        """Of the driver, on the nodes with the label."""
        items, _ = self.client.list(kube.SLICES, field_selector=f"spec.driver={DRIVER}")
        return [body for body in items if body["spec"].get("nodeName") in self.nodes]

    def devices(self) -> dict[tuple[str, str], Json]:
        """What is published, by node and device."""
        return {
            (body["spec"]["nodeName"], device["name"]): device
            for body in self.slices()
            for device in body["spec"].get("devices") or ()
        }

    def complete(self, nodes: Iterable[str] | None = None) -> bool:
        """Whether the pools of these nodes are there, all of them, and no others."""
        pools: dict[str, list[Json]] = {}
        for body in self.slices():
            pools.setdefault(body["spec"]["nodeName"], []).append(body["spec"]["pool"])
        wanted = {*(self.nodes if nodes is None else nodes)}
        return pools.keys() == wanted and all(
            len([one for one in found if one["generation"] == newest])
            == found[0]["resourceSliceCount"]
            for found in pools.values()
            for newest in [max(one["generation"] for one in found)]
        )

    def only(self, node: str) -> dict[str, str]:
        """The labels that only this node has."""
        labels = self.client.get(kube.NODES, node)["metadata"]["labels"]
        return {HOST_NAME: labels[HOST_NAME]}

    def log(self, namespace: str, pod: str, container: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        return self._text(path, {"container": container})

    def metrics(self) -> str:
        """What the API server tells of itself; nothing where it does not."""
        try:
            return self._text("/metrics", {})
        except kube.ApiError:
            return ""

    def _text(self, path: str, query: Mapping[str, str]) -> str:
        response = self.client._request("GET", path, query=query, accept="*/*")
        try:
            return bytes(response.read()).decode(errors="replace")
        finally:
            response.release_conn()

    def plugin_pods(self, daemon_set: str) -> dict[str, Json]:
        """The pods of the driver's DaemonSet by node; of two on a node, the newest."""
        items, _ = self.client.list(
            kube.PODS,
            self.options.namespace,
            label_selector="app.kubernetes.io/component=kubelet-plugin",
        )
        alive = [body for body in items if "deletionTimestamp" not in body["metadata"]]
        alive.sort(key=lambda body: body["metadata"]["creationTimestamp"])
        return {
            body["spec"]["nodeName"]: body
            for body in alive
            if body["spec"].get("nodeName")
            and body["metadata"]["ownerReferences"][0]["name"] == daemon_set
        }

    @contextlib.contextmanager
    def scratch(self, name: str, labels: Mapping[str, str]) -> Iterator["Scratch"]:
        """A namespace for one case, which is gone after it with all that is in it."""
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"e2e-{name}", "labels": {"e2e.dra-driver/case": name, **labels}},
        }
        self.delete([body])
        self.client.create(NAMESPACES, body)
        made = Scratch(self, body["metadata"]["name"])
        try:
            yield made
        finally:
            made.empty()
            self.delete([body])


class Scratch:
    """The namespace of a case."""

    def __init__(self, site: Site, namespace: str) -> None:
        self.site = site
        self.namespace = namespace
        self._made: dict[str, float] = {}

    def empty(self) -> None:
        """End pods first: their claims are unprepared before the namespace goes."""
        for resource in (DEPLOYMENTS, JOBS, DAEMON_SETS):
            for body in self.site.client.list(resource, self.namespace)[0]:
                with contextlib.suppress(kube.NotFound):
                    self.site.client.delete(resource, body["metadata"]["name"], self.namespace)
        self.site.wait(self._no_pods, f"pods of {self.namespace} to be gone")

    def _no_pods(self) -> bool:
        left = self.site.client.list(kube.PODS, self.namespace)[0]
        for body in left:
            if "deletionTimestamp" not in body["metadata"]:
                with contextlib.suppress(kube.NotFound):
                    self.site.client.delete(
                        kube.PODS, body["metadata"]["name"], self.namespace, grace_period=1
                    )
        return not left

    # What is made

    def create(self, resource: kube.Resource, kind: str, name: str, **parts: Any) -> Json:
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **parts}
        return self.site.client.create(resource, body, self.namespace)

    def template(self, name: str, *requests: Json, **devices: Any) -> Json:
        spec = {"spec": {"devices": {"requests": [*requests], **devices}}}
        return self.create(TEMPLATES, "ResourceClaimTemplate", name, spec=spec)

    def claim(self, name: str, *requests: Json, **devices: Any) -> Json:
        spec = {"devices": {"requests": [*requests], **devices}}
        return self.create(kube.CLAIMS, "ResourceClaim", name, spec=spec)

    def pod(self, name: str, claims: Mapping[str, str], **options: Any) -> Json:
        """A pod; see `pod_spec`."""
        self._made[name] = time.monotonic()
        return self.create(kube.PODS, "Pod", name, spec=self.pod_spec(claims, **options))

    def pod_spec(
        self,
        claims: Mapping[str, str],
        *,
        containers: Mapping[str, Iterable[Json]] | None = None,
        run: str = RUN,
        **spec: Any,
    ) -> Json:
        """Of a pod with these claims, by their names in it.

        The value is `template/NAME` or `claim/NAME`. `containers` says which use which of them
        (`resources.claims`); without it there is one that uses all.
        """
        used = containers or {"main": [{"name": name} for name in claims]}
        fields = {"template": "resourceClaimTemplateName", "claim": "resourceClaimName"}
        listed = [
            {"name": name, fields[what.partition("/")[0]]: what.partition("/")[2]}
            for name, what in claims.items()
        ]
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [_TOLERATION],
            "containers": [
                {
                    "name": name,
                    "image": self.site.options.pod_image,
                    "command": ["sh", "-c", run],
                    "resources": {"claims": [*uses]},
                }
                for name, uses in used.items()
            ],
            **({"resourceClaims": listed} if listed else {}),
            **spec,
        }

    # What became of it

    def get(self, name: str) -> Json:
        return self.site.client.get(kube.PODS, name, self.namespace)

    def phase(self, name: str) -> str:
        return str((self.get(name).get("status") or {}).get("phase", PENDING))

    def wait_phase(self, name: str, *phases: str) -> Json:
        """The pod, once it is in one of these phases."""

        def look() -> Json | None:
            body = self.get(name)
            return body if (body.get("status") or {}).get("phase") in phases else None

        return self.site.wait(look, lambda: f"pod {name} to be {phases}: {self.told(name)}")

    def wait_running(self, *names: str) -> list[Json]:
        found = []
        for name in names:
            found.append(self.wait_phase(name, RUNNING))
            if made := self._made.pop(name, None):
                self.site.starts.append((time.monotonic() - made, f"{self.namespace}/{name}"))
        return found

    def wait_unschedulable(self, name: str) -> str:
        """Why the scheduler finds no node, once it has said so."""

        def look() -> str | None:
            for one in (self.get(name).get("status") or {}).get("conditions") or ():
                if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable":
                    return str(one["message"])
            return None

        return self.site.wait(look, lambda: f"pod {name} to be unschedulable: {self.told(name)}")

    def wait_event(self, reason: str, text: str = "") -> Json:
        """An event of the namespace, once there is one."""

        def look() -> Json | None:
            items, _ = self.site.client.list(EVENTS, self.namespace)
            found = (e for e in items if e.get("reason") == reason and text in e.get("message", ""))
            return next(found, None)

        return self.site.wait(look, f"an event {reason} with {text!r} in {self.namespace}")

    def delete_pod(self, name: str, *, grace: int = 1) -> None:
        self.site.client.delete(kube.PODS, name, self.namespace, grace_period=grace)
        self.site.wait(
            lambda: self.site.is_gone(kube.PODS, name, self.namespace), f"pod {name} to be gone"
        )

    def claims(self) -> list[Json]:
        return self.site.client.list(kube.CLAIMS, self.namespace)[0]

    def allocated(self, name: str) -> list[str]:
        """The devices of a pod's claims, as `node/device`."""
        statuses = (self.get(name).get("status") or {}).get("resourceClaimStatuses") or ()
        names = {one["name"]: one.get("resourceClaimName") for one in statuses}
        spec = self.get(name)["spec"].get("resourceClaims") or ()
        found = []
        for entry in spec:
            claim = names.get(entry["name"]) or entry.get("resourceClaimName")
            body = self.site.client.get(kube.CLAIMS, claim, self.namespace)
            results = ((body.get("status") or {}).get("allocation") or {}).get("devices") or {}
            found += [f"{one['pool']}/{one['device']}" for one in results.get("results") or ()]
        return found

    def sees(self, name: str, container: str = "main") -> list[str]:
        """The UUIDs that `nvidia-smi -L` told in a container; of partitions theirs alone."""

        def look() -> list[str]:
            with contextlib.suppress(kube.ApiError):
                found = _UUID.findall(self.site.log(self.namespace, name, container))
                return [one for one in found if one.startswith("MIG-")] or found
            return []

        return self.site.wait(look, f"container {container} of pod {name} to see a GPU")

    def told(self, name: str) -> str:
        """What there is to tell of a pod that is not as it should be."""
        try:
            status = self.get(name).get("status")
            items, _ = self.site.client.list(EVENTS, self.namespace)
        except errors.DriverError as error:
            return str(error)
        return f"{status}; events: {[e.get('message') for e in items][-5:]}"


def exactly(name: str = "gpu", device_class: str = DRIVER, *selectors: str, **fields: Any) -> Json:
    """A request for devices of a class."""
    asked: Json = {"deviceClassName": device_class, **fields}
    if selectors:
        asked["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": asked}
