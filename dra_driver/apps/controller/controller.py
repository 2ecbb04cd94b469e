"""`dra-driver controller`: removes what nobody needs any more, and makes templates of parameter
objects (`parameters`), one controller at a time.

What nobody needs is what nodes that are gone have left, and templates of converted pods (`unused`).

What is removed is named by its UID, and is found twice before: a controller that has lost the lease
without knowing does no harm. Of what is read only what is needed is kept, page by page: all slices
of a large cluster are more than the memory that a controller should have.
"""

import dataclasses
import datetime as dt
import functools
import random
import threading
import time
from collections.abc import Callable, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.adapters.serving import http_server
from dra_driver.apps import pages
from dra_driver.apps.controller import leading, parameters, reading, unused
from dra_driver.logic.controller import leftovers
from dra_driver.logic.preparing import mps_pod
from dra_driver.model import backoff, claims
from dra_driver.settings import controller as controller_settings

COMPONENT = "dra-driver-controller"
_STUCK_SECONDS = 120.0
"""After this long without a round the loop is taken for stuck; one request may take 10 s."""


class Sweeper:
    """Looks for leftovers, and removes or reports those that are left for long enough."""

    def __init__(
        self,
        config: controller_settings.Controller,
        client: kube.Client,
        metrics: telemetry.ControllerMetrics,
    ) -> None:
        self._config = config
        self._client = client
        self._metrics = metrics
        self._since: Mapping[leftovers.Leftover, float] = {}
        self._reported: set[leftovers.Leftover] = set()
        self._log = telemetry.logger("sweep")

    def sweep(self, now: float, may_go_on: Callable[[], bool]) -> None:
        """One look, at `now` (monotonic seconds); `may_go_on` is asked before each change.

        Raises:
            errors.DriverError: the API server does not answer, or refuses; one refused change does
                not keep the others from being made.
        """
        version = reading.served_version(self._client)
        read = reading.Reader(self._client, may_go_on)
        owned = [*self._pods(read), *self._slices(read, version), *self._held(read, version)]
        # Last: an object of a node that is made meanwhile must not look like a leftover.
        found = leftovers.gone(owned, self._nodes(read))
        self._metrics.stale_claims(sum(each.kind == "ResourceClaim" for each in found))
        self._since, ripe = leftovers.due(
            found, self._since, now=now, grace=self._config.grace_seconds
        )
        self._reported &= {*found}
        refused: list[kube.ApiError] = []
        for each in ripe:
            if not may_go_on():
                break
            try:
                self._settle(each, version)
            except kube.ApiError as error:
                # A quota for events, say, is the namespace's, and not that of the next one.
                refused.append(error)
        if refused:
            raise errors.Retryable(f"{len(refused)} leftovers stay; of the first: {refused[0]}")

    def forget(self) -> None:
        """Take everything for new at the next look."""
        self._since = {}

    def _settle(self, leftover: leftovers.Leftover, version: str) -> None:
        if leftover.kind == "ResourceClaim":
            self._report(leftover)
            return
        slices = dataclasses.replace(kube.SLICES, version=version)
        resource = kube.PODS if leftover.kind == "Pod" else slices
        try:
            self._client.delete(
                resource,
                leftover.name,
                leftover.namespace or None,
                uid=leftover.uid,
                # No kubelet is there that could confirm its end.
                grace_period=0 if leftover.kind == "Pod" else None,
            )
        except (kube.NotFound, kube.Conflict):
            # Gone meanwhile, or another object has the name now.
            return
        self._metrics.removed(leftover.kind)
        self._log.info("leftover removed", leftover=str(leftover), node=leftover.node)

    def _report(self, claim: leftovers.Leftover) -> None:
        if claim in self._reported:
            return
        self._log.warning("claim of a node that is gone", claim=str(claim), node=claim.node)
        event = leftovers.claim_event(
            claim,
            component=COMPONENT,
            time=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        try:
            self._client.create(kube.EVENTS, event, claim.namespace)
        except kube.Conflict:
            # It was told by an earlier leader.
            self._log.debug("event is there", claim=str(claim))
        self._reported.add(claim)

    def _slices(self, read: reading.Reader, version: str) -> list[leftovers.Owned]:
        slices = functools.partial(
            read,
            dataclasses.replace(kube.SLICES, version=version),
            field_selector=f"spec.driver={self._config.driver_name}",
        )
        found = slices(leftovers.of_slice_metadata, metadata_only=True)
        if all(each.nodes for each in found):
            return found
        # Nobody owns some of them: only the slice itself tells its node then.
        return slices(functools.partial(leftovers.of_slice, driver=self._config.driver_name))

    def _held(self, read: reading.Reader, version: str) -> list[leftovers.Owned]:
        """Claims with devices of the driver."""
        return read(
            dataclasses.replace(kube.CLAIMS, version=version),
            lambda body: leftovers.of_claim(claims.parse_outcome(body), self._config.driver_name),
        )

    def _pods(self, read: reading.Reader) -> list[leftovers.Owned]:
        return read(
            kube.PODS,
            leftovers.of_pod,
            namespace=self._config.namespace,
            label_selector=f"{mps_pod.MANAGED_BY}={mps_pod.MANAGER},{mps_pod.DOMAIN}",
        )

    def _nodes(self, read: reading.Reader) -> set[str]:
        names = read(kube.NODES, lambda body: str(body["metadata"]["name"]), metadata_only=True)
        return {*names}


class Controller:
    """One loop: hold the lease, and sweep while it is held."""

    def __init__(
        self,
        config: controller_settings.Controller,
        client: kube.Client,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Listens at once, and answers after `start`. `chance` spreads the rounds.

        Raises:
            errors.Fatal: the address cannot be had.
        """
        self._config = config
        self._client = client
        self._chance = chance
        self._metrics = telemetry.ControllerMetrics(config.driver_name)
        self._candidate = leading.Candidate(
            client,
            namespace=config.namespace,
            name=config.lease,
            identity=config.identity,
            seconds=config.lease_seconds,
        )
        self._sweeper = Sweeper(config, client, self._metrics)
        self._cleaner = unused.Cleaner(config, client, self._metrics)
        self._swept: float | None = None
        self._keeper = parameters.Keeper(config, client, self._metrics)
        self._round = time.monotonic()
        self._log = telemetry.logger("controller")
        self._server = pages.server(
            config.status_address,
            {"/healthz": self._health, "/metrics": pages.metrics(self._metrics)},
            lambda error: self._log.error("request failed", exc_info=error),
        )

    @property
    def status_port(self) -> int:
        """Where the state is told."""
        return self._server.port

    def run(self, stop: threading.Event) -> None:
        """Go on until `stop` is set; then let the next one begin."""
        self.start()
        try:
            while not stop.is_set():
                self.round()
                stop.wait(self.pause())
        finally:
            self.stop()

    def start(self) -> None:
        """Begin to tell the state."""
        self._server.start()
        self._log.info("started", status=self.status_port, identity=self._config.identity)

    def stop(self) -> None:
        """Give the lease away, and close."""
        self._log.info("stopping")
        self._candidate.release()
        self._server.stop()
        self._client.close()

    def pause(self) -> float:
        """Seconds until the next round.

        One that leads does not wait as long as the API server asks for: the lease would run out.
        """
        seconds = self._config.retry_seconds
        asked = None if self._candidate.leads else self._candidate.asked
        return backoff.Schedule(seconds, seconds).pause(1, chance=self._chance(), asked=asked)

    def round(self) -> None:
        """Renew the lease, and sweep if that is due."""
        self._round = now = time.monotonic()
        leads = self._candidate.try_to_lead()
        self._metrics.leads(leads=leads)
        due = self._swept is None or now - self._swept >= self._config.sweep_seconds
        if not leads:
            # What happens to nodes from now on is not seen.
            self._sweeper.forget()
            self._cleaner.forget()
            self._keeper.forget()
            self._swept = None
        if not leads:
            return
        self._keep(now)
        if not due:
            return
        self._swept = now
        self._look(self._sweeper.sweep, now)
        if self._config.converted_templates and self._candidate.leads:
            self._look(self._cleaner.clean, now)

    def _look(self, look: Callable[[float, Callable[[], bool]], None], now: float) -> None:
        try:
            look(now, self._still_leads)
        except errors.DriverError as error:
            self._metrics.sweep_failed()
            self._log.warning("sweep failed; it is tried again", reason=str(error))

    def _keep(self, now: float) -> None:
        try:
            self._keeper.keep(now, self._still_leads)
        except errors.DriverError as error:
            self._metrics.parameters_failed()
            self._log.warning("parameters are not kept; it is tried again", reason=str(error))

    def _still_leads(self) -> bool:
        """Whether it leads; the lease is renewed when that is due, as a sweep may outlast it."""
        if time.monotonic() - self._round >= self._config.retry_seconds:
            self._round = time.monotonic()
            self._candidate.try_to_lead()
        return self._candidate.leads

    def _health(self) -> http_server.Response:
        silent = time.monotonic() - self._round
        if silent > _STUCK_SECONDS + self._config.retry_seconds:
            return pages.text(503, f"no round for {silent:.0f} s")
        return pages.text(200, "ok")
