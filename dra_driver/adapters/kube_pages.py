"""A list that comes in pages, put together."""

from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.adapters import kube_errors

Json = dict[str, Any]


def collect(
    call: Callable[..., Json], path: str, query: Mapping[str, str]
) -> tuple[list[Json], str]:
    """The objects of all pages, and the version of the first: a watch from there misses nothing.

    `call` takes a method, a path and a query, and gives the object that is answered.

    Raises:
        kube_errors.ApiError: a page is not to be had: then there is no list.
    """
    items: list[Json] = []
    version = ""
    position: dict[str, str] = {}
    while True:
        body = call("GET", path, query={**query, **position})
        try:
            items += body["items"] or ()
            version = version or body["metadata"]["resourceVersion"]
        except (KeyError, TypeError) as error:
            raise kube_errors.Unavailable(
                f"GET {path}", 200, "not a list", f"no {error}"
            ) from error
        if not body["metadata"].get("continue"):
            return items, version
        position = {"continue": body["metadata"]["continue"]}
