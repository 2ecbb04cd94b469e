"""How the controller reads lists: page by page, and no longer than it may."""

from collections.abc import Callable
from typing import Any, TypeVar

from dra_driver.adapters.kube import kube, kube_reducing

T = TypeVar("T")


class Reader:
    """Reads lists, and asks at each object whether to go on: a long list outlasts no lease then."""

    def __init__(self, client: kube.Client, may_go_on: Callable[[], bool]) -> None:
        self._client = client
        self._may_go_on = may_go_on

    def __call__(
        self, resource: kube.Resource, keep: Callable[[kube.Json], T | None], **options: Any
    ) -> list[T]:
        """See `kube_reducing.reduced`."""

        def kept(body: kube.Json) -> T | None:
            self._may_go_on()
            return keep(body)

        self._may_go_on()
        return kube_reducing.reduced(self._client, resource, kept, **options)
