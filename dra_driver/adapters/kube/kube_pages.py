"""A list that comes in pages, put together."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dra_driver.adapters.kube import kube_errors

Json = dict[str, Any]
T = TypeVar("T")


def collect(
    call: Callable[..., Json], path: str, query: Mapping[str, str]
) -> tuple[list[Json], str]:
    """The objects of all pages, and the version of the first: a watch from there misses nothing.

    `call` takes a method, a path and a query, and gives the object that is answered.

    Raises:
        kube_errors.ApiError: a page is not to be had: then there is no list.
    """
    return reduce(lambda page: call("GET", path, query=page), path, query, lambda body: body)


def reduce(
    call: Callable[[Mapping[str, str]], Json],
    path: str,
    query: Mapping[str, str],
    keep: Callable[[Json], T | None],
) -> tuple[list[T], str]:
    """What `keep` makes of each object, without None, and the version of the first page.

    `call` takes a query, and gives the page. No page is held while the next one is read.

    Raises:
        kube_errors.ApiError: a page is not to be had: then there is no list.
    """
    kept: list[T] = []
    version = ""
    position: dict[str, str] = {}
    while True:
        metadata = _read(call({**query, **position}), path, keep, kept)
        version = version or metadata["resourceVersion"]
        if not metadata.get("continue"):
            return kept, version
        position = {"continue": metadata["continue"]}


def _read(body: Json, path: str, keep: Callable[[Json], T | None], kept: list[T]) -> Json:
    """Add what is kept of a page; the metadata of the page."""
    try:
        metadata: Json = body["metadata"]
        items = iter(body["items"] or ())
        _ = metadata["resourceVersion"]
    except (KeyError, TypeError) as error:
        raise kube_errors.Unavailable(f"GET {path}", 200, "not a list", f"no {error}") from error
    kept += (made for item in items if (made := keep(item)) is not None)
    return metadata
