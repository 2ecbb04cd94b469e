"""An API server with one node, whose claims are allocated as the scheduler would."""

import contextlib
import dataclasses
import itertools
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import reserved_port

from dra_driver.adapters.kube import kube
from dra_driver.logic.offering import publishing
from dra_driver.model import claims
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.api.serving import routing, server

Json = dict[str, Any]
T = TypeVar("T")

NODE = "node-1"
DRIVER = "gpu.nvidia.com"
ADMIN_NAMESPACE = "admin"
"""A namespace whose claims may ask for admin access."""
DEADLINE = 60.0
"""Seconds until a wait for something that must happen is given up."""


def wait_for(
    condition: Callable[[], T], what: str | Callable[[], str], *, seconds: float = DEADLINE
) -> T:
    """What `condition` answers, as soon as that is true.

    `what` tells what is waited for; as a function it is asked once that is given up.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() >= deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds} s: {told}")
        time.sleep(0.005)
    return answer


class Faults:
    """What goes wrong with requests, and which there were."""

    def __init__(self) -> None:
        self.calls: list[routing.Call] = []
        self.rule: Callable[[routing.Call], api_options.Fault | None] | None = None

    def ask(self, call: routing.Call) -> api_options.Fault | None:
        """See `api_options.Options.fault`."""
        self.calls.append(call)
        # Read once: the test may end the block at any moment.
        rule = self.rule
        return rule(call) if rule else None

    @contextlib.contextmanager
    def where(
        self, rule: Callable[[routing.Call], api_options.Fault | None]
    ) -> Iterator[list[api_options.Fault]]:
        """Inside the block `rule` decides; what it made go wrong is in the list."""
        happened: list[api_options.Fault] = []

        def noting(call: routing.Call) -> api_options.Fault | None:
            fault = rule(call)
            if fault is not None:
                happened.append(fault)
            return fault

        self.rule = noting
        try:
            yield happened
        finally:
            self.rule = None

    def claims_of(self, name: str, *faults: api_options.Fault) -> Any:
        """Inside the block the first reads of this claim meet these faults, one each."""
        left = iter(faults)

        def rule(call: routing.Call) -> api_options.Fault | None:
            hit = call.resource == "resourceclaims" and call.verb == "get" and call.name == name
            return next(left, None) if hit else None

        return self.where(rule)


class Cluster:
    """An API server with a Node object; claims in it are allocated as the scheduler would."""

    def __init__(self, *, with_node: bool = True, **options: Any) -> None:
        self.faults = Faults()
        self._port = reserved_port.Reserved()
        self._options = {"port": self._port.number} | options
        self._directory = tempfile.TemporaryDirectory(prefix="dra-api-", dir="/tmp")
        self.kubeconfig = pathlib.Path(self._directory.name) / "kubeconfig"
        self._numbers = itertools.count(1)
        self._api: server.ApiServer | None = None
        self.start()
        self.client = kube.Client(kubeconfig=self.kubeconfig, user_agent="test")
        self.version = options.get("resource_versions", ("v1",))[0]
        if with_node:
            self.create_node()
        self._create_admin_namespace()

    def start(self, stored: Mapping[str, Sequence[Json]] | None = None) -> None:
        """Begin to serve, with these objects by resource; after `stop` on the same port."""
        self._api = server.ApiServer(api_options.Options(fault=self.faults.ask, **self._options))
        for resource, bodies in (stored or {}).items():
            for body in bodies:
                self._api.store.put(resource, body)
        self._api.start()
        self._api.write_kubeconfig(self.kubeconfig)

    def stop(self) -> None:
        """Serve no longer."""
        if self._api is not None:
            self._api.stop()
            self._api = None

    def restart_with(self, **options: Any) -> None:
        """Serve anew with other options, with nothing stored."""
        self.stop()
        self._options |= options
        self.version = self._options["resource_versions"][0]
        self.start()

    def upgrade(self, **options: Any) -> None:
        """Serve anew with other options and all that was stored, as a new API server over etcd."""
        assert self._api is not None
        stored = self._api.store.contents()
        self._options |= options
        self.stop()
        self.start(stored)

    def close(self) -> None:
        """Stop and clear up."""
        self.client.close()
        self.stop()
        self._port.close()
        self._directory.cleanup()

    def create_node(self) -> str:
        """The UID of the new Node object."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        return str(self.client.create(kube.NODES, body)["metadata"]["uid"])

    def node_uid(self) -> str:
        return str(self.client.get(kube.NODES, NODE)["metadata"]["uid"])

    def claim(
        self, *results: str | Json, name: str = "", namespace: str = "default", **options: Any
    ) -> claims.ClaimRef:
        """A claim that is allocated to devices of the node.

        A result is a device name, or fields of the API's result. `config` are the configs of the
        allocation, `allocate=False` leaves it out.
        """
        full = [_result(result) for result in results]
        name = name or f"claim-{next(self._numbers)}"
        body = {
            "apiVersion": f"resource.k8s.io/{self.version}",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": self._requests(full)}},
        }
        made = self.client.create(self.claims, body, namespace)
        if options.get("allocate", True):
            made = self.allocate(made, full, config=options.get("config", ()))
        return claims.parse_outcome(made).ref

    def allocate(self, body: Json, results: Iterable[str | Json], *, config: Any = ()) -> Json:
        """Write the allocation into the status of a claim; the claim as it is then."""
        allocation = {
            "devices": {"results": [_result(result) for result in results]},
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
                ]
            },
        }
        if config:
            allocation["devices"]["config"] = list(config)
        namespace = body["metadata"]["namespace"]
        changed = body | {"status": {"allocation": allocation}}
        return self.client.replace_status(self.claims, changed, namespace)

    def give_uid(self, ref: claims.ClaimRef, uid: str) -> claims.ClaimRef:
        """The claim with a UID that was another server's; no client can do that."""
        assert self._api is not None
        objects, key = self._api.store, (ref.namespace, ref.name)
        body = objects.get("resourceclaims.resource.k8s.io", key)
        assert body is not None
        renamed = body | {"metadata": body["metadata"] | {"uid": uid}}
        objects.put("resourceclaims.resource.k8s.io", renamed)
        return dataclasses.replace(ref, uid=claims.ClaimUid(uid))

    def reallocate(self, ref: claims.ClaimRef, *results: str | Json) -> None:
        """Give the claim other devices, as after the pod was gone and another came."""
        while True:
            # The driver writes to the status too.
            with contextlib.suppress(kube.Conflict):
                free = self.get_claim(ref) | {"status": {}}
                body = self.client.replace_status(self.claims, free, ref.namespace)
                if results:
                    self.allocate(body, results)
                return

    def get_claim(self, ref: claims.ClaimRef) -> Json:
        return self.client.get(self.claims, ref.name, ref.namespace)

    def delete_claim(self, ref: claims.ClaimRef) -> None:
        self.client.delete(self.claims, ref.name, ref.namespace)

    def delete_claims(self) -> None:
        """Delete all claims, so that nothing is allocated any more."""
        for body in self.client.list(self.claims)[0]:
            metadata = body["metadata"]
            self.client.delete(self.claims, metadata["name"], metadata["namespace"])

    def slices(self) -> list[Json]:
        """The slices of the driver on the node, in the API version that is served."""
        selector = f"spec.driver={DRIVER},spec.nodeName={NODE}"
        items, _ = self.client.list(self.slice_resource, field_selector=selector)
        return items

    def slice_writes(self) -> list[str]:
        """The verbs of the driver's writes of slices, failed ones too, since the server began.

        What is not to be carried out, and only asks, is no write.
        """
        return [
            call.verb
            for call in self.faults.calls
            if call.resource == "resourceslices"
            and call.verb not in ("get", "list", "watch")
            and call.user_agent.startswith("dra-driver/")
            and not call.dry_run
        ]

    def slice_watches(self) -> int:
        """How often the driver has begun to watch slices."""
        return sum(
            call.resource == "resourceslices" and call.verb == "watch" for call in self.faults.calls
        )

    def wait_devices(self, *names: str) -> list[Json]:
        """The slices, once they hold devices of just these names."""

        def found() -> list[Json]:
            items = [publishing.from_version(item, self.version) for item in self.slices()]
            return items if items and device_names(items) == list(names) else []

        return wait_for(found, lambda: f"slices with devices {names}; there are {self.slices()}")

    @property
    def claims(self) -> kube.Resource:
        return dataclasses.replace(kube.CLAIMS, version=self.version)

    @property
    def slice_resource(self) -> kube.Resource:
        return dataclasses.replace(kube.SLICES, version=self.version)

    def _create_admin_namespace(self) -> None:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": ADMIN_NAMESPACE, "labels": labels},
        }
        self.client.create(kube.NAMESPACES, body)

    def _requests(self, results: Sequence[Json]) -> list[Json]:
        names = dict.fromkeys(result["request"].partition("/")[0] for result in results)
        return [self._request(name, results) for name in names or ("gpu",)]

    def _request(self, name: str, results: Sequence[Json]) -> Json:
        own = [result for result in results if result["request"].partition("/")[0] == name]
        wanted: Json = {"deviceClassName": DRIVER, "allocationMode": "ExactCount"}
        wanted["count"] = max(len(own), 1)
        if any(result.get("adminAccess") for result in own):
            wanted["adminAccess"] = True
        if own and "/" in own[0]["request"]:
            return {
                "name": name,
                "firstAvailable": [{"name": own[0]["request"].partition("/")[2]} | wanted],
            }
        return {"name": name} | (wanted if self.version == "v1beta1" else {"exactly": wanted})


def _result(result: str | Json) -> Json:
    fields = {"device": result} if isinstance(result, str) else result
    return {"request": "gpu", "driver": DRIVER, "pool": NODE} | fields


def device_names(items: Iterable[Json]) -> list[str]:
    """The devices of v1-shaped slices, in order."""
    return [device["name"] for item in items for device in item["spec"].get("devices") or ()]
