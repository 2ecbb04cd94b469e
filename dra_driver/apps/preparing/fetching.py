"""Claims from the API server, with patience: an error costs the pod more than a minute."""

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Collection

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube, kube_reducing
from dra_driver.adapters.system import patience
from dra_driver.logic.offering import publishing
from dra_driver.logic.preparing import planning
from dra_driver.model import backoff, claims

FIRST_BACKOFF = 0.1
LAST_BACKOFF = 2.0
"""Seconds between tries: first, and longest after doubling."""
LAST_TRY = 0.5
"""Seconds for a request when the time is up already: other claims of the call may have used it."""


class ApiClaims:
    """Reads claims in whichever API version the server offers. Nothing limits the rate here."""

    def __init__(
        self,
        client: kube.Client,
        stopping: threading.Event,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Once `stopping` is set, nothing is tried again. `chance` spreads the pauses."""
        self._client = client
        self._chance = chance
        self._resource: kube.Resource | None = None
        self._stopping = stopping
        self._log = telemetry.logger("claims")

    def fetch(
        self, ref: claims.ClaimRef, waiting: patience.Patience
    ) -> claims.ResourceClaim | None:
        """See `preparing.ClaimSource`."""
        if not ref.name:
            # A record that was rebuilt without the API knows the UID only.
            return None
        tries = backoff.Backoff(backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF), self._chance)
        while True:
            try:
                body = self.read(ref, waiting.deadline)
                if body is None:
                    return None
                return dataclasses.replace(claims.parse_outcome(body), served=body)
            except errors.Retryable as error:
                pause = tries.failed(error)
                if pause > waiting.left or self._stopping.is_set():
                    raise
                self._log.info("claim not read; trying again", reason=str(error))
            waiting.sleep(pause)

    def read(self, ref: claims.ClaimRef, deadline: float) -> kube.Json | None:
        """The object of that namespace and name as served, or None where there is none; one try.

        Raises:
            errors.DriverError: the API server did not answer until `deadline` (monotonic seconds),
                or refused.
        """
        resource = self._claims(_timeout(deadline))
        try:
            return self._client.get(resource, ref.name, ref.namespace, timeout=_timeout(deadline))
        except kube.NotFound:
            served = kube.served_versions(
                self._client, kube.RESOURCE_GROUP, timeout=_timeout(deadline)
            )
            if resource.version in served:
                return None
        # It is not the claim that is gone: the server was upgraded under us.
        self._resource = None
        raise errors.Retryable(
            f"the API server no longer offers {kube.RESOURCE_GROUP}/{resource.version}"
        )

    def concerning(self, node: planning.Node, uids: Collection[str]) -> list[claims.ResourceClaim]:
        """The claims that have devices of the node, or one of these UIDs.

        All claims of the cluster are read for that, a page at a time: no API server tells claims
        apart by what they have.

        Raises:
            errors.DriverError: the list is not to be had now.
        """

        def keep(body: kube.Json) -> claims.ResourceClaim | None:
            concerned = body["metadata"]["uid"] in uids or _is_here(body, node)
            return claims.parse_outcome(body) if concerned else None

        resource = self._claims(kube.REQUEST_TIMEOUT)
        try:
            return kube_reducing.reduced(self._client, resource, keep, page=kube.PAGE)
        except kube.NotFound:
            # The server was upgraded under us: the next try asks for its versions.
            self._resource = None
            raise

    def _claims(self, timeout: float) -> kube.Resource:
        # Read once: another thread may forget it at any moment.
        resource = self._resource
        if resource is None:
            served = kube.served_versions(self._client, kube.RESOURCE_GROUP, timeout=timeout)
            version = next((v for v in publishing.API_VERSIONS if v in served), None)
            if version is None:
                raise errors.Retryable(f"the API server does not offer {kube.RESOURCE_GROUP}")
            self._resource = resource = dataclasses.replace(kube.CLAIMS, version=version)
        return resource


def _is_here(body: kube.Json, node: planning.Node) -> bool:
    allocation = (body.get("status") or {}).get("allocation") or {}
    return any(
        (result["driver"], result["pool"]) == (node.driver_name, node.pool)
        for result in (allocation.get("devices") or {}).get("results") or ()
    )


def _timeout(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), LAST_TRY), kube.REQUEST_TIMEOUT)
