"""Objects of a cluster, or of files that somebody saved, for commands that only look."""

import contextlib
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from dra_driver import errors
from dra_driver.adapters.console import documents
from dra_driver.adapters.kube import kube
from dra_driver.logic.picturing import snapshots

Json = dict[str, Any]

STORED_NAMESPACE = "default"
"""The namespace of a stored object whose file does not tell."""

KINDS = {
    "Node": kube.NODES,
    "Pod": kube.PODS,
    "ResourceSlice": kube.SLICES,
    "DeviceClass": kube.CLASSES,
    "ResourceClaim": kube.CLAIMS,
    "ResourceClaimTemplate": kube.TEMPLATES,
}
"""What can be read."""

_SUFFIXES = (".yaml", ".yml", ".json")


def cluster(
    kubeconfig: pathlib.Path | None, kinds: Iterable[str], *, command: str, user_agent: str
) -> list[Json]:
    """All objects of these kinds, normalized. Without `kubeconfig`: as the pod's service account.

    Raises:
        errors.DriverError: the API server cannot be reached, refuses, or is too old for `command`.
    """
    client = kube.Client(kubeconfig=kubeconfig, user_agent=user_agent)
    try:
        return [body for kind in kinds for body in _all(client, kind, command)]
    finally:
        client.close()


def saved(paths: Iterable[pathlib.Path]) -> list[Json]:
    """The objects in files, and in the files of folders by name.

    Raises:
        errors.DriverError: a path does not exist, or holds what is no Kubernetes object.
    """
    return [
        body
        for path in paths
        for file in _files(path)
        for body in objects(file, STORED_NAMESPACE, cuts=True)
    ]


@contextlib.contextmanager
def unchecked(paths: Iterable[pathlib.Path]) -> Iterator[None]:
    """For work with objects of these files, of which no API server has checked all fields.

    Raises:
        errors.Rejected: inside the block one had a field that no Kubernetes object has like that.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        named = ", ".join(map(str, paths))
        if not named:
            raise
        raise errors.Rejected(
            f"{named}: a field of an object is missing or of a wrong type "
            f"({type(error).__name__}: {error}). "
            "`kubectl apply --dry-run=server -f FILE` tells which"
        ) from error


def objects(path: pathlib.Path, namespace: str, *, cuts: bool = False) -> Iterator[Json]:
    """The objects of a file, normalized; lists are taken apart.

    `cuts` is that of `documents.load_all`.
    """
    for number, document in enumerate(documents.load_all(path, cuts=cuts), start=1):
        place = f"{path}, document {number}"
        for body in _flat(document, place):
            yield snapshots.normalized(body, namespace)


def _all(client: kube.Client, kind: str, command: str) -> Iterator[Json]:
    resource = KINDS[kind]
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    try:
        items, _ = client.list(resource)
    except kube.NotFound as error:
        raise errors.Rejected(
            f"the API server serves no {resource.plural} in {version}: {command} needs "
            "Kubernetes 1.34 or newer"
        ) from error
    except kube.Unavailable as error:
        raise errors.Rejected(
            f"{error}. kubectl get --raw /readyz tells whether the API server is up; "
            "--kubeconfig FILE names another cluster"
        ) from error
    except kube.Forbidden as error:
        raise errors.Rejected(
            f"{error}. The ClusterRole dra-driver-viewer of the chart has what {command} reads"
        ) from error
    for item in items:
        body = {**item, "apiVersion": version, "kind": kind}
        yield snapshots.normalized(body, STORED_NAMESPACE)


def server_version(kubeconfig: pathlib.Path | None, *, user_agent: str) -> str:
    """What the API server says it is, as `v1.36.2`; empty if it does not tell."""
    client = kube.Client(kubeconfig=kubeconfig, user_agent=user_agent)
    try:
        return str(client.get_path("/version").get("gitVersion", ""))
    except errors.DriverError:
        return ""
    finally:
        client.close()


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise errors.Rejected(f"{path}: the folder has no {', '.join(_SUFFIXES)} file")
    return files


def _flat(document: Any, place: str) -> Iterable[Json]:
    match document:
        case {"apiVersion": str(version), "kind": str(kind), "items": list(items)}:
            # Items of a typed list, as the API answers it, have no kind of their own.
            own = {"apiVersion": version, "kind": kind.removesuffix("List")}
            return [
                body
                for item in items
                for body in _flat({**own, **item} if isinstance(item, dict) else item, place)
            ]
        case {"apiVersion": str(), "kind": str(), "metadata": {"name": str()}}:
            return [document]
        case {"apiVersion": str(), "kind": str(), "metadata": {"generateName": str()}}:
            return [document]
    raise errors.Rejected(
        f"{place}: this is no Kubernetes object: apiVersion, kind and metadata.name are needed"
    )
