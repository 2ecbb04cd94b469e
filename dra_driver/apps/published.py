"""What this node has published, as the API server tells it now."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

from dra_driver import errors
from dra_driver.adapters import kube
from dra_driver.logic import publishing
from dra_driver.model import slices

Published = Callable[[], Sequence[slices.Device]]
"""The devices of the node's newest slices.

Raises:
    errors.DriverError: the API server does not tell.
"""


def devices(client: kube.Client, driver_name: str, node_name: str) -> list[slices.Device]:
    """See `Published`. One list of the node's own slices."""
    served = kube.served_versions(client, kube.RESOURCE_GROUP)
    version = next((v for v in publishing.API_VERSIONS if v in served), None)
    if version is None:
        raise errors.Retryable(f"the API server does not offer {kube.RESOURCE_GROUP}")
    items, _ = client.list(
        dataclasses.replace(kube.SLICES, version=version),
        field_selector=f"spec.driver={driver_name},spec.nodeName={node_name}",
    )
    bodies = [publishing.from_version(item, version) for item in items]
    generations = [_generation(body) for body in bodies]
    found = []
    for body, generation in zip(bodies, generations, strict=True):
        if generation == max(generations):
            for device in body["spec"].get("devices") or ():
                # What this version of the driver cannot read, it did not publish.
                with contextlib.suppress(errors.Rejected):
                    found.append(slices.parse_device(device))
    return found


def _generation(body: kube.Json) -> int:
    return int(body["spec"]["pool"].get("generation", 0))
