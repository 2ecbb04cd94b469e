"""Which kinds one server serves: those that are built in, and those that its CRDs define."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.sim.api.kinds import custom_kinds, kinds, plain_kinds, workload_kinds

Json = dict[str, Any]

BUILT_IN: tuple[kinds.Kind, ...] = kinds.KINDS + workload_kinds.KINDS + plain_kinds.KINDS

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = ("alpha", "beta", None)


class Table:
    """The kinds of a server. Changed with the store's lock held, read without."""

    def __init__(self, resource_versions: Sequence[str] = ("v1",), minor: int = 36) -> None:
        """Those that Kubernetes 1.`minor` has.

        `resource.k8s.io` is served in the given versions, the preferred one first.

        Raises:
            errors.Rejected: there is no such version.
        """
        known = {kind.group: kind.versions for kind in BUILT_IN}
        allowed = known[kinds.RESOURCE_GROUP]
        if not resource_versions or any(name not in allowed for name in resource_versions):
            raise errors.Rejected(
                f"resource_versions {tuple(resource_versions)!r}: allowed is one or more of "
                f"{allowed!r}"
            )
        self.minor = minor
        self._built_in = known | {kinds.RESOURCE_GROUP: tuple(resource_versions)}
        self._custom: dict[str, kinds.Kind] = {}
        self._gone: set[tuple[str, str]] = set()
        self._all: tuple[kinds.Kind, ...] = ()
        self._by_resource: Mapping[tuple[str, str], kinds.Kind] = {}
        self._by_name: Mapping[tuple[str, str], kinds.Kind] = {}
        self.versions: Mapping[str, tuple[str, ...]] = {}
        """The versions that are served of each group, the preferred one first."""
        self._index()

    def all(self) -> tuple[kinds.Kind, ...]:
        """All kinds, those that are built in first."""
        return self._all

    def of(self, group: str, version: str) -> list[kinds.Kind]:
        """The kinds of one group and version."""
        return [
            kind for kind in self._all if kind.group == group and kind.is_in(version, self.minor)
        ]

    def find(self, group: str, plural: str) -> kinds.Kind | None:
        """The kind that is served under that group and plural."""
        return self._by_resource.get((group, plural))

    def named(self, group: str, kind: str) -> kinds.Kind | None:
        """The kind of that group and `kind` word, as in owner references."""
        return self._by_name.get((group, kind))

    def stored_in(self, storage: str) -> kinds.Kind:
        """The kind whose objects are kept there in their own form."""
        return next(kind for kind in self._all if kind.resource == storage)

    def define(self, definition: Json) -> None:
        """Serve the kind of a CustomResourceDefinition, as it is now."""
        self._custom[definition["metadata"]["name"]] = _kind(definition["spec"])
        self._index()

    def defined(self, name: str) -> kinds.Kind | None:
        """The kind that the CustomResourceDefinition of that name defines."""
        return self._custom.get(name)

    def forget(self, name: str) -> None:
        """Serve the kind of a CustomResourceDefinition no longer."""
        if gone := self._custom.pop(name, None):
            self._gone.add((gone.group, gone.kind))
        self._index()

    def is_gone(self, group: str, kind: str) -> bool:
        """Whether the kind is not served, and was."""
        return (group, kind) in self._gone and (group, kind) not in self._by_name

    def _index(self) -> None:
        self._all = (*BUILT_IN, *self._custom.values())
        self._by_resource = {(kind.group, kind.plural): kind for kind in reversed(self._all)}
        self._by_name = {(kind.group, kind.kind): kind for kind in reversed(self._all)}
        versions = dict(self._built_in)
        for kind in self._custom.values():
            both = {*versions.get(kind.group, ()), *kind.versions}
            versions[kind.group] = tuple(sorted(both, key=age, reverse=True))
        self.versions = versions


def age(version: str) -> tuple[Any, ...]:
    """A key by which versions sort, the preferred one last: `v1alpha1`, `v1beta1`, `v1`, `v2`.

    Source: `k8s.io/apimachinery/pkg/version`, CompareKubeAwareVersionStrings.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    return (_STAGES.index(found[2]), int(found[1]), int(found[3] or 0), version)


def _kind(spec: Json) -> kinds.Kind:
    """The kind that a definition's spec, which has been validated, defines."""
    names, served = spec["names"], [item for item in spec["versions"] if item.get("served")]
    subresources = {name for item in served for name in item.get("subresources") or {}}
    return kinds.Kind(
        spec["group"],
        tuple(sorted((item["name"] for item in served), key=age, reverse=True)),
        names["plural"],
        names.get("singular") or names["kind"].lower(),
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        subresources=("status",) if "status" in subresources else (),
        generation=True,
        categories=tuple(names.get("categories") or ()),
        custom=custom_kinds.versions(spec["versions"]),
    )
