"""Lists that outlast no lease, and in which version of the API they are asked for."""

from collections.abc import Callable
from typing import Any, TypeVar

from dra_driver import errors
from dra_driver.adapters.kube import kube, kube_reducing
from dra_driver.logic.offering import publishing

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


def served_version(client: kube.Client) -> str:
    """The newest version of `resource.k8s.io` that the API server and this driver have.

    Raises:
        errors.DriverError: there is none, or the API server does not answer.
    """
    served = kube.served_versions(client, kube.RESOURCE_GROUP)
    version = next((v for v in publishing.API_VERSIONS if v in served), None)
    if version is None:
        raise errors.Retryable(f"the API server does not offer {kube.RESOURCE_GROUP}")
    return version
