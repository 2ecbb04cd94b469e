"""From the kinds in manifests to the resources of a server, as its discovery tells of them."""

from typing import Any

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.api.kinds import served_kinds
from dra_driver.sim.api.serving import options
from dra_driver.sim.cluster.workloads import controllers, templates

Json = dict[str, Any]

_BUILT_IN_GROUPS = frozenset(kind.group for kind in served_kinds.BUILT_IN)


class Mapper:
    """Kinds to resources. What was asked once is remembered until `forget`."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, kube.Resource]] = {}

    def forget(self) -> None:
        """Ask anew: there are other kinds."""
        self._known.clear()

    def resource(self, body: Json, name: str) -> kube.Resource:
        """Where objects of that kind are kept; `name` is the object's, for a message.

        A kind that nobody defines, but has templates of pods, is defined first.

        Raises:
            errors.Fatal: the cluster does not have the kind, or not in that version.
        """
        version, kind = body["apiVersion"], body["kind"]
        if kind not in self._kinds(version) and _is_runnable(body):
            # Another object may have defined it, in another version.
            group, _, _ = version.rpartition("/")
            if not self._versions_of(group, kind):
                self._client.create(controllers.DEFINITIONS, _definition(body))
                self.forget()
        found = self._kinds(version).get(kind)
        if found is None:
            raise errors.Fatal(f"{name}: {self._refusal(version, kind)}")
        return found

    def _kinds(self, version: str) -> dict[str, kube.Resource]:
        if version not in self._known:
            self._known[version] = self._discover(version)
        return self._known[version]

    def _discover(self, version: str) -> dict[str, kube.Resource]:
        group, _, name = version.rpartition("/")
        try:
            body = self._client.get_path(f"/apis/{version}" if group else f"/api/{version}")
        except kube.NotFound:
            return {}
        return {
            item["kind"]: kube.Resource(group, name, item["name"], namespaced=item["namespaced"])
            for item in body["resources"]
            if "/" not in item["name"]
        }

    def _versions_of(self, group: str, kind: str) -> list[str]:
        """The versions of the group that have the kind."""
        served = kube.served_versions(self._client, group) if group else ("v1",)
        named = [f"{group}/{version}" if group else version for version in served]
        return [version for version in named if kind in self._kinds(version)]

    def _refusal(self, version: str, kind: str) -> str:
        """As kubectl has it, and what is there instead."""
        text = f'no matches for kind "{kind}" in version "{version}"'
        group, _, wanted = version.rpartition("/")
        releases = options.releases_with(group, wanted, kind)
        if elsewhere := self._versions_of(group, kind):
            plays = self._client.get_path("/version")["gitVersion"]
            text += f": this cluster ({plays}) serves it in {', '.join(elsewhere)}"
            program = "dra-driver" if group == kube.CLAIMS.group else "kubectl"
            text += f"; write it so ({program} convert does)"
            if releases:
                text += f", or have a release that serves {wanted}: --emulate {releases[0]}"
            return text
        if group in _BUILT_IN_GROUPS:
            there = ", ".join(sorted(self._kinds(version))) or "nothing"
            text += f": the cluster has {there} there"
            if releases:
                text += f"; have a release that serves it: --emulate {releases[0]}"
            return text
        return f"{text}: add its CustomResourceDefinition to the manifests"


def _is_runnable(body: Json) -> bool:
    """Whether the object is of a kind of somebody's own, from which pods can be made."""
    group = body["apiVersion"].rpartition("/")[0]
    return group not in _BUILT_IN_GROUPS and bool(templates.found_in(body))


def _definition(body: Json) -> Json:
    """A definition for the kind of an object of which nothing else is known."""
    group, _, version = body["apiVersion"].rpartition("/")
    plural = f"{body['kind'].lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": body["kind"]},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
