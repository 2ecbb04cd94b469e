"""`dra-driver explain`: reads a cluster, or saved files, and tells what becomes of claims and why.

It only lists; nothing is written.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from dra_driver import errors
from dra_driver.adapters import documents, kube, terminal
from dra_driver.apps import explain_view
from dra_driver.logic import explaining, snapshots, targets

Json = dict[str, Any]

FITS, DOES_NOT_FIT = 0, 2
"""Exit statuses; an error is 1."""

_DEFAULT = "default"
"""The namespace of a stored object whose file does not tell."""

_LISTED = {
    "Node": kube.NODES,
    "Pod": kube.PODS,
    "ResourceSlice": kube.SLICES,
    "DeviceClass": kube.CLASSES,
    "ResourceClaim": kube.CLAIMS,
    "ResourceClaimTemplate": kube.TEMPLATES,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is asked for. Without `saved` files the cluster of `kubeconfig` is read.

    `target` is pod/NAME or claim/NAME; None where `manifest` has what is to be explained.
    """

    target: str | None
    manifest: pathlib.Path | None
    saved: tuple[pathlib.Path, ...]
    kubeconfig: pathlib.Path | None
    namespace: str = "default"
    output: str = "table"


def run(options: Options, screen: terminal.Terminal, *, user_agent: str) -> int:
    """Explain, print, and return the exit status.

    Raises:
        errors.DriverError: the objects cannot be read, or what is asked for does not exist.
    """
    if (options.target is None) == (options.manifest is None):
        raise errors.Rejected("name either pod/NAME or claim/NAME, or a manifest with -f FILE")
    stored = _saved(options) if options.saved else _cluster(options.kubeconfig, user_agent)
    given = list(_objects(options.manifest, options.namespace)) if options.manifest else []
    snapshot = snapshots.of([*stored, *given])
    chosen: tuple[targets.Target, ...]
    if options.target is not None:
        chosen = (targets.named(snapshot, options.target, options.namespace),)
    else:
        chosen = targets.in_manifest(snapshot, given)
    explained = [explaining.explain(target, snapshot) for target in chosen]
    explain_view.show(explained, screen, as_json=options.output == "json")
    fits = all(each.verdict != explaining.DOES_NOT_FIT for each in explained)
    return FITS if fits else DOES_NOT_FIT


def _saved(options: Options) -> list[Json]:
    if options.kubeconfig is not None:
        raise errors.Rejected("--kubeconfig and saved files exclude each other: leave one out")
    return [body for path in options.saved for body in _objects(path, _DEFAULT)]


def _cluster(kubeconfig: pathlib.Path | None, user_agent: str) -> list[Json]:
    client = kube.Client(kubeconfig=kubeconfig, user_agent=user_agent)
    try:
        return [body for kind in _LISTED for body in _all(client, kind)]
    finally:
        client.close()


def _all(client: kube.Client, kind: str) -> Iterator[Json]:
    resource = _LISTED[kind]
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    try:
        items, _ = client.list(resource)
    except kube.NotFound as error:
        raise errors.Rejected(
            f"the API server serves no {resource.plural} in {version}: explain needs "
            "Kubernetes 1.34 or newer"
        ) from error
    for item in items:
        yield snapshots.normalized({**item, "apiVersion": version, "kind": kind}, _DEFAULT)


def _objects(path: pathlib.Path, namespace: str) -> Iterator[Json]:
    """The objects of a file that are of a kind that matters; lists are taken apart."""
    for number, document in enumerate(documents.load_all(path), start=1):
        place = f"{path}, document {number}"
        for body in _flat(document, place):
            yield snapshots.normalized(body, namespace)


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
