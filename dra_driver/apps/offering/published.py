"""What this node has published, as the API server tells it now."""

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.logic.offering import publishing
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


class Soon:
    """What is published, for somebody who cannot wait for an API server that hangs.

    It is asked in a thread. An answer that comes later is kept for whoever asks next.
    """

    def __init__(self, ask: Published, seconds: float = 1.0) -> None:
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._answer: queue.SimpleQueue[Sequence[slices.Device] | Exception] | None = None

    def __call__(self) -> Sequence[slices.Device]:
        """See `Published`.

        Raises:
            errors.Retryable: also if there is no answer within the seconds.
        """
        with self._lock:
            answer = self._answer
            if answer is None:
                answer = self._answer = queue.SimpleQueue()
                threading.Thread(
                    target=self._fetch, args=[answer], name="published", daemon=True
                ).start()
            try:
                told = answer.get(timeout=self._seconds)
            except queue.Empty:
                raise errors.Retryable(
                    "what is published for the node is not known yet: the API server has not "
                    f"answered within {self._seconds:g} s"
                ) from None
            self._answer = None
        if isinstance(told, Exception):
            raise told
        return told

    def _fetch(self, answer: "queue.SimpleQueue[Sequence[slices.Device] | Exception]") -> None:
        try:
            answer.put(self._ask())
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            answer.put(error)


def _generation(body: kube.Json) -> int:
    return int(body["spec"]["pool"].get("generation", 0))
