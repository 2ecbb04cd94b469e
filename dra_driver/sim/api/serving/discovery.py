"""What is served, as clients ask for it: groups, versions, resources.

Sources: `k8s.io/apimachinery/pkg/apis/meta/v1` (APIGroupList, APIResourceList) and
`k8s.io/api/apidiscovery/v2`.
"""

import re
from typing import Any

from dra_driver import errors
from dra_driver.sim.api.kinds import kinds, served_kinds

Json = dict[str, Any]
Served = served_kinds.Table

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_COLLECTION_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update")
VERBS = (*_COLLECTION_VERBS, "watch")
_SUBRESOURCE_VERBS = {"binding": ("create",), "log": ("get",)}
_STATUS_VERBS = ("get", "patch", "update")
_SUBRESOURCE_KINDS = {
    "binding": ("", "v1", "Binding"),
    "scale": ("autoscaling", "v1", "Scale"),
}


def wants_aggregated(accept: str) -> bool:
    """Whether the client reads all resources in one answer."""
    return "as=APIGroupDiscoveryList" in accept and "v=v2;" in accept.replace(",", ";") + ";"


def core_versions() -> Json:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    }


def groups(served: Served) -> Json:
    """`/apis`."""
    listed = [group(name, served) for name in served.versions if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(name: str, served: Served) -> Json:
    """`/apis/GROUP`."""
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in served.versions[name]
    ]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def resources(name: str, version: str, served: Served) -> Json:
    """`/api/v1`, `/apis/GROUP/VERSION`."""
    listed: list[Json] = []
    for kind in served.of(name, version):
        entry: Json = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(VERBS),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        listed.append(entry)
        listed += [_subresource(kind, subresource) for subresource in kind.subresources]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{name}/{version}" if name else version,
        "resources": listed,
    }


def _subresource(kind: kinds.Kind, subresource: str) -> Json:
    entry: Json = {
        "name": f"{kind.plural}/{subresource}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(_SUBRESOURCE_VERBS.get(subresource, _STATUS_VERBS)),
    }
    if subresource in _SUBRESOURCE_KINDS:
        group_name, version, entry["kind"] = _SUBRESOURCE_KINDS[subresource]
        if group_name:
            entry |= {"group": group_name, "version": version}
    return entry


def aggregated(served: Served, *, core: bool) -> Json:
    """`/api` or `/apis` for a client that wants everything at once."""
    names = [name for name in served.versions if bool(name) != core]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_discovered_group(name, served) for name in names],
    }


def _discovered_group(name: str, served: Served) -> Json:
    return {
        "metadata": {"name": name, "creationTimestamp": None},
        "versions": [
            {
                "version": version,
                "freshness": "Current",
                "resources": [_discovered(kind, version) for kind in served.of(name, version)],
            }
            for version in served.versions[name]
        ],
    }


def _discovered(kind: kinds.Kind, version: str) -> Json:
    entry: Json = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(VERBS),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.subresources:
        entry["subresources"] = [
            _discovered_subresource(kind, version, name) for name in kind.subresources
        ]
    return entry


def _discovered_subresource(kind: kinds.Kind, version: str, name: str) -> Json:
    group_name, response_version, word = _SUBRESOURCE_KINDS.get(
        name, (kind.group, version, kind.kind)
    )
    return {
        "subresource": name,
        "responseKind": {"group": group_name, "version": response_version, "kind": word},
        "verbs": list(_SUBRESOURCE_VERBS.get(name, _STATUS_VERBS)),
    }


def minor_of(git_version: str) -> int:
    """The minor version: 36 of `v1.36.2`.

    Raises:
        errors.Rejected: it is no version of Kubernetes 1.
    """
    match = re.match(r"v1\.(\d+)", git_version)
    if match is None:
        raise errors.Rejected(
            f"kubernetes_version {git_version!r} is not of the form v1.MINOR.PATCH"
        )
    return int(match[1])


def version_info(git_version: str) -> Json:
    """`/version`."""
    return {
        "major": "1",
        "minor": str(minor_of(git_version)),
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }
