"""A long list of which little is kept: one page of it is in memory at a time.

A node with eight cards that are cut on demand has 170 KB of slices, and Python objects take several
times as much as their JSON.
"""

from collections.abc import Callable
from typing import TypeVar

from dra_driver.adapters.kube import kube, kube_pages

T = TypeVar("T")

PAGE = 50
"""Whole objects in one answer: a slice may have 50 KB."""
METADATA = f"{kube.JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{kube.JSON}"
"""What is accepted where the metadata of objects is enough: from Kubernetes 1.15 on API servers
have that form for all kinds (client-go, `metadata/metadata.go`)."""
_TRIES = 3


def reduced(
    client: kube.Client,
    resource: kube.Resource,
    keep: Callable[[kube.Json], T | None],
    namespace: str | None = None,
    *,
    page: int | None = None,
    metadata_only: bool = False,
    field_selector: str | None = None,
    label_selector: str | None = None,
) -> list[T]:
    """What `keep` makes of each object that matches, without None. `page` is how many come at once.

    With `metadata_only` objects have `metadata`, and the rest only if the server cannot leave it
    out. All are as they were at one moment: where that is forgotten before the last page, they are
    read again.

    Raises:
        kube.ApiError: a page is not to be had; then there is no list.
    """
    path = resource.path(namespace)
    query = kube.selectors(field_selector, label_selector)
    query["limit"] = str(kube.PAGE if metadata_only else page or PAGE)
    accept = METADATA if metadata_only else kube.JSON
    for _ in range(_TRIES - 1):
        try:
            return _once(client, path, query, accept, keep)
        except kube.Gone:
            continue
    return _once(client, path, query, accept, keep)


def _once(
    client: kube.Client,
    path: str,
    query: dict[str, str],
    accept: str,
    keep: Callable[[kube.Json], T | None],
) -> list[T]:
    kept, _ = kube_pages.reduce(
        lambda page: client.get_path(path, query=page, accept=accept), path, query, keep
    )
    return kept
